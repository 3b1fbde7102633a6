"""How a group takes in those that wait on its porch (`rendezvous.porch`), and how they come in.

```
who       one of them, the host, tells all members how many wait
doors     each member opens one, and the host tells all, old and new, where all of them are
link      all of them, as the first ones did
linked    members tell each other, in the old group, whether they could
commit    a call of the new group: when one rank has come through it, it is everybody's
```

What fails before that call leaves the old group as it was, and those that wait go on waiting. Where a member has no
memory or no descriptors left for it, all members are told so, and raise. What fails in that call ends
the new group, on all of its ranks in one way, so that they know alike whether anybody came through. If so it is their
group, and in its next call they hear that it has ended; else it has never been. Those that have lost sight of most of
it do not know, and do not go back to the old group, in which they might be the majority.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

from ..deadline import Deadline
from ..errors import HocketError, RendezvousError
from ..rendezvous.cards import Card, places
from ..rendezvous.doors import Door
from ..rendezvous.links import Links, Terms, meet_at, new_key
from ..rendezvous.mesh import Look
from ..rendezvous.porch import Admission, Caller, Porch
from ..rendezvous.sockets import explained, reason
from ..run.native import create_outbox
from .member import G
from .recovery import is_majority, is_own

_GROW = "grow()"
_FORMING = 5.0  # seconds at most for those that wait to link: who does not is gone, or stopped, and may come again
_POLL = 0.01  # seconds between two looks who has come
_SPARE = 1.0  # seconds before the deadline, or half of the time, in which all are told that too few have come
_IN_VAIN = 3  # attempts in which all have linked, and not come through, before those that wait are sent away
_LEAST = 0.001  # seconds for a call whose deadline has passed just before it

T = TypeVar("T")
Make = Callable[[int, Links, int], G]  # of a rank, its links, and what is known of them


@dataclass
class Commit(Generic[G]):
    """A group, and the number of a call in it after which something holds for all: that it is theirs. The call serves
    the one `within`."""

    group: G
    call: int
    within: str

    @staticmethod
    def of(group: G, within: str) -> Commit[G]:
        """By its next call."""
        return Commit(group, group._calls.endpoint.completed + 1, within)

    def make(self, seconds: float) -> None:
        """Make that call. HocketErrors are not raised: `counts` knows."""
        with suppress(HocketError):
            self.group._objects.tell(b"", self.within, seconds)  # as a barrier: no call ends before all are in it

    def end(self, error: BaseException) -> None:
        """Where this rank has not come through the call the group ends: it has to be known whether it counts."""
        endpoint = self.group._calls.endpoint
        if endpoint.outcome() is None and endpoint.completed < self.call:
            self.group._calls.conclude(error)

    @property
    def counts(self) -> bool:
        """Whether it is everybody's group: to be asked after the call, whatever came of that."""
        outcome = self.group._calls.endpoint.outcome()
        return outcome is None or outcome[5] >= self.call

    @property
    def may_count(self) -> bool:
        """Whether it counts, or that cannot be known: ranks are out of sight that may have come through the call, and
        are so many that they go on in the new group. Then nobody goes back to the old one."""
        outcome = self.group._calls.endpoint.outcome()
        return self.counts or (outcome is not None and not is_majority(self.group._links.places, outcome[3]))


