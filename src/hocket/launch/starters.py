"""How the process of a rank begins: as a program of its own, or as a fork of one that has imported what it needs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO, Any, NamedTuple, Protocol

from ..config.children import in_common

# For Popen: the rank leads a group of its own. A function to be called in the child takes a fork of all our memory.
_LEADER: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
_ALONE: dict[str, Any] = {"start_new_session": True}
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


class Started(NamedTuple):
    """A rank's process, a child of this one, and our ends of its streams: no `stdout` where it writes to ours."""

    pid: int
    reap: Callable[[], object]
    stdout: IO[bytes] | None
    stderr: IO[bytes]


class Starter(Protocol):
    """Starts ranks, which each lead a process group.

    One that `reads` gets our stdin; where that is a terminal it leaves our session, or reading from it would stop it.
    Output that is `piped` comes at once, not when there is much of it.
    """

    def prepare(self, environ: Mapping[str, str], *, piped: bool) -> int | None:
        """Begin with what takes long, in the environment of a rank: a descriptor that can be read when it is over. None
        where nothing is to be waited for."""

    def finish(self) -> None:
        """After that. Raises OSError where ranks can't be started."""

    def start(self, environ: Mapping[str, str], *, reads: bool, piped: bool) -> Started:
        """One rank. Raises OSError where it can't be started."""

    def close(self) -> None:
        """No more are started."""


class Programs:
    """Each rank is a new process that runs the command."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def prepare(self, environ: Mapping[str, str], *, piped: bool) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""

    def start(self, environ: Mapping[str, str], *, reads: bool, piped: bool) -> Started:
        """As of `Starter`."""
        process = subprocess.Popen(
            self._command,
            env=_with_output(environ, piped),
            stdin=None if reads else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else None,
            stderr=subprocess.PIPE,
            bufsize=0,
            **(_ALONE if reads and os.isatty(0) else _LEADER),
        )
        assert process.stderr is not None
        return Started(process.pid, process.wait, process.stdout, process.stderr)

    def close(self) -> None:
        """Nothing."""


class Forks:
    """Each rank is a fork of one process that has imported the `modules`: `forkserver.py` is its life.

    It forks twice, and this process is the one that is given the orphans: so ranks are its children, as if it had
    started them.
    """

    def __init__(self, command: Sequence[str], modules: Sequence[str]) -> None:
        self._program, self._modules = command[1:], modules
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def prepare(self, environ: Mapping[str, str], *, piped: bool) -> int | None:
        """As of `Starter`."""
        if self._server is not None:
            return None
        _adopt_orphans(True)
        self._control, theirs = socket.socketpair()
        with theirs:
            begin = "from hocket.launch.forkserver import main; main()"
            self._server = subprocess.Popen(
                [sys.executable, "-c", begin, str(theirs.fileno()), ",".join(self._modules), *self._program],
                env=_with_output(in_common(environ), piped),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                **_LEADER,
            )
        return self._control.fileno()

    def finish(self) -> None:
        """As of `Starter`."""
        said = self._hear()
        if said["error"]:
            raise OSError(f"could not preload {', '.join(self._modules)}: {said['error']}")

    def start(self, environ: Mapping[str, str], *, reads: bool, piped: bool) -> Started:
        """As of `Starter`."""
        from .forkserver import tell

        assert self._control is not None
        pipes = [os.pipe() for _ in range(1 + piped)]
        with ExitStack() as mine, ExitStack() as given:  # ends of pipes
            sources: list[IO[bytes]] = [mine.enter_context(os.fdopen(end, "rb", buffering=0)) for end, _ in pipes]
            for _, end in pipes:
                given.callback(os.close, end)
            stdin = 0
            if not reads:
                stdin = os.open(os.devnull, os.O_RDONLY)
                given.callback(os.close, stdin)
            order = {"environ": dict(_with_output(environ, piped)), "alone": reads and os.isatty(0)}
            with suppress(BrokenPipeError):  # then nothing is heard either
                tell(self._control, order, [stdin, pipes[1][1] if piped else 1, pipes[0][1]])
            said = self._hear()
            if said["error"]:
                raise OSError(said["error"])
            mine.pop_all()
        return Started(said["pid"], partial(_reap, said["pid"]), sources[1] if piped else None, sources[0])

    def close(self) -> None:
        """As of `Starter`."""
        if self._control is not None:
            self._control.close()
            _adopt_orphans(False)
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def _hear(self) -> dict[str, Any]:
        from .forkserver import hear

        assert self._control is not None
        try:
            said, _ = hear(self._control)
        except (EOFError, ConnectionError):
            raise OSError("the process that ranks are forked from has died") from None
        return said


def _with_output(environ: Mapping[str, str], piped: bool) -> Mapping[str, str]:
    return {**environ, "PYTHONUNBUFFERED": "1"} if piped else environ


def _adopt_orphans(adopt: bool) -> None:
    import ctypes  # which few launchers need

    ctypes.CDLL(None).prctl(_SUBREAPER, int(adopt), 0, 0, 0)


def _reap(pid: int) -> None:
    """A rank, and those of its process group that it left to us."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
        while os.waitpid(-pid, os.WNOHANG) != (0, 0):
            pass
