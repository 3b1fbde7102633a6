"""Who belongs to a group: smaller groups of it, those that are left of it, and larger ones."""

from __future__ import annotations

import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from ..calls.dispatch import Array, Call, How
from ..deadline import Deadline
from ..errors import CollectiveTimeout, GroupBroken, HocketError, PeerLost, RendezvousError
from ..rendezvous.links import Links
from ..rendezvous.porch import Porch
from ..rendezvous.sockets import explained
from ..rendezvous.subgroups import form, meet
from ..run.native import create_outbox
from ..run.signature import Signature
from .growth import Growth, at_least
from .member import Member, integer
from .recovery import Loss, Recovery

if TYPE_CHECKING:
    from typing_extensions import Self


class Membership(Member):
    """Groups that come of a group."""

    def __init__(self) -> None:
        self._forming = threading.Lock()  # of a group of those that are left, or of more
        self._recovery: Recovery[Self] | None = None
        self._growing: Growth[Self] | None = None  # the latest
        self._next: Self | None = None  # the last of those that have taken the place of this group, one after another
        self._elders: weakref.WeakSet[Self] = weakref.WeakSet()  # whose place it has taken itself
        self._history: tuple[Loss, ...] = ()
        self._porch: Porch | None = None  # where others can join it; a subgroup has none
        self._host: int | None = None  # the rank that lets them in

    @abstractmethod
    def _made(self, rank: int, links: Links, wire: int, *, calls: bool = True) -> Self:
        """A group like this one over these links. Without `calls` what this one has measured holds for it, too."""

    # ---- smaller groups ----------------------------------------------------------------------------------------------

    def subgroup(self, ranks: Sequence[int]) -> Self | None:
        """A new group of `ranks` (of this group), which get the ranks 0, 1, ... there, in the order given.

        Every rank of this group calls it, with the same `ranks`; those that are not among them get None. The new group
        works apart from this one and must be closed on its own.
        """
        members = [self._go.rank_of(rank, "a member") for rank in ranks]
        if len(set(members)) != len(members) or not members:
            raise ValueError(f"ranks {members} are no group: each member once, and at least one")
        if self.rank not in members:
            return self._form(f"subgroup({members})", None, 0)
        return self._form(f"subgroup({members})", 0, members.index(self.rank))

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """New groups, one per `color`, each of the ranks that gave that colour, in the order of (`key`, rank).

        Every rank of this group calls it; those whose colour is None get None. As in MPI_Comm_split.
        """
        return self._form("split", None if color is None else integer(color, "color"), integer(key, "key"))

    def _form(self, within: str, color: int | None, key: int) -> Self | None:
        """All of it in one turn, so that every rank forms its groups in one order."""
        deadline = Deadline(self._go.timeout)

        def gather(row: Array) -> Array:
            shape = (self.size, row.size)
            signature = Signature("all_gather", row.dtype, shape, within=within)
            rows: Array = self._go.do_inside(Call(signature, How(), row, row[None], shape), deadline)
            return rows

        def look(waited_for: list[int]) -> None:
            self._calls.look(waited_for[0], within, deadline)

        def call() -> Self | None:
            part = form(self._links, gather, color, key, deadline)
            if part is None:
                return None
            link = partial(meet, part, self._links, deadline=deadline, look=look)
            return self._made(part.rank, assembled(len(part.members), link), self._go.native.topology.wire)

        return cast("Self | None", self._calls.do(call, within, deadline.left(), False))

    # ---- after a failure ---------------------------------------------------------------------------------------------

    def recover(self, timeout: float | None = None, *, allow_minority: bool = False) -> Self:
        """A new group of those that are left, after an error has ended this one, which is closed.

        All of them call it; who does not within about two thirds of `timeout` (seconds; the group's by default) is
        taken for lost, as those are which the error names as `lost`. Ranks are renumbered in order; down to a world of
        one. The members are the same on all of them, or it fails on all: whoever is lost in the middle of it is left
        out in another attempt. Who is interrupted in it calls it again. Arrays of this group's `empty` remain
        arrays, and are nobody else's any more; subgroups recover on their own.

        Of a group of several hosts, a part that may have lost sight of as many ranks as it has goes on only with
        `allow_minority`: those may do so, too. What decides where both are equally many is the lowest rank.

        Raises PeerLost where the others went on without this rank, CollectiveTimeout, RendezvousError, and HocketError
        where nothing has ended this group, or those that are left are too few.
        """
        with self._forming:
            if (after := self._after()) is not None:
                return after if after._calls.usable else after.recover(timeout, allow_minority=allow_minority)
            over = self._calls.conclude()
            if self.rank in over.lost:
                raise over
            if self._recovery is None:
                make = partial(self._made, wire=self._go.native.topology.wire, calls=False)
                self._recovery = Recovery(self._calls.endpoint, self.rank, self._links, over, make)
            recovery = self._recovery
            group = recovery.group(Deadline(self._go.seconds(timeout)), allow_minority=allow_minority)
            return self._left_for(group, recovery.loss())

    def _left_for(self, group: Self, *losses: Loss) -> Self:
        """This group is over, and that one takes its place. Again, where this rank was interrupted in it."""
        group._history, group._porch = (*self._history, *losses), self._porch
        group._elders = weakref.WeakSet([*self._elders, self])
        for elder in group._elders:  # who still holds one of them does not hold all that came between
            elder._next, elder._growing, elder._recovery = group, None, None
        self._close(None)
        return group

    @property
    def _latest(self) -> Self:
        """The last of those that have taken its place; itself, if none has."""
        return self if self._next is None else self._next

    def _after(self) -> Self | None:
        """The group that has taken the place of this one: for who has lost it, by an interrupt as it came about, or by
        an error in what was to follow."""
        growing = self._growing
        commit = growing.commit if growing is not None else None
        if self._next is None and commit is not None and commit.may_count:
            return self._left_for(commit.group)
        return self._next

    @property
    def history(self) -> tuple[Loss, ...]:
        """What this group and those that it recovered from have been through."""
        return self._history

    # ---- growth ------------------------------------------------------------------------------------------------------

    def pending(self, *, timeout: float | None = None) -> int:
        """How many wait to join this group (`hocket.join`), the same number on all ranks. All of them call it.

        A call of a few microseconds on one host; one rank looks 50 times a second at most. Raises RendezvousError where
        nobody can join: a subgroup, and a world of one that was started without a meeting point; else as other calls.
        """
        deadline = Deadline(self._go.seconds(timeout))
        return self._growth("pending()", deadline).waiting(deadline)

    def grow(self, size: int | None = None, *, timeout: float | None = None) -> Self:
        """A new group, in which those that wait to join have the ranks behind the present ones; this one is closed.

        All ranks call it. Without `size` it takes in those that wait now, and returns this group where that is nobody.
        With it, it waits until the group has at least so many ranks with them; where it has them already, it is as
        without. Where an error has ended this group it recovers first (`recover`). Arrays of this group's `empty`
        remain arrays; subgroups remain.

        Either all ranks go on in the new group, or it fails on all. Who comes to be lost in the middle of it is an
        error of this group where it is a member, or else is left out.

        `timeout` is in seconds, by default the group's. Raises CollectiveTimeout where so many have not come, which
        leaves the group as it was, or recovered (`recover` gives it then); RendezvousError as `pending`; else as other
        calls and `recover`.
        """
        deadline, least = Deadline(self._go.seconds(timeout)), 0 if size is None else integer(size, "size")
        if least > self.size and self._porch is not None and self._porch.leads_nowhere:
            raise RendezvousError("nobody can join this world of one: start it with a launcher, or with `rendezvous`")
        if (after := self._after()) is not None:
            return after if after.size > self.size else after.grow(size, timeout=timeout)
        try:
            if not self._calls.broken:
                with self._forming:
                    return self._grow(self._growth(f"grow({least or ''})", deadline), deadline, least)
        except (PeerLost, GroupBroken) as error:
            why = error.__cause__ if isinstance(error, GroupBroken) else error
            if not isinstance(why, PeerLost) or not deadline.left():
                raise
        return self.recover(at_least(deadline)).grow(size, timeout=at_least(deadline))

    def _grow(self, growth: Growth[Self], deadline: Deadline, least: int) -> Self:
        self._growing = growth
        try:
            while waiting := growth.waiting(deadline, least):
                if self.size + waiting < least:
                    break
                group = growth.attempt(deadline)
                if group is not None:
                    return self._left_for(group)
        except BaseException as error:
            growth.abandon(error)
            with suppress(HocketError):
                if not growth.told:  # of this rank alone, between two calls: the others are not to wait for its next
                    self._calls.conclude(error)
            raise
        if self.size + waiting < least:
            raise CollectiveTimeout(
                f"of {least} ranks that were waited for there are {self.size}, and {waiting} that wait to join, after "
                f"{deadline}"
            )
        return self

    def _growth(self, within: str, deadline: Deadline) -> Growth[Self]:
        if self._porch is None:
            raise RendezvousError("nobody can join this group: only one that hocket.init or hocket.join made can grow")
        if self._host is None:
            here = self._objects.collect(b"here" * self._porch.is_here, within, at_least(deadline))
            self._host = next((rank for rank, word in enumerate(here) if word), 0)
        return Growth(self, self._host, self._porch, self._made, within)


def assembled(size: int, meet: Callable[[int], Links]) -> Links:
    """What `meet` makes of a new outbox."""
    with explained("this rank has no memory to share"):
        fd = create_outbox(size)
    try:
        return meet(fd)
    finally:
        os.close(fd)
