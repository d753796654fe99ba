"""What stands in for container images on this machine, which has none: by repository, what a container finds there."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from eks_llm.catalog.images import IMAGES

from .serving_env import ServingEnvironment

SHIMS = Path(__file__).with_name("shims")
BUCKETS = "/buckets"
"""Where the shims find the folders that stand in for S3 buckets."""


@dataclass(frozen=True)
class Stand:
    """What stands in for an image."""

    environment: dict[str, str] = field(default_factory=dict[str, str])
    """The image's own variables. The manifest's win over them."""
    folders: dict[str, str] = field(default_factory=dict[str, str])
    """Read-only folders or files by their path in the container."""


def repository(reference: str) -> str:
    """The reference without tag and digest."""
    name = reference.partition("@")[0]
    head, slash, tail = name.rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}"


def stands(serving: ServingEnvironment, buckets: Path) -> dict[str, Stand]:
    """For the images of the stacks' pods: the CPU serving environment, and shims that copy weights from buckets.

    `buckets`: a folder with a folder for each S3 bucket.
    """
    variables = serving.variables()
    server = Stand(
        environment={
            **variables,
            "PATH": f"{serving.tritonserver.parent}{os.pathsep}{variables['PATH']}",
        },
        folders={"/opt/tritonserver/backends": str(serving.backends)},
    )
    path = f"{SHIMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    buckets.mkdir(parents=True, exist_ok=True)
    # What EKS Pod Identity adds to a pod of this ServiceAccount.
    identity = {"AWS_REGION": "local", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials"}
    weights = Stand(environment={"PATH": path, **identity}, folders={BUCKETS: str(buckets)})
    by_role = {"triton": server, "openai": server, "weights": weights}
    return {IMAGES[role].repository: stand for role, stand in by_role.items()}


def save(file: Path, images: dict[str, Stand]) -> None:
    file.write_text(json.dumps({name: asdict(stand) for name, stand in images.items()}))


def load(file: Path) -> dict[str, Stand]:
    return {name: Stand(**stand) for name, stand in json.loads(file.read_text()).items()}
