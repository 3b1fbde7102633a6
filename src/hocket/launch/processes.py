"""The processes of one job on this host, as a parent sees them: when they end, how, and how to end them all.

Each rank leads a process group of its own: what it starts dies with it, and a Ctrl-C in the terminal reaches the parent
alone, which decides. All stay in one session, for Linux shares the cores out among sessions first (sched_autogroup): a
rank that waits could not give way to one of another session. No rank is reaped before all have ended, whoever has taken
its place, so that its pid means nobody else.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from ..deadline import Deadline

GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_LAST = 5.0  # seconds that a process may take to die of SIGKILL; longer means that the kernel holds it


class Child:
    """A rank's process, a child of this one. `fd` becomes readable when it ends; `reap` is called when all is over."""

    def __init__(self, rank: int, pid: int, reap: Callable[[], object]) -> None:
        self.rank = rank
        self.pid = pid
        self._reap = reap
        self.fd = os.pidfd_open(pid)

    def exit_code(self) -> int | None:
        """None while it runs; then its exit code, or the negative number of the signal that killed it."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # reaped behind our back, where SIGCHLD is ignored: nobody knows how it ended
            return 0
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def signal(self, number: int) -> None:
        """Send a signal to the rank and all it started. Right after its birth it may not lead its group yet."""
        with suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                os.kill(self.pid, number)

    def let_go(self) -> None:
        """Of `fd`, which has told of its end. A second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Reap it, if it has ended."""
        self.let_go()
        if self.exit_code() is not None:
            self._reap()

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid})"


def group_of(pid: int) -> int:
    """The process group of a process; 0 where it has gone."""
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


class Guard:
    """Ends the ranks when this process dies, however it dies: not even SIGKILL leaves a rank, or what it started.

    It is a shell that reads pids from a pipe, one a line. Only this process can write there; so at the end of file it
    is dead, and all groups are killed. (PR_SET_PDEATHSIG would reach the ranks, but not what they started.)
    """

    _SCRIPT = 'while read -r pid; do all="$all -$pid"; done; kill -s KILL -- $all'

    def __init__(self) -> None:
        command = ["/bin/sh", "-c", self._SCRIPT]
        null = subprocess.DEVNULL
        self._shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True, bufsize=0, cwd="/"
        )

    def watch(self, pid: int) -> None:
        """End the process group of `pid` too."""
        assert self._shell.stdin is not None
        with suppress(BrokenPipeError):
            self._shell.stdin.write(f"{pid}\n".encode())

    def close(self) -> None:
        """The job is over: watch no longer."""
        self._shell.kill()
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()


@contextmanager
def reserved_port() -> Iterator[int]:
    """A TCP port that is nobody else's until the end of the block, for a rank to listen at.

    It is bound here, but nobody listens: a rank may bind it again, since both reuse addresses (torch's store does).
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]


def end(children: Iterable[Child], grace: float = GRACE) -> None:
    """SIGTERM to those that run; SIGKILL after `grace` seconds, and to all that any of them left behind."""
    children = list(children)
    try:
        running = [child for child in children if child.exit_code() is None]
        for child in running:
            child.signal(signal.SIGTERM)
            child.signal(signal.SIGCONT)  # a stopped process hears nothing
        wait(running, grace)
    finally:
        for child in children:
            child.signal(signal.SIGKILL)
        wait(children, _LAST)


def wait(children: Iterable[Child], timeout: float) -> bool:
    """Whether all have ended within `timeout` seconds."""
    deadline = Deadline(timeout)
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.fd, selectors.EVENT_READ)
        while selector.get_map():
            ended = selector.select(deadline.left())
            for key, _ in ended:
                selector.unregister(key.fileobj)
            if not ended and not deadline.left():
                return False
    return True


def describe(code: int) -> str:
    """How a process ended, in words: "exit code 1", "killed by SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
