"""Container images by role: `IMAGES`, and whether a node's driver can run one."""

from ._load import Fact, load


class Image(Fact):
    """An image, and what a node and an engine must know about it."""

    repository: str
    tag: str
    digest: str | None
    """`sha256:…` of the image index; None: no public source at hand states it (see `note`)."""
    vllm: str | None = None
    """Version of vLLM inside; None: the image holds none."""
    cuda: str | None = None
    """Version of the CUDA toolkit inside."""
    min_driver: str | None = None
    """Oldest NVIDIA driver that runs this CUDA major version (minor-version compatibility)."""
    listed_driver: str | None = None
    """The driver that the image's release notes name."""
    user: int
    """Numeric user that the container runs as."""
    group: int
    note: str = ""

    @property
    def reference(self) -> str:
        """What a pod names: repository, tag and, where known, the digest that pins it."""
        return f"{self.repository}:{self.tag}" + (f"@{self.digest}" if self.digest else "")


class _File(Fact):
    sources: list[str]
    date: str
    images: dict[str, Image]


IMAGES: dict[str, Image] = load("images.yaml", _File).images
"""`triton` and `openai` (the two runtimes) and `weights` (fetches model weights)."""


def driver_problem(image: Image, driver: str) -> str | None:
    """Why `driver` (e.g. an AMI's `580.159.03`) cannot run `image`; None: it can."""
    if image.min_driver is None or _version(driver) >= _version(image.min_driver):
        return None
    return (
        f"driver {driver} is too old for {image.repository}:{image.tag} (CUDA {image.cuda}): "
        f"it needs {image.min_driver} or newer; use a newer AMI release or an older image"
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
