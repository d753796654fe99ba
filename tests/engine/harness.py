"""Runs a Pulumi program with the real engine: pulumi CLI, file backend in a temporary folder, stand-in providers."""

import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi import automation as auto

from tests.engine.standins import Running

ROOT = Path(__file__).parents[2]
STACKS = sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml"))
SECRETS = {"grafanaAdminPassword": "grafana-secret-0451", "inferenceApiKey": "inference-secret-0451"}
"""Test values of the secrets that a stack file names and does not hold."""
EXISTING_CLUSTER = Path(".local", "platform", "kubeconfig")
"""Where the stack `local` expects its cluster."""
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "existing",
    "contexts": [{"name": "existing", "context": {"cluster": "there", "user": "admin"}}],
    "clusters": [{"name": "there", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "admin", "user": {"token": "kubeconfig-secret-0451"}}],
}
"""In its place; the stand-in for the Kubernetes provider asks nobody."""

Program = Callable[[], Any]


def reference(root: Path) -> Program:
    """The reference program below `root`, run as the Python language host does: from infra/, alone on the path."""

    def program() -> None:
        with _working_in(root / "infra"):
            runpy.run_path(str(root / "infra" / "__main__.py"), run_name="__main__")

    return program


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before, modules = Path.cwd(), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        for name in set(sys.modules) - modules:
            if Path(getattr(sys.modules[name], "__file__", None) or "").parent == folder:
                del sys.modules[name]  # another root has a `settings` of its own


def quiet_environment(home: Path) -> dict[str, str]:
    """Keeps the CLI off the network, out of the user's own settings, and without notices."""
    return {
        "PULUMI_HOME": str(home / "home"),
        "PULUMI_BACKEND_URL": f"file://{home / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "engine tests",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_AUTOMATION_API_SKIP_VERSION_CHECK": "true",
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
        "PULUMI_SKIP_CONFIRMATIONS": "true",
        "NO_COLOR": "1",
    }


def project_copy(folder: Path) -> Path:
    """A folder with the real project and stack files. The CLI writes into stack files, so it gets a copy of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in ROOT.glob("Pulumi*.yaml"):
        (folder / file.name).write_text(file.read_text())
    for name in ("infra", "components", "model_repository", "requirements.txt"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)  # where Pulumi.yaml says that the packages are
    (folder / EXISTING_CLUSTER).parent.mkdir(parents=True)
    (folder / EXISTING_CLUSTER).write_text(json.dumps(KUBECONFIG))
    return folder


@dataclass(frozen=True)
class Steps:
    """What an operation does to each resource: URN → `create`, `same`, `update`, `replace`, `delete`."""

    by_urn: dict[str, str]
    warnings: tuple[str, ...] = ()

    def of(self, *operations: str) -> set[str]:
        return {short(urn) for urn, operation in self.by_urn.items() if operation in operations}

    @property
    def changes(self) -> dict[str, str]:
        return {short(urn): operation for urn, operation in self.by_urn.items() if operation != "same"}


class Stack:
    """One stack of a program at the real engine."""

    def __init__(self, name: str, program: Program, home: Path, standins: Running, folder: Path | None = None) -> None:
        (home / "state").mkdir(parents=True, exist_ok=True)
        self.home = home
        self.name = name
        self.journal = standins.journal
        environment = quiet_environment(home) | standins.environment
        settings = auto.LocalWorkspaceOptions(env_vars=environment, secrets_provider="passphrase")
        if folder:
            settings.work_dir = str(folder)
        self.stack = auto.create_or_select_stack(name, project_name="eks-llm", program=program, opts=settings)

    def configure(self, values: dict[str, str], secret: bool = False) -> None:
        self.stack.set_all_config({key: auto.ConfigValue(value, secret=secret) for key, value in values.items()})

    def run(self, program: Program) -> None:
        """Uses another program from now on, as a new commit would."""
        self.stack.workspace.program = program

    def preview(self) -> Steps:
        return self._steps(self.stack.preview)

    def up(self) -> Steps:
        return self._steps(self.stack.up)

    def destroy(self) -> Steps:
        return self._steps(self.stack.destroy)

    def resources(self) -> dict[str, dict[str, Any]]:
        """The resources of the state by URN, as the engine holds them, with secrets in plain text."""
        deployment = self.stack.export_stack().deployment or {}
        return {item["urn"]: _revealed(item) for item in deployment.get("resources", [])}

    def unprotect(self) -> None:
        """As `pulumi state unprotect --all`."""
        state = self.stack.export_stack()
        for item in (state.deployment or {})["resources"]:
            item.pop("protect", None)
        self.stack.import_stack(state)

    def checkpoint(self) -> str:
        """The state file as it lies in the backend."""
        return (self.home / "state" / ".pulumi" / "stacks" / "eks-llm" / f"{self.name}.json").read_text()

    def _steps(self, operation: Callable[..., Any]) -> Steps:
        events: list[auto.EngineEvent] = []
        operation(on_event=events.append, suppress_progress=True)
        steps = {event.resource_pre_event.metadata for event in events if event.resource_pre_event}
        return Steps(
            {step.urn: step.op.value for step in steps if "create-replacement" not in step.op.value},
            tuple(
                event.diagnostic_event.message
                for event in events
                if event.diagnostic_event and event.diagnostic_event.severity == "warning"
            ),
        )


def reference_stack(name: str, home: Path, standins: Running) -> Stack:
    """A stack of the reference program with its real files, and test values for its secrets."""
    folder = project_copy(home / "project")
    stack = Stack(name, reference(folder), home, standins, folder)
    stack.configure(SECRETS, secret=True)
    return stack


def _revealed(value: Any) -> Any:
    """A value of an exported state without the envelopes of its secrets."""
    if isinstance(value, dict):
        return json.loads(value["plaintext"]) if "plaintext" in value else {k: _revealed(v) for k, v in value.items()}
    return [_revealed(item) for item in value] if isinstance(value, list) else value


def short(urn: str) -> str:
    """A URN without stack and project, `type chain::name`: what identifies a resource within its stack."""
    return "::".join(urn.split("::")[2:])
