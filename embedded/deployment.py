"""A stack at the real Pulumi engine and the real Kubernetes provider, deployed to the platform.

    python -m embedded.deployment HOME STACK     # started by `Deployment`

The engine's state, its settings and a copy of the stack file are in the platform's folder and go with it. The user's
own Pulumi login, state, AWS credentials and kubeconfigs are not read: the process has an environment of its own.
"""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pulumi import automation

from .controlplane import ControlPlane
from .platform import DEPLOYMENT, Platform, Progress
from .process import PlatformError, Process, interrupt, stop, uninterrupted
from .prometheus import Prometheus
from .stack import ROOT, Stack
from .tools import provide

PROGRAMS = ("pulumi", "pulumi-resource-kubernetes")
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Deployment:
    """The stack of a platform that is up. For callers that hold the platform's lock."""

    platform: Platform
    stack: Stack

    def up(self, progress: Progress) -> dict[str, int]:
        """Runs `pulumi up`, until everything is ready. Returns the number of resources by what happened to them.

        Raises `PlatformError` with what Pulumi says is wrong. What was deployed stays.
        """
        home = self.platform.home
        result = home / "deployment.json"
        result.unlink(missing_ok=True)
        process = self._process()
        process.log.unlink(missing_ok=True)
        _follow(process.log, process.launch(), progress)
        stop(home, [DEPLOYMENT])
        if not result.exists():
            raise PlatformError(
                f"the stack is not deployed; what there is stays up. `./dev status` shows it, {process.log} has more; "
                "`./dev up` tries again, `./dev down` ends it"
            )
        return json.loads(result.read_text())

    def interrupt(self) -> None:
        """Ends it in good order: Pulumi writes down how far it came, so that the next `up` can go on from there."""
        with uninterrupted():
            interrupt(self.platform.home, DEPLOYMENT)
            stop(self.platform.home, [DEPLOYMENT])

    def _process(self) -> Process:
        home = self.platform.home
        state = home / "pulumi"
        (state / "backend").mkdir(parents=True, exist_ok=True)
        folders = [str(provide(name).parent) for name in PROGRAMS]
        environment = {
            "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'components'}",
            "HOME": str(state),  # neither ~/.kube nor ~/.aws nor ~/.pulumi
            "PULUMI_HOME": str(state),
            "PULUMI_BACKEND_URL": (state / "backend").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "local",  # of a state that holds nothing but this machine's own secrets
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        command = [sys.executable, "-m", "embedded.deployment", str(home), self.stack.name]
        return Process(DEPLOYMENT, command, home, lambda: True, environment)


def _follow(log: Path, running: subprocess.Popen[bytes], progress: Progress) -> None:
    """Passes on the lines of a process's log until it ends."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        while True:
            over = running.poll() is not None
            for line in lines:
                progress(line.rstrip("\n"))
            if over:
                return
            time.sleep(POLL_SECONDS)


# The process --------------------------------------------------------------------------------------------------------


def project_copy(stack: Stack, plane: ControlPlane) -> Path:
    """A folder with the project's and the stack's file, as the CLI writes into them; with this platform's addresses."""
    folder = plane.home / "pulumi" / "project"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(stack.project.root / "Pulumi.yaml", folder)
    with suppress(FileExistsError):  # the program's folder; the engine looks whether it is there
        (folder / stack.project.main).symlink_to(stack.project.program)
    target = folder / stack.file.name
    content = yaml.safe_load(stack.file.read_text())
    existing = content["config"][f"{stack.project.name}:platform"]["existingCluster"]
    existing |= {"kubeconfig": str(plane.kubeconfig), "prometheusUrl": Prometheus(plane).url}
    with suppress(FileNotFoundError):  # secrets of the state are encrypted with this
        content["encryptionsalt"] = yaml.safe_load(target.read_text())["encryptionsalt"]
    target.write_text(yaml.safe_dump(content))
    return folder


def reference_program() -> None:
    """The reference program, run as Pulumi's Python language host runs it, which ships with Pulumi's installer only."""
    infra = ROOT / "infra"
    os.chdir(infra)
    sys.path.insert(0, str(infra))
    runpy.run_path(str(infra / "__main__.py"), run_name="__main__")


class Narrator:
    """Says what the engine does, a line for each thing that changes."""

    def __init__(self) -> None:
        self.failed = False
        self._said = ""

    def hear(self, event: automation.EngineEvent) -> None:
        if diagnostic := event.diagnostic_event:
            self._diagnostic(diagnostic.severity, diagnostic.message)
        elif done := event.res_outputs_event:
            step = done.metadata
            if step.op.value not in ("same", "read") and not step.type.startswith("pulumi:"):
                self._say(f"  {step.op.value:8} {step.type.rpartition(':')[2]} {step.urn.rpartition('::')[2]}")

    def _diagnostic(self, severity: str, message: str) -> None:
        """Errors, and what a resource waits for; warnings are what `./dev plan` says too."""
        text = " ".join(message.split())
        if severity == "error":
            self.failed = True
            self._say(f"  error: {text}")
        elif severity.startswith("info") and text and text != self._said:
            self._say(f"  {text}")

    def _say(self, line: str) -> None:
        self._said = line.strip()
        print(line, flush=True)


def main(home: Path, name: str) -> int:
    plane, stack = ControlPlane.load(home), Stack.find(name)
    # Of an update that Ctrl-C ended. The platform's lock keeps any other away.
    shutil.rmtree(home / "pulumi" / "backend" / ".pulumi" / "locks", ignore_errors=True)
    options = automation.LocalWorkspaceOptions(
        work_dir=str(project_copy(stack, plane)), secrets_provider="passphrase", pulumi_home=os.environ["PULUMI_HOME"]
    )
    narrator = Narrator()
    try:
        at_engine = automation.create_or_select_stack(
            name, project_name=stack.project.name, program=reference_program, opts=options
        )
        result = at_engine.up(on_event=narrator.hear, suppress_outputs=True, suppress_progress=True)
    except automation.CommandError as error:
        if not narrator.failed:
            print(error)
        return 1
    changes: dict[Any, int] = dict(result.summary.resource_changes or {})
    (home / "deployment.json").write_text(json.dumps({str(getattr(op, "value", op)): n for op, n in changes.items()}))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)  # it is for the engine, whose end is then reported
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