class Growth(Generic[G]):
    """One member's part in the growth of its group. `within` is the call that it makes."""

    def __init__(self, group: G, host: int, porch: Porch, make: Make[G], within: str) -> None:
        self._rank, self._size, self._host = group.rank, group.size, host
        self._wire = group._go.native.topology.wire
        self._links, self._porch, self._make, self._within = group._links, porch, make, within
        self._calls, self._objects = group._calls, group._objects
        self._me = group._links.name(group.rank)
        self._lacks = ""  # why this rank cannot link, where it is nobody else's fault
        self._missing: list[int] = []  # of the ranks that are to link
        self._linked: Links | None = None  # of no group yet
        self._made: G | None = None
        self._in_vain = 0
        self._callers: list[Caller] = []  # that are let in, where this is the host
        self.commit: Commit[G] | None = None  # the latest: for who is interrupted in it
        self.told = False  # whether the error that is raised is all members'

    def waiting(self, deadline: Deadline, size: int = 0) -> int:
        """How many wait now, or as soon as the group would have `size` ranks with them, or soon before the deadline.
        The same on all members, or RendezvousError where nobody can come."""
        found = ""
        if self._rank == self._host:
            until = Deadline(deadline.left() - min(_SPARE, deadline.left() / 2))
            found = self._in_turn(lambda: self._look_who(until, size), deadline)
        found = self._objects.tell(found.encode(), self._within, at_least(deadline), self._host).decode()
        if not found.isdecimal():
            self.told = True
            raise RendezvousError(found)
        return int(found)

    def _look_who(self, until: Deadline, size: int) -> str:
        try:
            while True:
                count = len(self._porch.waiting())
                if self._size + count >= size or not until.left():
                    return str(count)
                if self._size > 1:
                    self._calls.look(int(self._rank == 0), self._within, Deadline(_FORMING))
                time.sleep(_POLL)
        except RendezvousError as error:
            return str(error)

    def attempt(self, deadline: Deadline) -> G | None:
        """The group with those that wait now, which is to be their group from now on; None where it did not come about,
        and something has been done about that."""
        terms = self._links.terms or self._porch.terms
        with ExitStack() as undo, explained("this group cannot grow"):
            door, card = None, b""
            with self._own():
                door = undo.enter_context(closing(self._porch.door(deadline)))
                card = terms.card(door, self._rank).pack()
            members = self._told_all(card, deadline)
            text = self._admit(members, terms).pack() if self._rank == self._host else b""
            admission = Admission.unpack(self._objects.tell(text, self._within, at_least(deadline), self._host))
            if len(admission.cards) == self._size:
                return None
            assert door is not None
            limit, mine = Deadline(min(deadline.left() / 2, _FORMING)), admission._replace(rank=self._rank)
            self._in_turn(partial(self._link, door, mine, terms, limit), deadline)
            if self._all_linked(deadline) and self._linked is not None:
                return self._committed(self._linked, admission, limit)
        self.abandon()
        return None

    @contextmanager
    def _own(self) -> Iterator[None]:
        """What this rank cannot do for lack of memory or descriptors is what it tells the others in `_told_all`."""
        try:
            yield
        except (OSError, RendezvousError) as error:
            if not is_own(error):
                raise
            self._lacks = f"this group cannot grow; {self._me} says: {reason(error)}"

    def _told_all(self, what: bytes, deadline: Deadline) -> list[bytes]:
        """What each member tells all. Raises RendezvousError on all of them where one lacks something instead."""
        mine = b"!" + self._lacks.encode() if self._lacks else b"." + what
        told = self._objects.collect(mine, self._within, at_least(deadline))
        for words in told:
            if words.startswith(b"!"):
                self.told = True
                raise RendezvousError(words[1:].decode())
        return [words[1:] for words in told]

    def _link(self, door: Door, admission: Admission, terms: Terms, limit: Deadline) -> None:
        with self._own():
            self._linked = link(door, admission, terms, limit, self._look)

    def abandon(self, error: BaseException | None = None) -> None:
        """Those that were linked are not to wait for this rank; which may be in the middle of anything."""
        if self._linked is not None:
            self._linked.close()
        self._linked = None
        if error is not None and self.commit is not None:
            self.commit.end(error)
        elif error is not None and self._made is not None:
            self._made._close(error)

    def _all_linked(self, deadline: Deadline) -> bool:
        """Whether all members have; who did not come to them is sent away."""
        mine = [True, []] if self._linked is not None else [False, self._missing]
        told = self._told_all(json.dumps(mine).encode(), deadline)
        linked, missed = zip(*map(json.loads, told), strict=True)
        if self._rank == self._host:
            late = {rank - self._size for ranks in missed for rank in ranks if rank >= self._size}
            self._porch.send_away([self._callers[place] for place in late])
        return all(linked)

    def _admit(self, members: list[bytes], terms: Terms) -> Admission:
        """Tell those that wait where to come to. What they and the members have to know."""
        known = [Card.unpack(card) for card in members]
        self._callers = []
        for caller in self._porch.waiting():
            with self._porch.welcome(caller):
                places([*known, caller.card._replace(rank=self._size)])
                self._callers.append(caller)
        cards = [*members, *(caller.card.pack() for caller in self._callers)]
        key, admitted = new_key(), sorted(self._porch.admitted)
        admission = Admission(0, cards, key, self._wire, terms.sockets.integrity, admitted, self._links.profile)
        for place, caller in enumerate(self._callers):
            self._porch.admit(caller, admission._replace(rank=self._size + place))
        return admission

    def _committed(self, links: Links, admission: Admission, limit: Deadline) -> G | None:
        self._linked = self.commit = None  # they are the group's
        with suppress(RendezvousError):  # of a group that cannot be made, in which nobody comes through the commit
            self._made = group = self._make(self._rank, links, admission.wire)
            self.commit = Commit.of(group, _GROW)
            self.commit.make(at_least(limit))
            if self.commit.may_count:
                self._porch.filled(admission)
                return group
            group._close(None)
        self._in_vain += 1
        if self._in_vain == _IN_VAIN:  # it is not known whose fault it is, and the others want to go on
            self._porch.send_away(self._callers)
        return None

    def _look(self, ranks: list[int]) -> None:
        """While all link, and these are missing: whether the members are there."""
        self._missing = ranks
        if self._size > 1:
            other = next((rank for rank in ranks if rank < self._size), 1 - min(self._rank, 1))
            self._calls.look(other, self._within, Deadline(_FORMING))

    def _in_turn(self, function: Callable[[], T], deadline: Deadline) -> T:
        return cast(T, self._calls.do(function, self._within, at_least(deadline), False))


