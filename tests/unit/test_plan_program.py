"""Finding a project, reading a stack file as the CLI does, and running the program as the engine does."""

import os
import sys
from pathlib import Path

import pytest

from eks_llm.plan.program import PlanError, find_project, read_config, read_yaml, run

PROJECTS = Path(__file__).parents[1] / "data" / "projects"


def project(root: Path, program: str, stack: str = "", extra: str = "") -> Path:
    (root / "Pulumi.yaml").write_text(f"name: demo\nruntime: python\n{extra}")
    (root / "Pulumi.dev.yaml").write_text(stack)
    (root / "__main__.py").write_text(program)
    return root


def outcome(root: Path) -> str:
    with pytest.raises(PlanError) as caught:
        run(find_project(root), "dev")
    return str(caught.value)


# Finding ------------------------------------------------------------------------------------------------------------


def test_a_project_is_found_from_below() -> None:
    found = find_project(PROJECTS / "platform" / "program")
    assert (found.root, found.name) == (PROJECTS / "platform", "platform")


def test_main_decides_where_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "sibling.py").write_text("")
    program = "import os, sys, sibling, pulumi\npulumi.export('cwd', os.getcwd())\npulumi.export('path', sys.path[0])"
    project(tmp_path, "", extra="main: infra/\n")
    (tmp_path / "infra" / "__main__.py").write_text(program)
    exports = run(find_project(tmp_path), "dev").exports
    assert Path(exports["cwd"]) == Path(exports["path"]) == tmp_path / "infra"


def test_no_project(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"no Pulumi\.yaml in .* or above: name the project's directory with --cwd"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runtime: python\n", "name: required, but missing"),
        ("name: a\nruntime: go\n", "runtime: 'go'; only python programs can be planned"),
        ("name: a\nruntime: python\nmain: nowhere/\n", "main: 'nowhere/': .*nowhere does not exist"),
        ("name: 5\nruntime: python\n", "name: 5 is not text; write it in quotes"),
        ("name: a\nruntime: python\nmain: [a]\n", r"main: \['a'\] is not a path below the project"),
        ("name: a\nruntime: python\nconfig: [a]\n", r"config: \['a'\] is not a mapping of keys"),
        ("name: a\nruntime: python\nconfig: 5\n", "config: 5 is not a mapping of keys"),
        ("name: a\nruntime: python\nconfig: {5: a}\n", "config.5: not a key; write namespace and name, as a:name"),
        ("- a\n", "holds list where a mapping of keys is expected"),
    ],
)
def test_a_bad_project_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "Pulumi.yaml").write_text(text)
    with pytest.raises(PlanError, match=message):
        find_project(tmp_path)


def test_a_missing_stack_names_the_nearest(tmp_path: Path) -> None:
    root = project(tmp_path, "")
    with pytest.raises(PlanError, match=r"no stack 'dve': Pulumi.dve.yaml does not exist in .*; did you mean 'dev'\?"):
        run(find_project(root), "dve")


def test_a_directory_is_no_stack(tmp_path: Path) -> None:
    root = project(tmp_path, "")
    (root / "Pulumi.prod.yaml").mkdir()
    assert find_project(root).stacks() == ["dev"]
    with pytest.raises(
        PlanError, match=r"no stack 'prod': .*Pulumi.prod.yaml is a directory, where a stack has a file"
    ):
        run(find_project(root), "prod")


def test_a_fully_qualified_stack_is_its_last_part(tmp_path: Path) -> None:
    root = project(tmp_path, "import pulumi\npulumi.export('stack', pulumi.get_stack())")
    assert run(find_project(root), "acme/demo/dev").exports == {"stack": "dev"}


# Reading ------------------------------------------------------------------------------------------------------------


def test_scalars_read_as_the_cli_reads_them(tmp_path: Path) -> None:
    # tests/engine/test_yaml.py asks the CLI itself for these and for many more.
    file = tmp_path / "a.yaml"
    file.write_text(
        "a: on\nb: 22:30\nc: 2026-10-01\nd: true\ne: 12\nf: 1.5\ng: ~\nh: 1e3\ni: '12'\nj: 0x10\nk:\nl: 010\n"
    )
    content = read_yaml(file)
    assert content == {
        "a": "on", "b": "22:30", "c": "2026-10-01 00:00:00 +0000 UTC", "d": True, "e": 12, "f": 1.5, "g": None,
        "h": 1000, "i": "12", "j": 16, "k": None, "l": 8,
    }  # fmt: skip
    assert type(content["h"]) is int  # Go's JSON has no 1000.0


