"""Helpers of these tests: waiting without sleeping, what a process holds, and the command line as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hocket.rendezvous.links import Links
from hocket.rendezvous.store import SocketStore
from moments import until

SOURCE = Path(__file__).resolve().parents[2] / "src"
SECRET = b"the job's secret"
LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_",
    "HOCKET_",
    "OMPI_",
    "PMI",
    "MPI_",
    "SLURM_",
)


def is_gone(pid: int) -> bool:
    """Whether the process is dead; one whose new parent has not reaped it yet is."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_gone(pids: list[int]) -> None:
    """Fail unless all these processes die."""
    until(lambda: all(is_gone(pid) for pid in pids), f"processes {pids} gone")


def open_descriptors() -> set[str]:
    """What this process has open: number and kind."""
    names = {name: f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
    return {f"{name} {os.readlink(path)}" for name, path in names.items() if os.path.lexists(path)}  # noqa: PTH115


def children() -> set[str]:
    """The processes that this thread has started."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


class Hocket:
    """The command `hocket`, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def script(self, text: str) -> str:
        """A Python file with that text, which may use `rank`, `say` (one line to stdout) and `forever`."""
        path = self.folder / f"script{len(list(self.folder.iterdir()))}.py"
        head = (
            "import os, signal, subprocess, sys, time\n"
            "rank = int(os.environ['RANK'])\n"
            "def say(*words): os.write(1, (' '.join(map(str, words)) + chr(10)).encode())\n"
            "forever = signal.pause\n"
        )
        path.write_text(head + text)
        return str(path)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command line."""
        return self.begin([sys.executable, "-m", "hocket", *words], **options)

    def begin(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start any program."""
        environ = {**os.environ, "PYTHONPATH": str(SOURCE), **options.pop("environ", {})}
        pipe = subprocess.PIPE
        settings = {
            "stdin": subprocess.DEVNULL,
            "stdout": pipe,
            "stderr": pipe,
            "text": True,
            "env": environ,
            **options,
        }
        process: subprocess.Popen[str] = subprocess.Popen(command, **settings)
        self.started.append(process)
        return process

    def run(self, *words: str, text: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end, with `text` as its stdin."""
        if text is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*words, **options)
        out, err = process.communicate(text, timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def close(self) -> None:
        """End what a failed test left."""
        for process in self.started:
            process.kill()
            process.communicate(timeout=10)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """The next `count` lines of its output, sorted."""
    assert process.stdout is not None
    return sorted(process.stdout.readline().strip() for _ in range(count))


def client(address: str, secret: bytes = SECRET, timeout: float = 10.0) -> closing[SocketStore]:
    """A rank's end of the store at `address`."""
    return closing(SocketStore(address, secret, timeout))


def check_linked(found: Sequence[Links], *, close: bool = True) -> set[int]:
    """Every two of these ranks hold the two ends of one socket. The families of all of them."""
    ends = [(r, q, sock) for r, links in enumerate(found) for q, sock in enumerate(links.sockets)]
    sockets = {(r, q): sock for r, q, sock in ends if sock is not None}
    assert len(sockets) == len(found) * (len(found) - 1)
    for (r, q), sock in sockets.items():
        assert sock.gettimeout() == 0.0
        sock.send(bytes([r, q]))
    for (r, q), sock in sockets.items():
        assert sock.recv(9) == bytes([q, r])
    families = {sock.family for sock in sockets.values()}
    for links in found if close else ():
        links.close()
    return families
