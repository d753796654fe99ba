"""A container without a container runtime: one command in Linux namespaces of its own.

    unshare … python -m embedded.sandbox SPEC.json     # started by `Sandbox`, inside fresh namespaces

The command sees the machine's files read-only, its volumes where its manifest mounts them, its own processes, and a
loopback interface of its own: so two pods may both listen on 0.0.0.0:8000. The ports that it declares are forwarded
from listening sockets that were opened outside; there is no other way in, and none out.
"""

import asyncio
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
NICE = 10


def give_way() -> None:
    """Lets all other work of the machine go before that of this session, to which all sandboxes belong.

    Engines wait busily and take what CPUs there are. Those that bring their requests need little, but soon: proxies and
    clients were seen to wait 9 ms for each turn, so that requests queued where no metric counts them. Linux shares CPUs
    between sessions first and inside them then (sched(7), autogroup), so sessions of their own would let one pod's
    engine keep the next pod from starting: it was seen to get 4 % of a CPU.
    """
    with suppress(OSError):  # where there are no such groups, the niceness of each process counts, see `main`
        Path("/proc/self/autogroup").write_text(str(NICE))


@dataclass(frozen=True)
class Mount:
    """Something that the container sees at a path of its own."""

    target: str
    """Path in the container."""
    source: str = ""
    """File or folder on this machine. Empty: an empty file system in memory."""
    read_only: bool = False


@dataclass(frozen=True)
class Sandbox:
    """A command and all that it sees."""

    command: list[str]
    environment: dict[str, str]
    mounts: list[Mount] = field(default_factory=list[Mount])
    working_directory: str = "/"

    def start(self, folder: Path, log: Path, sockets: Mapping[int, socket.socket]) -> "Running":
        """Starts it. `folder`: for scratch files; `sockets`: listening sockets by the port that they lead to."""
        (folder / "root").mkdir(parents=True, exist_ok=True)
        control_read, control_write = os.pipe()
        ports = {port: listener.fileno() for port, listener in sockets.items()}
        spec = {**asdict(self), "root": str(folder / "root"), "control": control_read, "ports": ports}
        (folder / "sandbox.json").write_text(json.dumps(spec))
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*_unshare(), sys.executable, "-m", "embedded.sandbox", str(folder / "sandbox.json")],
                env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT)},
                pass_fds=[control_read, *ports.values()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # not a session, see `give_way`
            )
        os.close(control_read)
        return Running(process, control_write, self.environment)


