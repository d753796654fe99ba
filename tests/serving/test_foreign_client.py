"""A client that nobody here wrote, NVIDIA's aiperf, against both runtimes; its report and the engine's counters agree.

It gets an environment of its own in .tools/, once (138 packages of PyPI, 1.2 GB, pinned in aiperf.txt). The tokenizer
is the tiny model's folder; with HF_HUB_OFFLINE set, aiperf 0.13.0 takes a folder for a repository's name and stops.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.serving.metrics import samples, wait_for
from tests.serving.openai_server import KEY, OpenAIServer
from tests.serving.server import ROOT, Server

PINS = Path(__file__).with_name("aiperf.txt")
REQUESTS, TOKENS = 24, 12
TEMPLATE = (
    '{"text_input": {{ text|tojson }}, "stream": true, '
    f'"sampling_parameters": "{{\\"max_tokens\\": {TOKENS}, \\"ignore_eos\\": true}}"}}'
)
"""Request of `vllm_model` over generate_stream."""


@pytest.fixture(scope="module")
def aiperf() -> Path:
    """The program, installed where it is missing or its pins have changed."""
    folder = ROOT / ".tools" / "aiperf"
    stamp, program = folder / "installed", folder / "bin" / "aiperf"
    if not stamp.exists() or stamp.read_text() != PINS.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--requirement", str(PINS)], check=True)
        stamp.write_text(PINS.read_text())
    return program


@dataclass(frozen=True)
class Counts:
    """Requests that ended well, and tokens that were generated."""

    requests: float
    tokens: float


def counted(scrape: str) -> Counts:
    names = ("vllm:request_success_total", "vllm:generation_tokens_total")
    return Counts(*(sum(value for _, value in samples(scrape, name)) for name in names))


def profile(aiperf: Path, folder: Path, model: Path, *arguments: str) -> dict[str, Any]:
    """Runs aiperf; returns its report."""
    fixed = [
        *("profile", "--streaming", "--tokenizer", str(model), "--isl", "32", "--concurrency", "8"),
        *("--request-count", str(REQUESTS), "--ui", "none", "--workers-max", "1"),
        *("--no-server-metrics", "--no-gpu-telemetry", "--output-artifact-dir", str(folder / "report")),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        [str(aiperf), *fixed, *arguments],
        env={**environment, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return json.loads((folder / "report" / "profile_export_aiperf.json").read_text())


def check(report: dict[str, Any], before: Counts, after: Counts) -> None:
    assert report["is_complete"]
    assert report["error_summary"] == []
    assert report["completed_request_count"]["avg"] == REQUESTS
    assert (after.requests - before.requests, after.tokens - before.tokens) == (REQUESTS, REQUESTS * TOKENS)


def test_aiperf_against_vllm_serve(aiperf: Path, openai: OpenAIServer, model: Path, tmp_path: Path) -> None:
    before = counted(openai.get("/metrics")[1])
    report = profile(
        *(aiperf, tmp_path, model, "--model", "tiny", "--url", f"http://127.0.0.1:{openai.port}", "--api-key", KEY),
        *("--endpoint-type", "completions", "--osl", str(TOKENS), "--extra-inputs", "ignore_eos:true"),
    )
    check(report, before, counted(openai.get("/metrics")[1]))
    assert report["total_usage_completion_tokens"]["avg"] == REQUESTS * TOKENS


def test_aiperf_against_triton(aiperf: Path, server: Server, model: Path, tmp_path: Path) -> None:
    before = counted(server.scrape())
    extra = {"payload_template": TEMPLATE, "response_field": "text_output"}
    report = profile(
        *(aiperf, tmp_path, model, "--model", "vllm_model", "--url", f"http://127.0.0.1:{server.http}"),
        *("--endpoint-type", "template", "--custom-endpoint", "/v2/models/vllm_model/generate_stream"),
        *("--extra-inputs", json.dumps(extra)),
    )
    wait_for(lambda: counted(server.scrape()).requests - before.requests >= REQUESTS)
    check(report, before, counted(server.scrape()))
    assert report["time_to_first_token"]["count"] == REQUESTS, "it streams"
