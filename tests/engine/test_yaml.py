"""The plan's reader of stack files against the CLI's: the same values, or a refusal of the plan."""

import itertools
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eks_llm.core.strict_yaml import YamlError, read
from eks_llm.plan.program import PlanError, find_project, read_config
from tests.engine.harness import quiet_environment

# Scalars ------------------------------------------------------------------------------------------------------------

TIMES = [
    "2026-10-01", "2026-1-2", "2026-12-14T11:30:00Z", "2026-12-14t11:30:00Z", "2026-12-14 11:30:00",
    "2026-12-14 11:30:00Z", "2026-12-14T11:30:00", "2026-12-14T11:30:00.5Z", "2026-12-14T11:30:00.123456789012Z",
    "2026-12-14T11:30:00+05:45", "2026-12-14T11:30:00-11:00", "2026-12-14T11:30:00+00:00", "2026-02-30", "2024-02-29",
    "2026-13-01", "2026-12-14T24:00:00Z", "2026-12-14T23:59:60Z", "2026-12-14 1:2:3", "2026-12-14 1:2:3.", "20261214",
    "2026-12-14 11:30:00.10", "2026-12-14 11:30:00,5", "12-14-2026", "2026-12-14T11:30Z", "22:30", "1:30:00",
    "2001-12-14 21:59:43.10 -5", "0000-01-01", "9999-12-31", "2026-12-14T11:30:00+25:00", "2026-12-14T11:30:00z",
]  # fmt: skip
NUMBERS = [
    "0", "-0", "+0", "00", "010", "-010", "08", "0o10", "0O10", "-0o10", "0o8", "0b1", "0B1", "-0b1", "0b2", "0x1F",
    "0X1f", "-0x1f", "0x", "0xg", "1_000", "1__0", "_1", "1_", "-_1", "1_000.5", "0x_f", "1.0", "-1.0", "1.", ".5",
    "-.5", "+.5", ".", "-", "+", "..5", "1e3", "1E3", "1e+3", "1e-3", "1e", "e3", ".5e3", "1.5e300", "1e400", "-1e400",
    "1e-400", ".inf", "-.inf", "+.inf", ".Inf", ".nan", ".NaN", "inf", "nan", "Infinity", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
    "18446744073709551616", "9007199254740993", "9007199254740993.0", "1e20", "1e21", "1e22", "123456789.123456789",
    "0.1", "1e-6", "1e-7", "0.30000000000000004", "0777777777777777777777777", "0xffffffffffffffffff", "0b-1", "0o+7",
    "-0b-1", "-0.0", "+1", "1,000", "1 000", "0x1p3", "1e5.5", "1.2.3", "190:20:30", "5f", "1e3_0", "00.5", "-00", "٣",
]  # fmt: skip
WORDS = [
    "~", "null", "Null", "NULL", "nULL", "true", "True", "TRUE", "tRUE", "yes", "no", "on", "off", "y", "n", "<<", "=",
    "-a", "a: b", "a #b", "a#b", "'010'", '"1e3"', "'2026-10-01'", "''", '"\\x41"', '"\\u00e9"', "é", "😀", "!!str 12",
    "!!int 12", "!!float 1", "!!binary aGk=", "!!set {a}", "!!null a", "!!bool yes", "!local x", "! 12", "[]", "{}",
    "!!timestamp 2026-10-01", "!!int '12'", "[1, 1.0, 010, ~]", "{a: 1.0}", "|-\n      12", ">-\n      1\n      2", "%",
    "@a", "`a", "a\tb", "\ta", "a\t", "*missing", "[a, b,]", "{a, b}", "{a: , b}", "? a", "- a", "'a''b'",
    "{secure: 5}",
    "{secure: x, other: y}", "{<<: {a: 1}, b: 2}", "{<<: [{a: 1}, {a: 2}]}", "{<<: 5}", "{<<: ~}", "{<<: [5]}",
    "{a: 1, a: 2}", "{1: a, '1': b}", "{1: a, 0x1: b}", "{~: a}", "{10: a}", "{1.5: a}", "{true: a}", "{010: a}",
    "{2026-10-01: a}", "{.inf: a}", "{1e3: a}", "{[a]: b}", "{{a: b}: c}", "{a: {secure: 5}}", "{'<<': 1}", "{'~': 1}",
    "&x [*x]", "{a: &y {b: 1}, c: *y}", "{a: &z [1], <<: *z}", "{a: &w {b: 1}, <<: *w, b: 2}", "[&v a, *v]",
    "{a: &u {b: 1, <<: {c: 3}}, <<: [*u, {b: 5, d: 6}]}", "{<<: {a: 1}, <<: {b: 1}}", "{*q : a}", "[a: b]", "[? a : b]",
]  # fmt: skip


