"""What a process group is, apart from its collectives: how it comes about, how its calls are made, how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ..calls.executor import Executor
from ..config import job_protect, job_route, job_secret, job_sockets
from ..deadline import Deadline
from ..group import Group, assemble
from ..group.recovery import Loss
from ..places import made_at, place
from ..rendezvous.foreign import ForeignStore
from ..rendezvous.join import announce
from ..rendezvous.links import Links, Terms, connect
from . import last_words
from .profiling import event, followed
from .uncompiled import uncompiled
from .work import DONE, Collective, Done, Pending, Tensors, Transfer

T = TypeVar("T")
Job = Callable[[float | None], object]  # told how many seconds it may take

_NO_TIMEOUT = timedelta(0)
_LONG, _SOON = 1e9, 1e-6  # seconds: each call has a deadline of its own; and what is left of one that has passed


@uncompiled
class Base(dist.ProcessGroup):
    """One rank's end of a group.

    A call with `async_op=False` is made on the caller's thread, and what it gives back is `DONE`. Any other call is put
    into a queue. Both are the same job, which either way runs after all jobs that this rank put before.

    Except for what DDP's reducer calls: it only ever wants a future at once, whose callbacks come in the order of the
    program if it is done (see `Collective.get_future`). That call is made on the caller's thread, too.
    """

    # What torch asks of `_get_backend(device)`, which is this group too.
    supports_coalescing = supports_splitting = supports_time_estimate = False

    def __init__(self, store: Any, rank: int, size: int, timeout: float, group: Group | None = None) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size = store, rank, size
        self._name = self._description = ""
        self._group = group or assemble(rank, size, timeout, partial(self._connect, timeout), protect=job_protect())
        self._executor = Executor()
        # As many as there are futures of messages, which nobody else may wait for.
        self._waiters = ThreadPoolExecutor(1 << 16, "hocket-message")
        self._transfers: list[Transfer] | None = None  # those of a coalesced batch
        self._rounds = 0  # of monitored_barrier
        last_words.of(self)

    def _connect(self, timeout: float, fd: int) -> Links:
        notes, terms = ForeignStore(self._store), Terms.of(job_secret(), job_route(), False, job_sockets())
        meeting = notes.arrive(self._rank)
        links = connect(notes, self._rank, self._size, fd, timeout, f"{meeting}/", terms=terms)
        announce()
        return links

    # ---- how a call is made ------------------------------------------------------------------------------------------

    def _seconds(self, timeout: timedelta) -> float | None:
        """A call's own deadline; torch says that there is none by -1 ms."""
        return timeout.total_seconds() if timeout > _NO_TIMEOUT else None

    def _do(self, name: str, opts: Any, inputs: Tensors, outputs: Tensors, job: Job) -> Done | Pending:
        seconds = self._seconds(opts.timeout)
        if not opts.asyncOp and not self._executor.busy:
            with event(name, inputs):
                job(seconds)
            return DONE
        here = place()
        text = f"{name} of {sum(tensor.numel() for tensor in outputs)} elements{here}"
        deadline = Deadline(self._group.timeout if seconds is None else seconds)  # of the call, not of its turn
        perform = followed(name, partial(_perform, job, deadline, here))
        if opts.asyncOp:
            return Collective(outputs, self._executor.put(perform, text))
        self._executor.do(perform, _LONG)
        return DONE

    def in_turn(self, function: Callable[[], T]) -> T:
        """What `function` returns, which makes calls of the group, after all that this rank has put before."""
        return self._executor.do(function, _LONG)

    # ---- life, and what torch asks about a group ---------------------------------------------------------------------

    def shutdown(self) -> None:
        """Do what is queued, leave the group, and end its threads. A second call does nothing."""
        self._executor.close()
        self._waiters.shutdown(wait=not threading.current_thread().name.startswith("hocket-"))
        self._group.close()

    def abort(self) -> None:
        """Leave the group at once; the other ranks get PeerLost."""
        self.leave(ConnectionAbortedError("abort() was called"))

    def leave(self, error: BaseException) -> None:
        """Leave because of `error`, which the other ranks are told."""
        self._group.__exit__(type(error), error, error.__traceback__)

    def set_timeout(self, timeout: timedelta) -> None:
        """The deadline of later calls."""
        self._group.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def rank(self) -> int:
        """This rank, in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    # What C++ calls has C++'s names.
    getRank, getSize = rank, size

    def getBackendName(self) -> str:
        """hocket."""
        return "hocket"

    def setGroupName(self, name: str) -> None:
        """Torch names the group after it has made it."""
        self._name = name

    def getGroupName(self) -> str:
        """Torch's name of the group."""
        return self._name

    def setGroupDesc(self, description: str) -> None:
        """Torch describes it, too."""
        self._description = description

    def getGroupDesc(self) -> str:
        """Torch's description of the group."""
        return self._description

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    @property
    def history(self) -> tuple[Loss, ...]:
        """What this group and those that it recovered from have been through: who was lost, and why."""
        return self._group.history

    def get_group_store(self) -> Any:
        """The store that the ranks met in."""
        return self._store

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> Base:
        return self


def _perform(job: Job, deadline: Deadline, here: str) -> None:
    with made_at(here):
        job(max(deadline.left(), _SOON))
