"""`hocket.spawn`: a function in several processes at once, and their results.

The processes are those of `multiprocessing`'s start method "spawn": fresh interpreters, which is safe whatever threads
this one has. As there, a script that spawns guards its main part with `if __name__ == "__main__":`, and the function
must be importable. One that is not (a lambda, or what was typed into an interpreter or a notebook) takes cloudpickle.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import selectors
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from ..config.children import become, child_environ
from ..deadline import Deadline
from ..errors import PeerLost
from ..rendezvous.server import StoreServer
from . import processes
from .aftermath import CONSEQUENCE
from .call import Dumps, checked, pickled
from .processes import Child, Guard, describe
from .reports import Rank, Report, do, gather, results

T = TypeVar("T")


def spawn(
    fn: Callable[..., T],
    size: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
) -> list[T]:
    """Run `fn(*args, **kwargs)` in `size` processes, in which `hocket.init()` finds the others. Their results, by rank.

    Function, arguments and results travel by pickle, over pipes that only this process and its children hold; by
    cloudpickle, if it is installed, where the function or something in the arguments is in no file that the ranks could
    import it from, as in a notebook.

    When a rank fails, the others are ended (SIGTERM, then SIGKILL) and its exception is raised here, with the same type
    where it can be pickled (else HocketError), and a `RemoteTraceback` as `__cause__`. Of several errors the first
    counts, but a PeerLost only if nothing else explains it. A rank that was killed, or left without a result, is a
    PeerLost; one that returned while others still needed it is named beside the PeerLost of these. CollectiveTimeout
    when the ranks have not returned after `timeout` seconds (None: as long as they take). TypeError for arguments that
    are none, and where cloudpickle is wanted and not there.
    """
    call, dumps = pickled(checked(fn, size, args, kwargs, "spawn"), "spawn")
    with _started(call, dumps, size) as ranks:
        return _gather(ranks, None if timeout is None else Deadline(timeout))


# ---- in the parent ----


@dataclass
class _Rank(Rank):
    process: Child
    pipe: Connection = field(kw_only=True)

    def hear(self, *, ended: bool) -> None:
        """Take its report; where it ended without one, that is the report."""
        with suppress(EOFError, OSError):
            if self.report is None and self.pipe.poll():
                self.report = self.pipe.recv()
        if self.report is None and ended:
            code = self.process.exit_code() or 0
            how = f"was {describe(code)}" if code < 0 else f"ended with {describe(code)} before it returned"
            self.report = Report(summary=how, consequence=code == CONSEQUENCE)


@contextmanager
def _started(call: bytes, dumps: Dumps, size: int) -> Iterator[list[_Rank]]:
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
                work = call, dumps, there, environ, os.getpid()
                process = context.Process(target=_work, args=work, name=f"rank {rank}")
                process.start()
            child = Child(rank, process.pid or 0, partial(_reap, process))
            ranks.append(_Rank(child, pipe=here))
            guard.watch(child.pid)
        yield ranks


def _reap(process: SpawnProcess) -> None:
    process.join()
    with suppress(ValueError):  # reaped behind our back
        process.close()


def _finish(ranks: list[_Rank]) -> None:
    processes.end(rank.process for rank in ranks)
    for rank in ranks:
        rank.process.close()


def _gather(ranks: list[_Rank], deadline: Deadline | None) -> list[Any]:
    """All results, or the first error."""
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank.pipe, selectors.EVENT_READ, rank)
            selector.register(rank.process.fd, selectors.EVENT_READ, rank)

        def hear(seconds: float | None) -> None:
            for key, _ in selector.select(seconds):
                key.data.hear(ended=key.fd == key.data.process.fd)
                selector.unregister(key.fileobj)  # each says one thing once: the report, or its end

        gather(ranks, deadline, hear, "spawn")
    return _leave(ranks)


def _leave(ranks: list[_Rank]) -> list[Any]:
    """All have returned; let them end, so that a crash on the way out is no secret."""
    processes.wait((rank.process for rank in ranks), processes.GRACE)
    for rank in ranks:
        code = rank.process.exit_code()
        if code:
            raise PeerLost(f"{rank.process} ended after it had returned its result: {describe(code)}")
    return results(ranks)


# ---- in the rank ----


def _work(call: bytes, dumps: Dumps, pipe: Connection, environ: dict[str, str], parent: int) -> None:
    """The life of one rank."""
    os.setpgrp()
    if os.getppid() != parent:  # it died before its guard knew of this process
        os._exit(1)
    become(environ)
    pipe.send(do(call, dumps))
