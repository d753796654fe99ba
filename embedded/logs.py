"""`./dev logs`: what processes and pods of the platform write, all of it or as it comes."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path

from eks_llm.core.problems import nearest

from .process import PlatformError

POLL_SECONDS = 0.3


def files(home: Path) -> dict[str, Path]:
    """Log files by name: a process's own name, and `namespace/pod/container` for a container."""
    folder = home / "logs"
    processes = {file.stem: file for file in sorted(folder.glob("*.log"))}
    return processes | {file.stem.replace("_", "/"): file for file in sorted(folder.glob("pods/*.log"))}


def chosen(home: Path, wanted: str | None) -> dict[str, Path]:
    """The files that `wanted` means: a process, a pod or a container, or a service: all of its pods. None: all files.

    Raises `PlatformError` if there are none.
    """
    found = files(home)
    if not found:
        raise PlatformError("there are no logs; `./dev up` starts the platform")
    if wanted is None:
        return found
    matching = {name: file for name, file in found.items() if _means(wanted, name)}
    if not matching:
        known = sorted({name.split("/")[1] if "/" in name else name for name in found})
        raise PlatformError(f"no logs of {wanted!r}{nearest(wanted, known)} (there are: {', '.join(known)})")
    return matching


def _means(wanted: str, name: str) -> bool:
    if name.count("/") != 2:  # a process, or a file that no pod of the platform wrote
        return wanted == name
    namespace, pod, container = name.split("/")
    return wanted in (pod, name, f"{namespace}/{pod}", f"{pod}/{container}") or pod.startswith(f"{wanted}-")


def lines(select: Callable[[], dict[str, Path]], *, follow: bool, tail: int | None) -> Iterator[tuple[str, str]]:
    """Name and line of all that `select` chooses, or of the last `tail` lines of each file.

    With `follow` for ever: what is added, and files that come later.
    """
    readers: dict[Path, TextIOWrapper] = {}
    while True:
        for name, file in select().items():
            if file not in readers:
                readers[file] = file.open(encoding="utf-8", errors="replace")
                start = deque(readers[file], maxlen=tail)
            else:
                start = readers[file]
            yield from ((name, line.rstrip("\n")) for line in start)
        if not follow:
            return
        time.sleep(POLL_SECONDS)
