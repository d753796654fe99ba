"""The serving environment is installed beside other work."""

import subprocess
import threading
import time

import pytest

from embedded import serving_env
from embedded.serving_env import InstallError, in_background


def test_its_result_is_there_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_env, "ensure", lambda progress: progress("pip") or "environment")
    said: list[str] = []
    with in_background(said.append) as made:
        assert made.result(timeout=60) == "environment"
    assert said == ["pip"]


def test_its_error_is_raised_where_the_result_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(_: object) -> None:
        raise InstallError("no Python 3.12")

    monkeypatch.setattr(serving_env, "ensure", ensure)
    with in_background(print) as made, pytest.raises(InstallError, match="no Python"):
        made.result(timeout=60)


def test_what_interrupts_the_other_work_ends_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_env, "ensure", lambda progress: serving_env._step(["sleep", "600"], progress))
    before = set(threading.enumerate())
    end = time.monotonic() + 60
    steps: list[subprocess.Popen[str]] = []

    def interrupted() -> None:
        with in_background(print):
            while not serving_env._steps:
                assert time.monotonic() < end
                time.sleep(0.01)
            steps.extend(serving_env._steps)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (step,) = steps
    assert step.wait(timeout=60) == -9
    while not set(threading.enumerate()) <= before:
        assert time.monotonic() < end
        time.sleep(0.01)
