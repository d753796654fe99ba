"""Runs one command and everything it starts: says what all of it took, and leaves nothing running.

python -m tests.suite.supervise [--yield] RESULT COMMAND…

On Linux it adopts processes whose parents ended, such as the platforms that `./dev up` starts, so their processor time
counts and they end with the command. SIGINT and SIGTERM become one SIGINT to the command, which then has `GRACE`
seconds to clear up. `--yield`: everything else on the machine goes first.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE = 60
"""Seconds from the signal to the end by force. Ending a platform takes about ten."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def descendants(pid: int) -> list[int]:
    """Processes below `pid`; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has just ended
        if state != "Z":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [pid]
    for item in found:
        found += children.get(item, [])
    return found[1:]


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120].strip()
    except OSError:
        return "ended meanwhile"


def kill(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end_all(seconds: float = 10) -> list[str]:
    """Ends what still runs below this process; returns what that was."""
    left = [f"{pid} {name(pid)}" for pid in descendants(os.getpid())]
    until = time.monotonic() + seconds
    while pids := descendants(os.getpid()):
        kill(pids, signal.SIGTERM if time.monotonic() < until else signal.SIGKILL)
        time.sleep(0.1)
        reap()
    reap()
    return left


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main(result: Path, command: list[str], foreground: bool) -> int:
    """`foreground`: the terminal sends Ctrl-C to the command itself."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # who started this one may be killed
    begin = time.monotonic()
    asked: list[int] = []
    pid = 0

    def interrupt(number: int, _: object) -> None:
        if asked or not pid:
            return
        asked.append(number)
        signal.alarm(GRACE)
        if not (foreground and number == signal.SIGINT):
            kill([pid], signal.SIGINT)

    # A handler, not the default: what is started gets the default even where this one was started with SIGINT ignored.
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGALRM, lambda *_: kill(descendants(os.getpid()), signal.SIGKILL))
    pid = subprocess.Popen(command).pid
    while True:
        ended, status = os.wait()
        if ended == pid:
            break
    signal.alarm(0)
    left = end_all()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(status)
    done = {"code": code, "wall": time.monotonic() - begin, "cpu": used.ru_utime + used.ru_stime, "left": left}
    result.write_text(json.dumps(done))
    return code if code >= 0 else 128 - code


def give_way() -> None:
    """Lets all other work go first. Call it in a session of its own: Linux shares processors between sessions first."""
    os.nice(19)
    with contextlib.suppress(OSError):  # no such groups here: then the niceness of each process counts
        Path("/proc/self/autogroup").write_text("19")


if __name__ == "__main__":
    _, *rest = sys.argv
    if rest[0] == "--yield":
        give_way()
        del rest[0]
    file, *rest = rest
    sys.exit(main(Path(file), rest, os.isatty(0)))
