"""A headless Chromium for what looks at pages: the machine's own, else Debian's package, installed where root may."""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_SECONDS = 600


class BrowserError(RuntimeError):
    """There is no browser and none can be installed; the message says what to do."""


def chromium() -> str:
    """Path of a Chromium or Chrome. Raises `BrowserError`."""
    if found := _on_path():
        return found
    advice = f"no browser for pages: put one of {', '.join(NAMES)} on PATH (Debian: apt install chromium)"
    if os.geteuid() or not shutil.which("apt-get"):
        raise BrowserError(advice)
    print("chromium: installing Debian's package (once)", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        run = subprocess.run(
            ["apt-get", *command],
            capture_output=True,
            text=True,
            env=environment,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if run.returncode:
            raise BrowserError(f"{advice}; apt-get {command[0]} failed:\n{(run.stdout + run.stderr)[-1500:]}")
    if found := _on_path():
        return found
    raise BrowserError(f"{advice}; Debian's package brought none")


def _on_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)
