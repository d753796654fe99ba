"""Services of pods that the pod runner runs: connections to a Service's address are spread over its ready pods.

    python -m embedded.services HOME     # started by platform.py

Stands in for kube-proxy: Service 10.96.0.9 is reached at 127.96.0.9 (addresses.py), at its own ports. There is no
cluster DNS; `address` looks a Service up.
"""

import asyncio
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .addresses import POD_PREFIX, loopback
from .api import Api, Manifest
from .controlplane import ControlPlane
from .process import Process, stop
from .sandbox import join

PROCESS = "service-proxy"
POLL_SECONDS = 0.5

Address = tuple[str, int]


@dataclass(frozen=True)
class ServiceProxy:
    """The proxy's process for a control plane that is up."""

    plane: ControlPlane

    def start(self, progress: Callable[[str], None] = lambda _: None) -> None:
        command = [sys.executable, "-m", "embedded.services", str(self.plane.home)]
        root = str(Path(__file__).parents[1])
        environment = {"PYTHONPATH": f"{root}:{root}/components"}
        seconds = Process(PROCESS, command, self.plane.home, lambda: True, environment).start()
        progress(f"{PROCESS} ready in {seconds:.1f} s")

    def stop(self) -> None:
        stop(self.plane.home, [PROCESS])


def address(api: Api, namespace: str, name: str, port: str) -> Address:
    """Where a Service's named port is reached on this machine. Raises `NotFoundError`, and KeyError for the port."""
    spec = api.get("v1", "Service", name, namespace)["spec"]
    ports = {item.get("name", ""): item["port"] for item in spec["ports"]}
    return loopback(spec["clusterIP"]), ports[port]


def routes(services: list[Manifest], slices: list[Manifest]) -> dict[Address, list[Address]]:
    """Where to listen, and the ready pods behind it. Services without pods of the pod runner are left out."""
    found: dict[Address, list[Address]] = {}
    for service in services:
        metadata, spec = service["metadata"], service["spec"]
        if spec.get("clusterIP") in (None, "None", ""):
            continue
        own = [
            item
            for item in slices
            if item["metadata"]["namespace"] == metadata["namespace"]
            and item["metadata"]["labels"].get("kubernetes.io/service-name") == metadata["name"]
        ]
        for port in spec["ports"]:
            pods = [pod for item in own for pod in _ready(item, port.get("name", ""))]
            if pods:
                found[loopback(spec["clusterIP"]), port["port"]] = pods
    return found


def _ready(item: Manifest, port_name: str) -> list[Address]:
    ports = [port["port"] for port in item.get("ports") or [] if port.get("name", "") == port_name]
    ready = [end for end in item.get("endpoints") or [] if end.get("conditions", {}).get("ready")]
    ips = [ip for end in ready for ip in end["addresses"] if ip.startswith(POD_PREFIX)]
    return [(loopback(ip), port) for ip in ips for port in ports]


@dataclass
class Proxy:
    """Keeps listeners for all routes."""

    api: Api
    _routes: dict[Address, list[Address]] = field(default_factory=dict[Address, list[Address]])
    _servers: dict[Address, asyncio.Server] = field(default_factory=dict[Address, asyncio.Server])

    async def run(self) -> None:
        """For ever. A Service that loses its last pod keeps its listener, and refuses."""
        while True:
            try:
                services, slices = await asyncio.to_thread(
                    lambda: (
                        self.api.list("v1", "Service"),
                        self.api.list("discovery.k8s.io/v1", "EndpointSlice"),
                    )
                )
                self._routes = routes(services, slices)
                for where in self._routes.keys() - self._servers.keys():
                    self._servers[where] = await self._listen(where)
            except Exception as error:  # the API server restarts; known routes go on meanwhile
                print(f"{type(error).__name__}: {error}", flush=True)
            await asyncio.sleep(POLL_SECONDS)

    async def _listen(self, where: Address) -> asyncio.Server:
        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pods = self._routes.get(where, [])
            for pod in random.sample(pods, len(pods)):
                try:
                    inner = await asyncio.open_connection(*pod)
                except OSError:
                    continue
                await join((reader, writer), inner)
                return
            writer.transport.abort()

        print(f"listens at {where[0]}:{where[1]}", flush=True)
        return await asyncio.start_server(connect, *where)


if __name__ == "__main__":
    asyncio.run(Proxy(Api(ControlPlane.load(Path(sys.argv[1])).kubeconfig)).run())