def at_least(deadline: Deadline) -> float:
    """The seconds for a call that is made before it, at the latest: a call takes some."""
    return max(deadline.left(), _LEAST)


def enter(porch: Porch, deadline: Deadline, make: Make[G]) -> G:
    """Wait until a group takes this process in. Raises RendezvousError at the deadline, or where it will not."""
    terms = porch.terms
    with explained("this rank cannot join"), closing(porch.door(deadline)) as door:
        for admission in porch.admissions(door, deadline):
            if admission.checked != terms.sockets.integrity:
                raise RendezvousError("HOCKET_INTEGRITY is not the same here as in the group: give all ranks the same")
            limit = Deadline(min(deadline.left(), _FORMING))
            links = link(door, admission, terms, limit)
            if links is None:
                continue
            with suppress(RendezvousError):
                commit = Commit.of(make(admission.rank, links, admission.wire), _GROW)
                try:
                    commit.make(at_least(limit))
                    if commit.counts:
                        porch.arrived(admission)
                        return commit.group
                except BaseException as error:
                    commit.group._close(error)
                    raise
                commit.group._close(None)
    raise AssertionError  # there is always another one, or an error


def link(door: Door, admission: Admission, terms: Terms, limit: Deadline, look: Look = None) -> Links | None:
    """With all that the admission names; None where that is not possible. Raises OSError and RendezvousError where this
    rank has no memory or no descriptors for it."""
    cards = [Card.unpack(card)._replace(rank=rank) for rank, card in enumerate(admission.cards)]
    fd = create_outbox(len(cards))
    try:
        with explained("no links"):
            links = meet_at(door, cards, admission.rank, fd, terms, limit, look)
    except RendezvousError as error:
        if is_own(error):
            raise
        return None
    finally:
        os.close(fd)
    links.key, links.profile = admission.key, admission.profile
    return links
