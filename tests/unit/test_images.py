"""images/: nothing builds them here, so what can be said without a build is checked: files, pins, user, ports."""

import re
import shlex
from pathlib import Path

import pytest

from eks_llm.catalog.images import IMAGES
from eks_llm.serving import triton
from eks_llm.serving.workload import HTTP_PORT

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = sorted((ROOT / "images").glob("*Dockerfile"))
INSTRUCTIONS = {"ARG", "FROM", "LABEL", "COPY", "RUN", "USER", "ENV", "EXPOSE", "CMD"}
KEPT = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
"""What of the repository the build sees; all else is hidden."""
each = pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)


def instructions(file: Path) -> list[tuple[str, str]]:
    """(instruction, its text) with continued lines joined; comments may stand between them."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, text) for name, text in pairs]


def texts(file: Path, instruction: str) -> list[str]:
    return [text for name, text in instructions(file) if name == instruction]


def base(file: Path) -> str:
    (argument,) = [text for text in texts(file, "ARG") if text.startswith("BASE=")]
    return argument.removeprefix("BASE=")


def test_both_images_are_there() -> None:
    assert [file.name for file in DOCKERFILES] == ["own-vllm.Dockerfile", "triton.Dockerfile"]


@each
def test_every_line_is_an_instruction_in_an_order_that_docker_takes(file: Path) -> None:
    names = [name for name, _ in instructions(file)]
    assert set(names) <= INSTRUCTIONS, "a broken continuation makes a shell word an instruction"
    assert names[:2] == ["ARG", "FROM"], "only ARG may come before FROM"
    assert texts(file, "FROM") == ["${BASE}"]
    for text in texts(file, "RUN") + texts(file, "COPY"):
        shlex.split(text)  # raises on an open quote


@each
def test_every_file_that_is_copied_exists(file: Path) -> None:
    for text in texts(file, "COPY"):
        *sources, _ = [word for word in shlex.split(text) if not word.startswith("--")]
        assert sources
        for source in sources:
            assert (ROOT / source).exists(), f"COPY {text}: there is no {source}"
            assert any(source == kept or source.startswith(f"{kept}/") for kept in KEPT), (
                f".dockerignore hides {source}"
            )


@each
def test_the_self_test_is_where_the_script_looks(file: Path) -> None:
    targets = {words[-2]: words[-1] for words in map(shlex.split, texts(file, "COPY"))}
    assert targets["images/self-test"] == "/usr/local/bin/self-test"
    (program,) = re.findall(r"python3 (\S+)", (ROOT / "images" / "self-test").read_text())
    assert program == f"{targets['model_repository/llm']}/1/self_test.py"
    assert (ROOT / "model_repository" / "llm" / "1" / "self_test.py").is_file()


@each
def test_nobody_is_root_and_pods_run_as_the_same_user(file: Path) -> None:
    image = IMAGES["triton"]
    assert texts(file, "USER") == [f"{image.user}:{image.group}"]
    assert image.user != 0


@each
def test_every_port_of_the_pod_is_named(file: Path) -> None:
    (ports,) = texts(file, "EXPOSE")
    assert set(map(int, ports.split())) == {
        HTTP_PORT,
        triton.GRPC_PORT,
        triton.METRICS_PORT,
        triton.ENGINE_METRICS_PORT,
    }


def test_the_versions_are_the_catalogues() -> None:
    image = IMAGES["triton"]
    with_vllm, plain = base(ROOT / "images" / "triton.Dockerfile"), base(ROOT / "images" / "own-vllm.Dockerfile")
    assert with_vllm == f"{image.repository}:{image.tag}"
    release = image.tag.split("-")[0]
    assert plain == f"{image.repository}:{release}-py3"  # NVIDIA's name of the image without an inference engine
    pins = (ROOT / "model_repository" / "requirements.txt").read_text()
    assert re.findall(r"^vllm==(.+)$", pins, re.MULTILINE) == [image.vllm]


def test_the_comment_names_the_versions_of_the_catalogue() -> None:
    image = IMAGES["triton"]
    text = " ".join((ROOT / "images" / "triton.Dockerfile").read_text().replace("#", " ").split())
    assert (
        f"({image.tag.split('-')[0]}: vLLM {image.vllm}, CUDA {image.cuda}, driver {image.min_driver} or newer" in text
    )
