"""A real Kubernetes control plane on the loopback interface: etcd, API server, controller manager, scheduler.

    python -m embedded.controlplane [MINOR]     # starts one, says how to reach it, and stops it on Ctrl-C

There is no kubelet and no cluster network: pods run where embedded/nodes.py or embedded/runner.py plays a node.
"""

import json
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import yaml

from .certificates import Authority, Pair
from .pace import AS_ON_EKS, Pace
from .ports import allot, free_base
from .process import PlatformError, Process, start_together, stop
from .tools import provide

SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
"""The first address of the range, which the API server gives its own Service."""
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PARTS = ("etcd", *PROGRAMS)
"""Names of the processes, in the order of their start."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ControlPlane:
    """A control plane's state folder and ports. All its files are below `home`."""

    home: Path
    ports: dict[str, int]
    minor: str = ""
    """Kubernetes minor, a suffix of the entries in tools/registry.py, e.g. `1.35`. Default: the newest."""
    pace: Pace = AS_ON_EKS
    """Of this control plane, and of all that belongs to it."""

    @classmethod
    def load(cls, home: Path) -> "ControlPlane":
        """The one that was started with this state folder."""
        saved = json.loads((home / "controlplane.json").read_text())
        return cls(home, **{**saved, "pace": Pace(**saved["pace"])})

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.home / "kubeconfig"

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.ports['kube-apiserver']}"

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Makes certificates and starts all parts. Raises `PlatformError`, and then leaves nothing running."""
        suffix = f"-{self.minor}" if self.minor else ""
        binaries = {"etcd": provide("etcd"), **{name: provide(f"{name}{suffix}") for name in PROGRAMS}}
        certificates = Certificates.make(self.home / "certificates")
        saved = {"ports": self.ports, "minor": self.minor, "pace": asdict(self.pace)}
        (self.home / "controlplane.json").write_text(json.dumps(saved))
        users = {
            "kubeconfig": certificates.admin,
            **{f"{name}.kubeconfig": certificates.users[name] for name in PROGRAMS[1:]},
        }
        for name, pair in users.items():
            write_kubeconfig(self.home / name, self.url, certificates.ca, pair)
        try:
            etcd, api_server, *clients = self._processes(binaries, certificates)
            for together in ([etcd], [api_server], clients):
                start_together(together, progress)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all parts, etcd last. Their state stays on disk."""
        stop(self.home, PROGRAMS)
        stop(self.home, ["etcd"])

    def _processes(self, binaries: dict[str, Path], certificates: "Certificates") -> list[Process]:
        home, ports = self.home, self.ports
        etcd_url, peer_url = f"https://{LOOPBACK}:{ports['etcd']}", f"http://{LOOPBACK}:{ports['etcd-peer']}"
        ca = str(certificates.ca)

        def part(name: str, flags: dict[str, str], path: str, port: int) -> Process:
            url = f"https://{LOOPBACK}:{port}{path}"
            command = [str(binaries[name]), *(f"--{flag}={value}" for flag, value in flags.items())]
            return Process(name, command, home, lambda: answers(url, certificates.ca, certificates.admin))

        etcd = {
            "name": "embedded",
            "data-dir": str(home / "etcd"),
            "listen-client-urls": etcd_url,
            "advertise-client-urls": etcd_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"embedded={peer_url}",
            "cert-file": str(certificates.etcd.certificate),
            "key-file": str(certificates.etcd.key),
            "client-cert-auth": "true",
            "trusted-ca-file": ca,
            # Faster, and nothing here must survive a power cut.
            "unsafe-no-fsync": "true",
        }
        api_server = {
            "bind-address": LOOPBACK,
            "secure-port": str(ports["kube-apiserver"]),
            # It may not advertise a loopback address, so nobody is told any.
            "advertise-address": API_SERVICE,
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": SERVICE_RANGE,
            "etcd-servers": etcd_url,
            "etcd-cafile": ca,
            "etcd-certfile": str(certificates.etcd.certificate),
            "etcd-keyfile": str(certificates.etcd.key),
            "tls-cert-file": str(certificates.api_server.certificate),
            "tls-private-key-file": str(certificates.api_server.key),
            "client-ca-file": ca,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": str(certificates.tokens.certificate),
            "service-account-signing-key-file": str(certificates.tokens.key),
            # For aggregated APIs, such as KEDA's metrics: they trust this client certificate to name the user.
            "requestheader-client-ca-file": ca,
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-username-headers": "X-Remote-User",
            "proxy-client-cert-file": str(certificates.front_proxy.certificate),
            "proxy-client-key-file": str(certificates.front_proxy.key),
            "profiling": "false",
        }

        def controller(name: str) -> dict[str, str]:
            own = str(home / f"{name}.kubeconfig")
            return {
                "kubeconfig": own,
                "authentication-kubeconfig": own,
                "authorization-kubeconfig": own,
                "bind-address": LOOPBACK,
                "secure-port": str(ports[name]),
                "client-ca-file": ca,
                "tls-cert-file": str(certificates.extension.certificate),
                "tls-private-key-file": str(certificates.extension.key),
                "leader-elect": "false",
                "profiling": "false",
            }

        manager = {
            **controller("kube-controller-manager"),
            "use-service-account-credentials": "true",
            "service-account-private-key-file": str(certificates.tokens.key),
            "root-ca-file": ca,
            "service-cluster-ip-range": SERVICE_RANGE,
            "horizontal-pod-autoscaler-sync-period": f"{self.pace.autoscaling}s",
            "node-monitor-grace-period": f"{self.pace.node_lost}s",
        }
        return [
            part("etcd", etcd, "/health", ports["etcd"]),
            part("kube-apiserver", api_server, "/readyz", ports["kube-apiserver"]),
            part("kube-controller-manager", manager, "/healthz", ports["kube-controller-manager"]),
            part("kube-scheduler", controller("kube-scheduler"), "/readyz", ports["kube-scheduler"]),
        ]


