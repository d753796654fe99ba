"""Which tools there are. A new one needs an entry here and a directory with the Go module that pins it:

```
mkdir embedded/tools/NAME && cd embedded/tools/NAME
go mod init eks-llm/tools/NAME && go get PACKAGE@VERSION   # and a tools.go that imports the package, as in pulumi/
go mod tidy                                                # commit go.mod and go.sum
```

One that is published gets an entry in releases.yaml too, so that few have to build it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Tool:
    """A program. Where it cannot be downloaded, it is built from a Go module whose go.mod and go.sum are committed."""

    name: str
    """Name of the entry, and by default of the binary and of the directory that holds its go.mod."""
    version: str
    """The pinned version, `vMAJOR.MINOR.PATCH`. One on PATH serves if MAJOR.MINOR is the same."""
    package: str
    """Import path of the main package."""
    ldflags: str
    """Linker flags; most tools learn their version only this way."""
    version_args: tuple[str, ...]
    """Arguments that make the tool print its version. Empty: it cannot, so one on PATH is never taken."""
    install_hint: str
    """Where a ready-made binary comes from, for a machine without Go and without a way to download."""
    program: str = ""
    """File name of the binary, where the entry has another name."""
    directory: str = ""
    """Directory of the go.mod, where several entries share it."""
    pin: str = ""
    """How go.mod writes the version, where its module is numbered differently."""
    tags: str = ""
    """Build tags."""
    embeds: tuple[tuple[str, str], ...] = ()
    """Files that our own main embeds from a package of another module: (file name, import path of that package)."""
    edit: tuple[str, str] | tuple[()] = ()
    """Text of the package's main.go, and what is built in its place: for what the program has no option for."""

    @property
    def binary(self) -> str:
        return self.program or self.name

    @property
    def module(self) -> Path:
        return HERE / (self.directory or self.name)

    @property
    def key(self) -> str:
        """Changes with anything that changes the binary, so a stale one is never used."""
        digest = hashlib.sha256(f"{self.package} {self.ldflags}{self.tags}{''.join(self.edit)}".encode())
        for name in ("go.mod", "go.sum", "main.go"):
            if (file := self.module / name).exists():
                digest.update(file.read_bytes())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:8]}"


OLDEST_KUBERNETES = "1.35"
"""The oldest minor in EKS's standard support from 2026-12-02 on (catalog/eks.yaml). A suffix of its control plane."""


def _kubernetes(minor: str, version: str, suffix: str = "") -> list[Tool]:
    return [
        Tool(
            name=f"{program}{suffix}",
            version=version,
            package=f"k8s.io/kubernetes/cmd/{program}",
            # Clients compare the server's version with their own; without a linked one it is v0.0.0-master.
            ldflags=f"-s -w -X k8s.io/component-base/version.gitVersion={version} "
            f"-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor={minor[2:]}",
            version_args=("--version",),
            install_hint=f"https://dl.k8s.io/{version}/bin/linux/amd64/{program}",
            program=program,
            directory=f"kubernetes-{minor}",
        )
        for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ]


def _keda(part: str, binary: str, edit: tuple[str, str] | tuple[()] = ()) -> Tool:
    return Tool(
        name=binary,
        version="v2.20.2",
        package=f"github.com/kedacore/keda/v2/cmd/{part}",
        ldflags="-s -w -X github.com/kedacore/keda/v2/version.Version=2.20.2",
        version_args=(),
        install_hint="only images are published: https://github.com/kedacore/keda/releases",
        directory="keda",
        edit=edit,
    )


def _prometheus(program: str) -> Tool:
    return Tool(
        name=program,
        version="v3.14.0",
        package=f"github.com/prometheus/prometheus/cmd/{program}",
        ldflags="-s -w -X github.com/prometheus/common/version.Version=3.14.0",
        version_args=("--version",),
        install_hint="https://prometheus.io/download/",
        directory="prometheus",
        pin="v0.314.0",
        # Without the service discovery of two dozen clouds it builds in a third of the time.
        tags="remove_all_sd,enable_kubernetes_sd",
    )


TOOLS = {
    tool.name: tool
    for tool in [
        Tool(
            name="actionlint",
            version="v1.7.12",
            package="github.com/rhysd/actionlint/cmd/actionlint",
            ldflags="-s -w -X github.com/rhysd/actionlint.version=1.7.12",
            version_args=("-version",),
            install_hint="https://github.com/rhysd/actionlint/releases",
        ),
        Tool(
            name="pulumi",
            version="v3.274.1",
            package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
            # Without a linked version the CLI calls itself v0.0.0 and the Automation API refuses it.
            ldflags="-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v3.274.1",
            version_args=("version",),
            install_hint="https://www.pulumi.com/docs/install/versions/",
        ),
        _prometheus("promtool"),
        _prometheus("prometheus"),
        Tool(
            name="etcd",
            version="v3.6.14",
            package="go.etcd.io/etcd/server/v3",
            ldflags="-s -w",
            version_args=("--version",),
            install_hint="https://github.com/etcd-io/etcd/releases",
        ),
        *_kubernetes("1.36", "v1.36.3"),
        Tool(
            name="kwok",
            version="v0.8.0",
            package="sigs.k8s.io/kwok/cmd/kwok",
            ldflags="-s -w",
            version_args=("--version",),
            install_hint="https://github.com/kubernetes-sigs/kwok/releases",
        ),
        _keda("operator", "keda-operator"),
        # These two listen on all interfaces otherwise: the adapter for its metrics, and the webhooks.
        _keda("adapter", "keda-metrics-adapter", ('Sprintf(":%v", metricsAPI', 'Sprintf("127.0.0.1:%v", metricsAPI')),
        _keda("webhooks", "keda-admission-webhooks", ("webhook.Options{", 'webhook.Options{Host: "127.0.0.1",')),
        Tool(
            name="kube-state-metrics",
            version="v2.20.0",
            package="k8s.io/kube-state-metrics/v2",
            ldflags="-s -w -X github.com/prometheus/common/version.Version=v2.20.0",
            version_args=("version",),
            install_hint="go install k8s.io/kube-state-metrics/v2@v2.20.0",
        ),
        Tool(
            # The newest release whose provider is published as a Go module. It serves the newer Python SDK.
            name="pulumi-resource-kubernetes",
            version="v4.25.0",
            package=".",
            ldflags="-s -w -X github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version.Version=v4.25.0",
            version_args=("--version",),
            install_hint="pulumi plugin install resource kubernetes",
            pin="v4.0.0-20260115033456-f47bc2d6f199",
            embeds=(("schema.json", "github.com/pulumi/pulumi-kubernetes/provider/v4/cmd/pulumi-resource-kubernetes"),),
        ),
        *_kubernetes(OLDEST_KUBERNETES, "v1.35.4", suffix=f"-{OLDEST_KUBERNETES}"),
    ]
}
"""In the order in which tests need them."""