def generated(count: int = 1500) -> list[str]:
    """Words of the letters that numbers, times and other scalars are made of, the same ones each time."""
    random_ = random.Random(16)
    found: set[str] = set()
    for letters in itertools.cycle(
        ("0123456789", "01_.eE+-", "0xXob_17fF-+", "0123456789-:TZ. +", "tTrRuUeE~nNlL.iIfF")
    ):
        if len(found) >= count:
            return sorted(found)
        text = "".join(random_.choice(letters) for _ in range(random_.randint(1, 12))).strip()
        if text and text not in ("-", "---", "...", "--- ", "?") and ": " not in text and not text.startswith("- "):
            found.add(text)
    raise AssertionError


# Both readers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, pulumi_cli: Path) -> Path:
    """A project with a stack; `pulumi_cli` is on PATH."""
    root = tmp_path_factory.mktemp("yaml")
    (root / "state").mkdir()
    (root / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (root / "__main__.py").write_text("")
    subprocess.run(["pulumi", "stack", "init", "s"], cwd=root, env=environment(root), check=True, capture_output=True)
    return root


def environment(root: Path) -> dict[str, str]:
    # The CLI names an offset after the machine's zone if that has the same; in UTC no other has.
    return {**os.environ, **quiet_environment(root), "TZ": "UTC"}


def cli(folder: Path, text: str | bytes) -> dict[str, Any] | None:
    """What the CLI would hand to the program, by key; None: it refuses the file."""
    (folder / "Pulumi.s.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    command = ["pulumi", "config", "--json", "--show-secrets"]
    run = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120, check=False
    )
    return (
        {key: as_given(item.get("value", "")) for key, item in json.loads(run.stdout).items()}
        if not run.returncode
        else None
    )


def as_given(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def ours(folder: Path, text: str | bytes) -> dict[str, Any] | None:
    (folder / "Pulumi.s.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        config, _, _ = read_config(find_project(folder), folder / "Pulumi.s.yaml")
    except PlanError:
        return None
    return {key: as_given(value) if isinstance(value, str) else value for key, value in config.items()}


def readable(value: str) -> bool:
    try:
        read(f"config:\n  p:k:\n    v: {value}\n")
    except YamlError:
        return False
    return True


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal type: JSON tells true from 1, and 1 from 1.0 only by how it is written."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def stack_file(texts: list[str]) -> str:
    return "config:\n" + "".join(f"  p:k{at}:\n    v: {text}\n" for at, text in enumerate(texts))


def refused_by_the_cli(folder: Path, texts: list[str]) -> list[str]:
    """Which of `texts` the CLI cannot read; it refuses a file as a whole."""
    if cli(folder, stack_file(texts)) is not None:
        return []
    half = len(texts) // 2
    return texts if not half else refused_by_the_cli(folder, texts[:half]) + refused_by_the_cli(folder, texts[half:])


NUMBERS_OF_NO_USE = {text for text in NUMBERS if "inf" in text.lower() or "nan" in text.lower()} - {"inf", "nan"}


def test_values_are_those_that_the_cli_gives(folder: Path) -> None:
    texts = [text for text in dict.fromkeys([*TIMES, *NUMBERS, *WORDS, *generated()]) if readable(text)]
    assert not refused_by_the_cli(folder, texts)
    file = stack_file(texts)
    left, right = cli(folder, file), ours(folder, file)
    assert left is not None
    assert right is not None
    assert len(left) == len(right) == len(texts) > 1500
    pairs = {text: (left[f"p:k{at}"], right[f"p:k{at}"]) for at, text in enumerate(texts)}
    assert not {text: pair for text, pair in pairs.items() if not same(*pair)}


def test_no_number_time_or_word_of_the_cli_is_refused(folder: Path) -> None:
    """What is refused has a tag, or is a key that changes and is told what to write; nothing that a user may mean."""
    refused = [text for text in [*TIMES, *NUMBERS, *WORDS] if not readable(text)]
    wrongly = {text for text in refused if cli(folder, stack_file([text])) is not None}
    assert wrongly == {
        "!!int 12", "!!float 1", "!!binary aGk=", "!local x", "!!timestamp 2026-10-01", "!!int '12'",
        "{1: a, 0x1: b}", "{~: a}", "{010: a}", "{2026-10-01: a}", "{.inf: a}", "{1e3: a}",
    }  # fmt: skip


# Whole files --------------------------------------------------------------------------------------------------------

TOP = ["1.0", "010", "1e3", "true", "~", "", "2026-10-01", "a", "'1'", "[1.0]", "1e400", "{secure: 5}", "1_000", "{}"]
FILES = {
    "BOM": b"\xef\xbb\xbfconfig:\n  p:a: 1\n",
    "BOM inside": "config:\n  p:a: \ufeff1\n".encode(),
    "CRLF": b"config:\r\n  p:a: 1\r\n",
    "CR": b"config:\r  p:a: 1\r",
    "tab as indent": b"config:\n\tp:a: 1\n",
    "tab after a colon": b"config:\n  p:a:\t1\n",
    "tab before a comment": b"config:\n  p:a: 1\t# b\n",
    "tab in a blank line": b"config:\n\t\n  p:a: 1\n",
    "tabs in flow": b"config:\n  p:a: {b:\t1,\t\n\tc: 2}\n",
    "two documents": b"config:\n  p:a: 1\n---\nconfig:\n  p:a: 2\n",
    "document marks": b"---\nconfig:\n  p:a: 1\n...\n",
    "directive": b"%YAML 1.1\n---\nconfig:\n  p:a: yes\n",
    "directive 1.2": b"%YAML 1.2\n---\nconfig:\n  p:a: yes\n",
    "empty": b"",
    "comment only": b"# a\n",
    "config null": b"config:\n",
    "config empty": b"config: {}\n",
    "no namespace": b"config:\n  a: 1\n",
    "old namespace": b"config:\n  p:config:a: 1\n",
    "four parts": b"config:\n  p:config:a:b: 1\n",
    "same key twice by form": b"config:\n  a: 1\n  p:a: 2\n",
    "same key twice": b"config:\n  p:a: 1\n  p:a: 2\n",
    "number as key": b"config:\n  5: 1\n",
    "number as section": b"5: 1\nconfig:\n  p:a: 1\n",
    "list": b"- a\n",
    "scalar": b"hello\n",
    "config a list": b"config: [a]\n",
    "merge of sections": b"base: &b {p:a: 1}\nconfig:\n  <<: *b\n  p:c: 2\n",
    "alias of an object": b"config:\n  p:a: &x {b: 1.0}\n  p:c: *x\n",
    "anchor twice": b"config:\n  p:a: &x 1\n  p:b: &x 2\n  p:c: *x\n",
    "folded": b"config:\n  p:a: >\n    one\n    two\n\n    three\n  p:b: |+\n    x\n\n",
    "long key": b"config:\n  ? p:a\n  : 1\n",
    "Latin-1": "config:\n  p:a: \u00e9\n".encode("latin-1"),
    "UTF-16": "config:\n  p:a: 1\n".encode("utf-16"),
    "NEL": "config:\n  p:a: x\u0085  p:b: y\n".encode(),
    "line separator": "config:\n  p:a: x\u2028y\n".encode(),
    "control character": b"config:\n  p:a: x\x07y\n",
    "list at the key's column": b"config:\n  p:a:\n  - 1\n  - b: 1.0\n    c: 010\n",
    "text over two lines": b"config:\n  p:a: one\n    two\n  p:b: 'x\n\n    y'\n",
    "aliases that explode": b"config:\n  p:a: &a [1,1,1,1,1,1,1,1,1,1]\n"
    + b"".join(
        f"  p:{right}: &{right} [{','.join(['*' + left] * 10)}]\n".encode()
        for left, right in itertools.pairwise("abcdef")
    ),
    **{f"top: {text}": f"config:\n  p:k: {text}\n".encode() for text in TOP},
}
TOLD = {"two documents", "UTF-16", "same key twice by form", "anchor twice"}
"""Files that the CLI reads and the plan refuses: it says what to change."""


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_as_the_cli_reads_them(folder: Path, name: str) -> None:
    left, right = cli(folder, FILES[name]), ours(folder, FILES[name])
    if right is None:
        assert left is None or name in TOLD
    else:
        assert left is not None
        assert same(left, right)
