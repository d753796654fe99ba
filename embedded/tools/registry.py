"""Which tools there are. A new one needs an entry here and a directory with the Go module that pins it:

```
mkdir embedded/tools/NAME && cd embedded/tools/NAME
go mod init eks-llm/tools/NAME && go get PACKAGE@VERSION   # and a tools.go that imports the package, as in pulumi/
go mod tidy                                                # commit go.mod and go.sum
```
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Tool:
    """A program that is built from a Go module of its own, whose go.mod and go.sum are committed."""

    name: str
    """Name of the binary, of its entry and of the directory that holds its go.mod."""
    version: str
    """The pinned version, `vMAJOR.MINOR.PATCH`. One on PATH serves if MAJOR.MINOR is the same."""
    package: str
    """Import path of the main package."""
    ldflags: str
    """Linker flags; most tools learn their version only this way."""
    version_args: tuple[str, ...]
    """Arguments that make the tool print its version."""
    install_hint: str
    """Where a ready-made binary comes from, for a machine without Go."""

    @property
    def module(self) -> Path:
        return HERE / self.name

    @property
    def key(self) -> str:
        """Changes with anything that changes the binary, so a stale one is never used."""
        digest = hashlib.sha256(f"{self.package} {self.ldflags}".encode())
        for name in ("go.mod", "go.sum"):
            digest.update((self.module / name).read_bytes())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:8]}"


TOOLS = {
    tool.name: tool
    for tool in [
        Tool(
            name="pulumi",
            version="v3.274.1",
            package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
            # Without a linked version the CLI calls itself v0.0.0 and the Automation API refuses it.
            ldflags="-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v3.274.1",
            version_args=("version",),
            install_hint="https://www.pulumi.com/docs/install/versions/",
        ),
    ]
}