@dataclass
class Running:
    """A started sandbox. It ends at the latest when this object's process does: it notices that the pipe closes."""

    process: subprocess.Popen[bytes]
    control: int
    environment: dict[str, str]

    @property
    def exit_code(self) -> int | None:
        """As a shell tells it: 128 + the signal that ended it; None while it runs."""
        return self.process.poll()

    def signal(self, number: int) -> None:
        """Sends a signal to the command, and to no process that it started."""
        os.write(self.control, bytes([number]))

    def run(self, command: list[str], left: Callable[[], float]) -> None:
        """Runs another command in the sandbox to its end, or until no time is `left`; that of the sandbox ends it too.

        Raises OSError with the end of what it said if it fails or does not end in time.
        """
        # unshare has one child, the first process of the namespaces.
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        namespaces = [f"--target={children.strip()}", *user, "--mount", "--net", "--pid", "--root", "--wd"]
        nsenter = shutil.which("nsenter") or "nsenter"  # found here: the container has a PATH of its own
        with subprocess.Popen(
            [nsenter, *namespaces, "--", *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        ) as process:
            while True:
                try:
                    said, _ = process.communicate(timeout=0.05)
                    break
                except subprocess.TimeoutExpired:
                    if left() <= 0:
                        os.killpg(process.pid, signal.SIGKILL)
                        raise TimeoutError(f"{command[0]} did not end in time") from None
        if process.returncode:
            raise OSError(f"{command[0]} ended with status {process.returncode}: {said.strip()[-500:]}")

    def kill(self) -> None:
        """Ends all of its processes at once."""
        self.process.kill()  # `unshare --kill-child` takes the namespace's first process with it, and so all others
        self.process.wait()

    def close(self) -> None:
        os.close(self.control)


def _unshare() -> list[str]:
    """Whoever is not root becomes root of a user namespace, which may mount."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount", "--net", "--pid", "--fork", "--kill-child", "--"]


def problem() -> str:
    """Why sandboxes cannot be made here; empty: they can."""
    try:
        run = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return "unshare is missing (package util-linux)"
    if run.returncode == 0:
        return ""
    return (
        f"{run.stderr.strip()}. Pods need Linux namespaces: run as root, or allow unprivileged user namespaces "
        "(`sysctl kernel.unprivileged_userns_clone=1`, and on Ubuntu `sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0`); in a container: `--privileged`"
    )


# Inside the namespaces ----------------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
MS_BIND, MS_REC = 0x1000, 0x4000
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1


def mount(source: str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts, by the system call of that name. Raises OSError."""
    arguments = [part.encode() if part else None for part in (source, str(target), kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() if options else None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source or kind} on {target}: {os.strerror(number)}")


def make_read_only(target: Path) -> None:
    """Makes a mount and all below it read-only: mount_setattr(2), which Linux has since 5.12."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    call = _libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, str(target).encode(), AT_RECURSIVE, attributes, len(attributes))
    if call:
        number = ctypes.get_errno()
        raise OSError(number, f"{target} cannot be made read-only: {os.strerror(number)}")


def build_root(root: Path, mounts: list[Mount]) -> None:
    """The container's file system at `root`: this machine's, and the volumes."""
    mount("tmpfs", root, "tmpfs")
    missing = {Path(item.target).parts[1] for item in mounts if not Path(item.target).exists()}
    for entry in sorted(Path("/").iterdir()):
        inside = root / entry.name
        if entry.is_symlink():
            inside.symlink_to(entry.readlink())
        elif entry.name == "proc":
            inside.mkdir()
            mount("proc", inside, "proc")  # shows the namespace's own processes
        elif entry.is_dir():
            inside.mkdir()
            if entry.name in missing:  # a layer above it, where folders to mount on can be made
                upper, work = root / ".upper" / entry.name, root / ".work" / entry.name
                for folder in (upper, work):
                    folder.mkdir(parents=True)
                mount("overlay", inside, "overlay", options=f"lowerdir={entry},upperdir={upper},workdir={work}")
            else:
                mount(str(entry), inside, flags=MS_BIND | MS_REC)
                make_read_only(inside)
    if any(ROOT.is_relative_to(item.target) for item in mounts):  # a checkout in /tmp, which pods have as a volume
        mounts = [*mounts, Mount(str(ROOT), str(ROOT), read_only=True)]  # its tools are what stands in for images
    for item in sorted(mounts, key=lambda item: item.target.count("/")):
        mount_volume(item, root / item.target.lstrip("/"))


def mount_volume(item: Mount, target: Path) -> None:
    """A volume of the container at `target`, which is made where it is missing."""
    if item.source and not Path(item.source).is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    else:
        target.mkdir(parents=True, exist_ok=True)
    if item.source:
        mount(item.source, target, flags=MS_BIND | MS_REC)
    else:
        mount("tmpfs", target, "tmpfs")
    if item.read_only:
        make_read_only(target)


def raise_loopback() -> None:
    """`ip link set lo up`."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, get_flags, request))[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", flags | up))


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def join(outer: Connection, inner: Connection) -> None:
    """Passes on what each side sends to the other, until both have ended."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    try:
        await asyncio.gather(pump(outer[0], inner[1]), pump(inner[0], outer[1]))
    except OSError:  # one side broke off, so the other must see that too
        outer[1].transport.abort()
        inner[1].transport.abort()
    finally:
        outer[1].close()
        inner[1].close()


async def forward(ports: dict[int, int]) -> None:
    """Passes connections of the inherited listening sockets on to the same ports in here, for ever."""

    async def listen(port: int, listener: int) -> asyncio.Server:
        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                inner = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.transport.abort()
                return
            await join((reader, writer), inner)

        return await asyncio.start_server(connect, sock=socket.socket(fileno=listener))

    servers = [await listen(port, listener) for port, listener in ports.items()]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def obey(control: int, pid: int) -> None:
    """Passes on each signal that arrives through the pipe, and ends everything when nobody is left to send one."""
    while number := os.read(control, 1):
        os.kill(pid, number[0])
    os._exit(137)


def main(spec_file: str) -> int:
    spec = json.loads(Path(spec_file).read_text())
    build_root(Path(spec["root"]), [Mount(**item) for item in spec["mounts"]])
    raise_loopback()
    os.chroot(spec["root"])
    os.chdir(spec["working_directory"])
    try:
        child = subprocess.Popen(spec["command"], env=spec["environment"], process_group=0)
    except OSError as error:
        print(error, file=sys.stderr)
        return 127
    with suppress(OSError):  # all of this may be nicer already
        os.setpriority(os.PRIO_PGRP, child.pid, NICE)
    ports = {int(port): number for port, number in spec["ports"].items()}
    threading.Thread(target=obey, args=(spec["control"], child.pid), daemon=True).start()
    if ports:
        threading.Thread(target=lambda: asyncio.run(forward(ports)), daemon=True).start()
    while True:  # the first process of a namespace inherits orphans
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1]))
