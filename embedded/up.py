"""`./dev up`: from a stack file to the first streamed token."""

import os
import shutil
import time
from collections.abc import Callable
from functools import partial

from . import images, preflight, prompt, serving_env, weights
from .api import Api
from .deployment import PROGRAMS, Deployment
from .platform import ALL, Platform, Shape
from .ports import chosen_base
from .process import PlatformError
from .services import address
from .stack import Stack
from .tools import TOOLS, find, provide_all

Say = Callable[[str], None]
TOOLS_OF_UP = [name for name in TOOLS if name in (*ALL, *PROGRAMS)]


def up(platform: Platform, stack: Stack, say: Say) -> None:
    """Brings the platform up with the stack on it, or updates the stack of one that is up.

    Raises `PlatformError`, `ToolError` or `InstallError`. What was not up before is down again after Ctrl-C, and after
    an error before the deployment; an error in the deployment leaves what there is.
    """
    begin = time.monotonic()
    with platform.locked():
        missing = [name for name in TOOLS_OF_UP if not find(TOOLS[name])]
        preflight.check(platform.home, preflight.unpublished(missing))
        stack.check()
        # Before anything runs: it takes minutes, and may fail. Side by side, as packages wait for network and disk, and
        # tools for processors.
        with serving_env.in_background(say) as environment:
            provide_all(TOOLS_OF_UP, before_builds=lambda names: preflight.check(platform.home, names))
            serving = environment.result()
        buckets = platform.home.parent / "buckets"
        weights.provide(stack, buckets, serving, say)
        shape = Shape(stack.nodes(), [], images.stands(serving, buckets))
        started = platform.start(shape, chosen_base(), say)
        deployment = Deployment(platform, stack)
        try:
            _deploy(deployment, say)
            answer(platform, stack, say, begin)
        except (PlatformError, OSError):
            raise
        except BaseException:  # Ctrl-C
            if started:
                say("stopping what was started")
                platform.clear()
            else:
                say("ending the update; what was up stays up")
                deployment.interrupt()
            raise


def _deploy(deployment: Deployment, say: Say) -> None:
    say(f"deploying {deployment.stack.file.name} with Pulumi")
    begin = time.monotonic()
    changes = deployment.up(say)
    same = changes.pop("same", 0)
    counted = ", ".join(f"{number} {kind}d" for kind, number in changes.items()) or "no change"
    say(f"{counted}, {same} as before, all ready after {time.monotonic() - begin:.1f} s")


def answer(platform: Platform, stack: Stack, say: Say, begin: float) -> None:
    """Asks each service, and says when the first token came and how to go on."""
    api = Api(platform.kubeconfig)
    for name, service in stack.services.items():
        host, port = address(api, stack.namespace, name, "http")
        url = f"http://{host}:{port}"
        ask = partial(_ask, url, service["runtime"] == "triton", name)
        first, text = api.wait(f"an answer of {name}", ask)
        say("")
        say(f"{name} at {url}: the first token came {first - begin:.1f} s after the start")
        say(f"  {prompt.TEXT} … → {text!r}")
    say("")
    for line in _next_steps(platform, stack):
        say(line)


def _ask(url: str, triton: bool, name: str) -> tuple[float, str]:
    """When the first piece of the answer came, and all of it."""
    pieces, first = [], 0.0
    for piece in prompt.stream(url, triton, name):
        first = first or time.monotonic()
        pieces.append(piece)
    return first, "".join(pieces)


def _next_steps(platform: Platform, stack: Stack) -> list[str]:
    kubeconfig = os.path.relpath(platform.kubeconfig)
    return [
        "./dev status          what runs, and how it scales",
        "./dev load            streams against the service: replicas rise, and fall again",
        "./dev logs [NAME] -f  of a pod or a process",
        f"KUBECONFIG={kubeconfig} kubectl -n {stack.namespace} get pods",
        f"./dev up              again, after a change in {stack.file.name}",
        "./dev down            ends all of it",
    ]


def elsewhere(stack: Stack) -> None:
    """Becomes `pulumi up` of a stack that is not for this machine. Raises `PlatformError`."""
    pulumi = shutil.which("pulumi")
    if not pulumi:
        raise PlatformError(
            f"{stack.file.name} is not for this machine's cluster, so `pulumi up` deploys it, and Pulumi's CLI is not "
            "on PATH (https://www.pulumi.com/docs/install/). "
            f"`./dev plan {stack.name}` shows the stack without it; `./dev up` alone runs on this machine."
        )
    os.chdir(stack.project.root)
    os.execv(pulumi, [pulumi, "up", "--stack", stack.name])
