"""How the process of a rank begins: as a program of its own, or as a fork of one that has imported what it needs."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import IO, Any, NamedTuple, Protocol, TypeAlias

from ..config.children import in_common

# For Popen: the rank leads a group of its own. A function to be called in the child takes a fork of all our memory.
_LEADER: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
_ALONE: dict[str, Any] = {"start_new_session": True}
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # PR_SET_CHILD_SUBREAPER
_ANSWERS = 30.0  # seconds that a fork may take: longer, and who is to do it was stopped
_SILENT = "the process that ranks are forked from does not answer"
Watch: TypeAlias = Callable[[int], object]  # see to it that the process group of a pid does not outlive us


class Started(NamedTuple):
    """A rank's process, a child of this one, and our ends of its streams: no `stdout` where it writes to ours."""

    pid: int
    reap: Callable[[], object]
    stdout: IO[bytes] | None
    stderr: IO[bytes]


class Starter(Protocol):
    """Starts ranks, which each lead a process group.

    One that `reads` gets our stdin; where that is a terminal it leaves our session, or reading from it would stop it.
    Output that is `piped` comes at once, not when there is much of it. Whatever it starts is given to `watch` first.
    """

    def prepare(self, environ: Mapping[str, str], watch: Watch, *, piped: bool) -> int | None:
        """Begin with what takes long, in the environment of a rank: a descriptor that can be read when it is over. None
        where nothing is to be waited for."""

    def finish(self) -> None:
        """After that. Raises OSError where ranks can't be started."""

    def start(self, environ: Mapping[str, str], watch: Watch, *, reads: bool, piped: bool) -> Started:
        """One rank, which may wait for `begin`. Raises OSError where it can't be started, and InterruptedError
        where a signal came first."""

    def begin(self) -> None:
        """Let those run that were started."""

    def close(self) -> None:
        """No more are started."""


class Programs:
    """Each rank is a new process that runs the command."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def prepare(self, environ: Mapping[str, str], watch: Watch, *, piped: bool) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""

    def start(self, environ: Mapping[str, str], watch: Watch, *, reads: bool, piped: bool) -> Started:
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
        watch(process.pid)
        assert process.stderr is not None
        return Started(process.pid, process.wait, process.stdout, process.stderr)

    def begin(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Forks:
    """Each rank is a fork of one process that has imported the `modules`: `forkserver.py` is its life.

    It forks twice, and this process is the one that is given the orphans: so ranks are its children, as if it had
    started them. A rank waits for its permit, which it gets once it is watched, and all others are forked that are to
    begin with it: what it leaves behind is not for us to be given. What comes in at `signals` is more urgent than an
    answer.
    """

    def __init__(self, command: Sequence[str], modules: Sequence[str], signals: int) -> None:
        self._program, self._modules, self._signals = command[1:], modules, signals
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._permits: list[int] = []  # of those that wait

    def prepare(self, environ: Mapping[str, str], watch: Watch, *, piped: bool) -> int | None:
        """As of `Starter`."""
        if self._server is not None:
            watch(self._server.pid)
            return None
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
        watch(self._server.pid)
        self._control.settimeout(_ANSWERS)
        return self._control.fileno()

    def finish(self) -> None:
        """As of `Starter`."""
        said = self._hear()
        if said["error"]:
            raise OSError(f"could not preload {', '.join(self._modules)}: {said['error']}")

    def start(self, environ: Mapping[str, str], watch: Watch, *, reads: bool, piped: bool) -> Started:
        """As of `Starter`."""
        with ExitStack() as mine, ExitStack() as given:  # ends of pipes
            stdin = 0 if reads else os.open(os.devnull, os.O_RDONLY)
            if not reads:
                given.callback(os.close, stdin)
            stderr, stderr_end = _pipe(mine, given)
            stdout, stdout_end = _pipe(mine, given) if piped else (None, 1)
            waits, permit = os.pipe()
            given.callback(os.close, waits)
            mine.callback(os.close, permit)
            order = {"environ": dict(_with_output(environ, piped)), "alone": reads and os.isatty(0)}
            with _adopting_orphans():
                pid = self._fork(order, [stdin, stdout_end, stderr_end, waits])
            watch(pid)
            mine.pop_all()
            self._permits.append(permit)
        return Started(pid, partial(os.waitpid, pid, 0), stdout, stderr)

    def begin(self) -> None:
        """As of `Starter`."""
        while self._permits:
            with os.fdopen(self._permits.pop(0), "wb", buffering=0) as permit, suppress(BrokenPipeError):
                permit.write(b"!")

    def close(self) -> None:
        """As of `Starter`."""
        while self._permits:
            os.close(self._permits.pop())
        if self._control is not None:
            self._control.close()
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)  # with what the modules started
            self._server.wait()

    def _fork(self, order: dict[str, Any], descriptors: Sequence[int]) -> int:
        from .forkserver import tell

        assert self._control is not None
        with suppress(BrokenPipeError):  # then nothing is heard either
            tell(self._control, order, descriptors)
        came, _, _ = select.select([self._signals, self._control.fileno()], [], [], _ANSWERS)
        if self._signals in came:
            raise InterruptedError
        if not came:
            raise OSError(_SILENT)
        said = self._hear()
        if said["error"]:
            raise OSError(said["error"])
        return int(said["pid"])

    def _hear(self) -> dict[str, Any]:
        from .forkserver import hear

        assert self._control is not None
        try:
            said, _ = hear(self._control)
        except (EOFError, ConnectionError):
            raise OSError("the process that ranks are forked from has died") from None
        except TimeoutError:
            raise OSError(_SILENT) from None
        return said


def _pipe(mine: ExitStack, given: ExitStack) -> tuple[IO[bytes], int]:
    """Our end, as a file, and the other one."""
    here, there = os.pipe()
    given.callback(os.close, there)
    return mine.enter_context(os.fdopen(here, "rb", buffering=0)), there


def _with_output(environ: Mapping[str, str], piped: bool) -> Mapping[str, str]:
    return {**environ, "PYTHONUNBUFFERED": "1"} if piped else environ


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    import ctypes  # which few launchers need

    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_SUBREAPER, before.value, 0, 0, 0)