@dataclass(frozen=True)
class Certificates:
    """All that the control plane and what extends it authenticate with."""

    ca: Path
    etcd: Pair
    api_server: Pair
    tokens: Pair
    front_proxy: Pair
    admin: Pair
    users: dict[str, Pair]
    """Of the controller manager and the scheduler, by process name."""
    extension: Pair
    """Server certificate of `localhost`, for all other servers. KEDA wants it as tls.crt and tls.key beside ca.crt."""

    @classmethod
    def make(cls, folder: Path) -> "Certificates":
        authority = Authority(folder)
        names = ["localhost", LOOPBACK, API_SERVICE, "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        return cls(
            ca=authority.certificate,
            etcd=authority.server("etcd", ["localhost", LOOPBACK]),
            api_server=authority.server("kube-apiserver", names),
            tokens=authority.signing_key("service-accounts"),
            front_proxy=authority.client("front-proxy", "front-proxy-client"),
            admin=authority.client("admin", "embedded-admin", ("system:masters",)),
            users={name: authority.client(name, f"system:{name}") for name in PROGRAMS[1:]},
            extension=authority.server("tls", ["localhost", LOOPBACK]),
        )


def write_kubeconfig(file: Path, url: str, ca: Path, user: Pair) -> None:
    """A kubeconfig that refers to its certificates by path, readable by its owner only."""
    name = "embedded"
    file.touch(mode=0o600)
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(ca)}}],
                "users": [
                    {
                        "name": name,
                        "user": {"client-certificate": str(user.certificate), "client-key": str(user.key)},
                    }
                ],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
                "current-context": name,
            }
        )
    )


def answers(url: str, ca: Path, user: Pair) -> bool:
    """True if `url` answers 200 to the holder of a client certificate. Raises OSError if nothing listens."""
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(user.certificate, user.key)
    # Without proxies: the caller's HTTPS_PROXY does not lead to its own loopback interface.
    opener = build_opener(HTTPSHandler(context=context), ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as response:
            return response.status == 200
    except HTTPError:
        return False


def main(arguments: list[str]) -> int:
    home = Path(tempfile.mkdtemp(prefix="eks-llm-"))
    plane = ControlPlane(home, allot(free_base()), arguments[0] if arguments else "")
    try:
        plane.start(print)
        print(f"KUBECONFIG={plane.kubeconfig}   (Ctrl-C ends it)", flush=True)
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return 0
    except PlatformError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        plane.stop()
        shutil.rmtree(home)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
