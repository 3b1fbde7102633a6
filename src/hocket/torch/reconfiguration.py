"""Groups whose members change at a word of the program's: torch's `reconfigure`, from 2.14 on.

```python
dist.init_process_group("hocket", enable_reconfigure=True)         # meets nobody yet
uuid, handles = exchanged(dist._get_reconfigure_handle())          # by the program, or torchft
dist._reconfigure(uuid=uuid, handles=handles).wait()               # and again whenever somebody is lost, or comes
```

A handle is a card (`rendezvous.cards`) of a door that is open until this process's next reconfigure(), sealed with the
job's secret. So those that hold all of them link as ranks do that recover, and no store is needed. Each handle is good
for one: who is still at an earlier one has another door, and the two never meet.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from contextlib import closing
from typing import Any, cast

import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType
from torch.distributed import distributed_c10d as c10d

from ..config import job_protect, job_route, job_secret, job_sockets
from ..deadline import Deadline
from ..errors import CollectiveTimeout, HocketError, PeerLost, RendezvousError
from ..group import Group, assemble
from ..rendezvous.cards import Card
from ..rendezvous.doors import Door
from ..rendezvous.links import Links, Terms, key_of, meet_at
from .group import ProcessGroup
from .uncompiled import uncompiled
from .work import Pending

_HEAD, _LABEL = "hocket:", "reconfigure"


class _Unformed:
    """In the place of a group, where there is none: every call raises why."""

    def __init__(self, timeout: float, why: str, error: ErrorType) -> None:
        self.timeout, self.why, self.error = timeout, why, error

    def close(self) -> None:
        """There is nothing to leave."""

    def __exit__(self, *_: object) -> None:
        """Nor is there anybody to be told."""

    def __getattr__(self, name: str) -> Any:
        raise HocketError(self.why)


@uncompiled
class Reconfigurable(ProcessGroup):
    """One rank's end of a group that has no members but itself until `reconfigure` names them. Its rank and its size
    are what torch was told until then, and what they are in the new group from then on."""

    supports_reconfigure = True

    def __init__(self, store: Any, rank: int, size: int, timeout: float) -> None:
        none = _Unformed(timeout, "this group has no members yet: reconfigure() tells which", ErrorType.SUCCESS)
        super().__init__(store, rank, size, timeout, cast(Group, none))
        self._terms = Terms.of(job_secret(), job_route(), False, job_sockets())
        self._door: Door | None = None
        self._handle = ""

    def get_reconfigure_handle(self) -> str:
        """By which the others find this process in the next `reconfigure`; a new one after each."""
        if self._door is None:
            self._door = Door.open(self._terms.towards, self._terms.sockets)
            self._door.told = True
            note = self._terms.card(self._door, 0).note(self._terms.secret, _LABEL)
            self._handle = _HEAD + b64encode(note).decode()
        return self._handle

    def reconfigure(self, opts: Any) -> dist.Work:
        """Leave the group, and form one with those whose `opts.handles` these are, this process's among them: of a
        list in its order, of a set in one that is the same for all. All of them call it with the same `opts.uuid`.

        What has been put before fails, on all ranks of the former group. What follows comes after it. Raises
        ValueError for handles that make no sense; the Work raises RendezvousError where not all come within
        `opts.timeout` (the group's by default), and names who did not.
        """
        handles = list(opts.handles) if isinstance(opts.handles, (list, tuple)) else sorted(opts.handles)
        if len(set(handles)) != len(handles):
            raise ValueError("a handle is given twice: each process has one rank")
        if self._door is None or self._handle not in handles:
            raise ValueError(
                "none of these handles is this process's present one: get_reconfigure_handle() gives a new one after "
                "each reconfigure()"
            )
        rank = handles.index(self._handle)
        cards = [self._card(handle, place, rank) for place, handle in enumerate(handles)]
        seconds = self._group.timeout if opts.timeout is None else opts.timeout.total_seconds()
        door, self._door = self._door, None
        former = self._group
        former.__exit__(ConnectionAbortedError, ConnectionAbortedError("reconfigure() was called"), None)
        job = lambda: self._form(door, cards, rank, (opts.uuid, *handles), former.timeout, Deadline(seconds))  # noqa: E731
        return Pending([], self._executor.put(job, "reconfigure"))

    def _card(self, handle: str, place: int, rank: int) -> Card:
        try:
            note = b64decode(handle.removeprefix(_HEAD), validate=True) if handle.startswith(_HEAD) else b""
            return Card.read(note, self._terms.secret, _LABEL, place, rank)._replace(rank=place)
        except (Error, ValueError, RendezvousError) as error:
            raise ValueError(f"handle {place} is none of this job's ({error}): {handle:.40}") from error

    def _form(
        self, door: Door, cards: list[Card], rank: int, names: tuple[Any, ...], timeout: float, deadline: Deadline
    ) -> None:
        def meet(fd: int) -> Links:
            if len(cards) == 1:
                links = Links.alone(fd, self._terms)
            else:
                links = meet_at(door, cards, rank, fd, self._terms, deadline)
            links.key = key_of(*names)
            return links

        with closing(door):
            try:
                group = assemble(rank, len(cards), timeout, meet, protect=job_protect())
            except BaseException as error:
                why = f"this group has no members: the latest reconfigure() failed ({error})"
                self._group = cast(Group, _Unformed(timeout, why, ErrorType.COMM_ERROR))
                raise
        self._group, self._rank, self._size, self._rounds = group, rank, len(cards), 0
        if self in c10d._world.pg_group_ranks:
            c10d._world.pg_group_ranks[self] = {r: r for r in range(len(cards))}

    def abort(self) -> None:
        """Leave the group at once; the other ranks get PeerLost. `reconfigure` forms another one."""
        error = self.get_error()
        super().abort()
        error = ErrorType.COMM_ERROR if error == ErrorType.SUCCESS else error
        why = "abort() has ended this group: reconfigure() tells which members another one has"
        self._group = cast(Group, _Unformed(self._group.timeout, why, error))

    def get_error(self) -> ErrorType:
        """Of what kind the error is that has ended the group, if one has."""
        if isinstance(self._group, _Unformed):
            return self._group.error
        calls = self._group._calls
        match calls.settled():
            case None:
                return ErrorType.SUCCESS if calls.usable else ErrorType.COMM_ERROR
            case CollectiveTimeout():
                return ErrorType.TIMEOUT
            case PeerLost():
                return ErrorType.REMOTE_ERROR
        return ErrorType.COMM_ERROR

    getError = get_error

    def shutdown(self) -> None:
        """Leave the group, and listen no longer. A second call does nothing."""
        super().shutdown()
        door, self._door = self._door, None
        if door is not None:
            door.close()
