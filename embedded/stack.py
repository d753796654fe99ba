"""What a stack file says that the machine has to provide: nodes, and weights in folders in place of S3 buckets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eks_llm.plan import program
from eks_llm.plan.program import PlanError

from .api import Manifest
from .nodes import gpu_node
from .process import PlatformError

ROOT = Path(__file__).parents[1]
ZONE = "local"


@dataclass(frozen=True)
class Stack:
    """A stack of this repository."""

    project: program.Project
    name: str
    platform: dict[str, Any]
    """`<project>:platform` of its file, as it stands there."""

    @classmethod
    def find(cls, name: str) -> "Stack":
        """Reads its file, and no more. Raises `PlatformError`."""
        try:
            project = program.find_project(ROOT)
            config, _, _ = program.read_config(project, project.stack_file(name))
        except PlanError as error:
            raise PlatformError(str(error)) from None
        platform = config.get(f"{project.name}:platform")
        return cls(project, name, platform if isinstance(platform, dict) else {})

    @property
    def file(self) -> Path:
        return self.project.stack_file(self.name)

    @property
    def is_local(self) -> bool:
        """It names the kubeconfig of this machine's platform; others are for `pulumi up`."""
        existing = self.platform.get("existingCluster")
        given = existing.get("kubeconfig") if isinstance(existing, dict) else None
        return isinstance(given, str) and (ROOT / given) == ROOT / ".local" / "platform" / "kubeconfig"

    def check(self) -> None:
        """Runs the program as `./dev plan` does. Raises `PlatformError` with all that is wrong with the file."""
        try:
            program.run(self.project, self.name)
        except PlanError as error:
            raise PlatformError("\n".join([f"{self.file.name} cannot run:", *error.problems])) from None
        for name, service in self.services.items():
            if "apiKeySecret" in service:
                raise PlatformError(
                    f"{self.file.name}: services.{name}.apiKeySecret: no secrets are kept for a stack on this machine; "
                    "remove it, the service is reached from here only"
                )

    def nodes(self) -> list[Manifest]:
        """The nodes of its pools, for the pod runner. For a stack that `check` has passed."""
        return [
            gpu_node(pool, given["instanceType"], ZONE, index, fake=False)
            for pool, given in self.platform["gpuPools"].items()
            for index in range(given["nodes"])
        ]

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """Its services, as they stand in the file."""
        return self.platform.get("services") or {}

    @property
    def namespace(self) -> str:
        """Where its services run."""
        return self.platform["existingCluster"].get("namespace", "inference")