def test_merge_keys_are_no_duplicates(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("base: &base {x: 1, y: 2}\nmore:\n  <<: *base\n  y: 3\n")
    assert read_yaml(file)["more"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: 1\nb: {x: 1, x: 2}\n", "Pulumi.dev.yaml:2: b: key 'x' stands here twice; remove one"),
        (b"a: [1\nb: 2\n", r"Pulumi.dev.yaml:2: "),
        (b"\xff\xfe\x00", "Pulumi.dev.yaml: not a text file in UTF-8"),
        (b"a: &a [*a]\n", r"Pulumi.dev.yaml:1: a\[0\]: an alias .* contains itself"),
        (b"just text\n", "Pulumi.dev.yaml: holds str where a mapping of keys is expected"),
        (b"config: {demo:x: " + b"[" * 500 + b"]" * 500 + b"}", r"Pulumi.dev.yaml: .*nested hundreds of levels deep"),
        (b"a: " + b"[" * 5000 + b"]" * 5000, "Pulumi.dev.yaml:1: exceeded maximum nesting depth|levels deep"),
        (b"config: [1]\n", r"Pulumi.dev.yaml: config: \[1\] is not a mapping of keys"),
        (
            b"config: {5: x, a:b:c: y}\n",
            r"config.5: not a key; write namespace and name, as demo:name(.|\n)*config.a:b:c: not",
        ),
        (b"config: {region: x, demo:region: y}\n", "config.demo:region: stands here twice, also as demo:region"),
        (b"config: {demo:x: [.inf, !!set {}]}\n", r"Pulumi.dev.yaml:1: config.demo:x\[0\]: .inf: no finite number"),
        (b"config: {demo:x: {010: a}}\n", 'config.demo:x: 010: a key that is no text; write it in quotes: "010"'),
    ],
)
def test_a_bad_stack_file(tmp_path: Path, text: bytes, message: str) -> None:
    root = project(tmp_path, "")
    (root / "Pulumi.dev.yaml").write_bytes(text)
    with pytest.raises(PlanError, match=message):
        run(find_project(root), "dev")


def test_an_empty_stack_file_is_an_empty_configuration(tmp_path: Path) -> None:
    root = project(tmp_path, "import pulumi\npulumi.Config().require('region')")
    assert "Missing required configuration variable 'demo:region'" in outcome(root)


def test_secrets_stay_encrypted_and_are_marked(tmp_path: Path) -> None:
    stack = (
        "config:\n  demo:top: {secure: v1:abc}\n  demo:deep: {users: [{name: a, key: {secure: v1:def}}]}\n  demo:x: 1\n"
    )
    root = project(tmp_path, "", stack)
    found = find_project(root)
    config, secrets, _ = read_config(found, found.stack_file("dev"))
    assert config == {"demo:top": "[secret]", "demo:deep": {"users": [{"name": "a", "key": "[secret]"}]}, "demo:x": 1}
    assert secrets == ["demo:top", "demo:deep"]


def test_defaults_of_the_project_file_apply_below_the_stack(tmp_path: Path) -> None:
    extra = "config:\n  size: {type: integer, default: 3}\n  zone: {value: a}\n  aws:region: {value: us-east-1}\n"
    root = project(tmp_path, "", "config:\n  demo:zone: b\n", extra)
    found = find_project(root)
    config, _, _ = read_config(found, found.stack_file("dev"))
    assert config == {"demo:size": 3, "demo:zone": "b", "aws:region": "us-east-1"}


def test_values_of_esc_are_said_to_be_missing(tmp_path: Path) -> None:
    root = project(tmp_path, "", "environment: [shared]\n")
    assert "Pulumi ESC" in run(find_project(root), "dev").warnings[0]


# Running ------------------------------------------------------------------------------------------------------------


def test_nothing_of_a_run_stays_behind(capsys: pytest.CaptureFixture[str]) -> None:
    before = os.getcwd(), list(sys.path), list(sys.argv)
    first = run(find_project(PROJECTS / "network"), "dev")
    assert "helper" not in sys.modules
    assert (os.getcwd(), sys.path, sys.argv) == before
    assert len(run(find_project(PROJECTS / "network"), "dev").resources) == len(first.resources)
    run(find_project(PROJECTS / "platform"), "prod")
    captured = capsys.readouterr()
    assert "must not mix" in captured.err
    assert not captured.out


def test_every_problem_of_a_component_is_one_line(tmp_path: Path) -> None:
    program = (
        "from eks_llm.aws.network import Network\n"
        "Network('n', {'region': 'us-west-2', 'zones': ['a'], 'cidr': 'b', 'c': 1})"
    )
    lines = outcome(project(tmp_path, program)).splitlines()
    assert len(lines) == 3
    assert all(line.startswith('Network "n": ') for line in lines)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("x = 1\n{}['key']", "__main__.py:2: KeyError: 'key' (--debug shows the traceback)"),
        ("import nowhere", "__main__.py:1: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = (", "__main__.py:1: SyntaxError: '(' was never closed"),
        ("raise Exception", "__main__.py:1: Exception: no message"),
        ("import pulumi\nraise pulumi.RunError('no such zone')", "no such zone"),
        ("import pulumi\npulumi.log.error('first')\npulumi.log.error('second')", "first\nsecond"),
        ("import sys\nsys.exit('stop')", "the program ended itself: stop"),
        ("import pulumi_aws as aws\naws.ec2.Vpc('v').id.apply(lambda _: 1 / 0)", "__main__.py:2: ZeroDivisionError"),
    ],
)
def test_a_program_that_fails(tmp_path: Path, program: str, message: str) -> None:
    assert outcome(project(tmp_path, program)).startswith(message)


def test_debug_lets_the_error_through(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        run(find_project(project(tmp_path, "{}['key']")), "dev", debug=True)
