"""`hocket.spawn`: a function in several processes at once, and their results.

The processes are those of `multiprocessing`'s start method "spawn": fresh interpreters, which is safe whatever threads
this one has. As there, the function must be importable (no lambda, nothing typed into an interactive prompt), and a
script that spawns guards its main part with `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import selectors
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from ..config import child_environ
from ..deadline import Deadline
from ..errors import CollectiveTimeout, HocketError, PeerLost
from ..rendezvous.server import StoreServer
from . import processes
from .aftermath import CONSEQUENCE, PATIENCE, is_consequence, left_too_early
from .processes import Child, Guard, describe

T = TypeVar("T")


class RemoteTraceback(Exception):
    """The `__cause__` of an error that `spawn` raises: which rank raised it, and its traceback there, as text."""


def spawn(
    fn: Callable[..., T],
    size: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
) -> list[T]:
    """Run `fn(*args, **kwargs)` in `size` processes, in which `hocket.init()` finds the others. Their results, by rank.

    Function, arguments and results travel by pickle, over pipes that only this process and its children hold.

    When a rank fails, the others are ended (SIGTERM, then SIGKILL) and its exception is raised here, with the same type
    where it can be pickled (else HocketError), and a `RemoteTraceback` as `__cause__`. Of several errors the first
    counts, but a PeerLost only if nothing else explains it. A rank that was killed, or left without a result, is a
    PeerLost; one that returned while others still needed it is named beside the PeerLost of these. CollectiveTimeout
    when the ranks have not returned after `timeout` seconds (None: as long as they take).
    """
    if size < 1:
        raise ValueError(f"size is {size}; at least one rank is needed")
    call = pickle.dumps((fn, tuple(args), dict(kwargs or {})))
    with _started(call, size) as ranks:
        return _gather(ranks, None if timeout is None else Deadline(timeout))


@dataclass(frozen=True)
class _Report:
    """What became of one rank: its result, pickled, or how it failed."""

    result: bytes | None = None
    error: bytes | None = None  # the exception, where it can be pickled
    summary: str = ""
    trace: str = ""
    consequence: bool = False
    when: float = field(default_factory=time.monotonic)  # one clock for all processes of a host


# ---- in the parent ----


@dataclass
class _Rank:
    child: Child
    pipe: Connection
    report: _Report | None = None

    def hear(self, *, ended: bool) -> None:
        """Take its report; where it ended without one, that is the report."""
        with suppress(EOFError, OSError):
            if self.report is None and self.pipe.poll():
                self.report = self.pipe.recv()
        if self.report is None and ended:
            code = self.child.exit_code() or 0
            how = f"was {describe(code)}" if code < 0 else f"ended with {describe(code)} before it returned"
            self.report = _Report(summary=how, consequence=code == CONSEQUENCE)

    def failure(self, early: Child | None = None) -> Exception:
        """What to raise for a rank that failed, perhaps since another one left too `early`."""
        assert self.report is not None
        after = f", after {early} had returned while the others still needed it" if early else ""
        if not self.report.trace:
            return PeerLost(f"{self.child} {self.report.summary}{after}")
        error = None
        with suppress(Exception):  # whatever a foreign class does when it is unpickled
            error = pickle.loads(self.report.error or b"")
        if not isinstance(error, Exception):
            error = HocketError(f"{self.child} failed: {self.report.summary}")
        if hasattr(error, "add_note"):
            error.add_note(f"raised by {self.child}{after}")
        error.__cause__ = RemoteTraceback(f"{self.child} raised it{after}:\n\n{self.report.trace}")
        return error


@contextmanager
def _started(call: bytes, size: int) -> Iterator[list[_Rank]]:
    """The ranks at work; at the end of the block no process is left."""
    context = multiprocessing.get_context("spawn")
    address, secret = f"@hocket-{secrets.token_hex(16)}", secrets.token_bytes(16)
    ranks: list[_Rank] = []
    with ExitStack() as stack:
        guard = stack.enter_context(closing(Guard()))
        stack.enter_context(closing(StoreServer(address, secret=secret).start()))
        port = stack.enter_context(processes.reserved_port())
        stack.callback(_finish, ranks)
        for rank in range(size):
            here, there = context.Pipe(duplex=False)
            stack.callback(here.close)
            with there:
                environ = child_environ(rank, size, address, secret, port)
                process = context.Process(target=_work, args=(call, there, environ, os.getpid()), name=f"rank {rank}")
                process.start()
            child = Child(rank, process.pid or 0, partial(_reap, process))
            ranks.append(_Rank(child, here))
            guard.watch(child.pid)
        yield ranks


def _reap(process: SpawnProcess) -> None:
    process.join()
    with suppress(ValueError):  # reaped behind our back
        process.close()


def _finish(ranks: list[_Rank]) -> None:
    processes.end(rank.child for rank in ranks)
    for rank in ranks:
        rank.child.close()


def _gather(ranks: list[_Rank], deadline: Deadline | None) -> list[Any]:
    """All results, or the first error."""
    patience: Deadline | None = None
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank.pipe, selectors.EVENT_READ, rank)
            selector.register(rank.child.fd, selectors.EVENT_READ, rank)
        while waiting := [rank for rank in ranks if rank.report is None]:
            if (failed := _first(ranks)) is not None:
                patience = patience or Deadline(PATIENCE)
                if not failed[0] or not patience.left():
                    break
            if deadline is not None and not deadline.left():
                who = ", ".join(str(rank.child) for rank in waiting)
                raise CollectiveTimeout(f"spawn: after {deadline} these had not returned: {who}")
            limits = [limit.left() for limit in (deadline, patience) if limit is not None]
            for key, _ in selector.select(min(limits, default=None)):
                key.data.hear(ended=key.fd == key.data.child.fd)
                selector.unregister(key.fileobj)  # each says one thing once: the report, or its end
    if (failed := _first(ranks)) is not None:
        raise failed[2].failure(_early(ranks, failed[2]))
    return _leave(ranks)


def _first(ranks: list[_Rank]) -> tuple[bool, float, _Rank] | None:
    """The failure that counts: causes before consequences, then by time."""
    failed = [(r.report.consequence, r.report.when, r) for r in ranks if r.report and r.report.result is None]
    return min(failed, key=lambda failure: failure[:2], default=None)


def _early(ranks: list[_Rank], failed: _Rank) -> Child | None:
    """Who returned while a rank that failed for lack of a peer still needed it."""
    done = [rank for rank in ranks if rank.report and rank.report.result is not None]
    done.sort(key=lambda rank: rank.report.when if rank.report else 0.0)
    if failed.report is None or not failed.report.consequence:
        return None
    return left_too_early([rank.child for rank in done], failed.report.trace)


def _leave(ranks: list[_Rank]) -> list[Any]:
    """All have returned; let them end, so that a crash on the way out is no secret."""
    processes.wait((rank.child for rank in ranks), processes.GRACE)
    for rank in ranks:
        code = rank.child.exit_code()
        if code:
            raise PeerLost(f"{rank.child} ended after it had returned its result: {describe(code)}")
    return [pickle.loads(rank.report.result) for rank in ranks if rank.report and rank.report.result]


# ---- in the rank ----


def _work(call: bytes, pipe: Connection, environ: dict[str, str], parent: int) -> None:
    """The life of one rank."""
    os.setpgrp()
    if os.getppid() != parent:  # it died before its guard knew of this process
        os._exit(1)
    os.environ.update(environ)
    try:
        fn, args, kwargs = pickle.loads(call)
        report = _Report(result=pickle.dumps(_call(fn, args, kwargs)))
    except BaseException as error:
        report = _failed(error)
    pipe.send(report)


def _call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except SystemExit as leave:
        if leave.code in (None, 0):
            return None
        raise


def _failed(error: BaseException) -> _Report:
    pickled = None
    with suppress(Exception):
        pickled = pickle.dumps(error) if isinstance(error, Exception) else None
    frame = error.__traceback__
    while frame and frame.tb_next and frame.tb_frame.f_code.co_filename == __file__:  # this page is no news
        frame = frame.tb_next
    trace = "".join(traceback.format_exception(type(error), error, frame))
    summary = traceback.format_exception_only(type(error), error)[-1].strip()
    return _Report(error=pickled, summary=summary, trace=trace, consequence=is_consequence(error))
