"""A stand-in for `pulumi-language-python`, which ships only with Pulumi's own installer and not as a Go module.

It does what a preview needs: it runs the program in a process of its own, by the real host's own script and with this
Python, and starts a policy pack with the Python of the pack. It installs nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    def __init__(self, script: str, engine: str) -> None:
        self.script = script
        self.engine = engine

    def Handshake(self, request: Any, context: Any) -> Any:
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="99.0.0")

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:
        return language_pb2.GetRequiredPackagesResponse()

    def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def Run(self, request: Any, context: Any) -> Any:
        options = {
            "project": request.project,
            "stack": request.stack,
            "organization": request.organization,
            "root_directory": request.info.root_directory,
            "pwd": request.info.program_directory,
            "monitor": request.monitor_address,
            "engine": self.engine,
            "parallel": str(request.parallel),
            "dry_run": str(request.dryRun).lower(),
        }
        flags = [part for name, value in options.items() if value for part in (f"--{name}", value)]
        run = subprocess.run(
            [sys.executable, self.script, *flags, request.info.entry_point],
            env={
                **os.environ,
                "PULUMI_CONFIG": json.dumps(dict(request.config)),
                "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
            },
            stdout=sys.stderr,
            check=False,
        )
        # Status 32: the program's own message has been shown.
        error = "" if run.returncode in (0, 32) else f"the program ended with status {run.returncode}"
        return language_pb2.RunResponse(error=error, bail=run.returncode == 32)

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:
        """Starts a policy pack; its first line on stdout is the port that it serves."""
        folder = Path(request.info.root_directory)
        python = folder / request.info.options["virtualenv"] / "bin" / "python"
        pack = subprocess.Popen(
            [str(python), "-u", "-m", "pulumi.policy", *request.args, request.info.program_directory],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **dict(item.split("=", 1) for item in request.env)},
        )
        context.add_callback(pack.kill)
        for line in pack.stdout or ():
            yield language_pb2.RunPluginResponse(stdout=line)
        yield language_pb2.RunPluginResponse(exitcode=pack.wait())


def main(script: str, engine: str) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageHost(script, engine), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    with suppress(KeyboardInterrupt):  # how the engine ends its plugins
        server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[-1])
