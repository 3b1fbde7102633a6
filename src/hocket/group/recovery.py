"""How those that are left of a group form a new one.

```
attempt 1  come     each says that it is there, and where its door is, and waits for those that are not lost
           settle   who is to belong to it: the same on all of them
           link     through their doors, as they first met; each makes its group of these links, and says so
           settle   whether all have: then it is their group, on every one of them
attempt 2  ...      where one was lost on the way
```

Who is interrupted, and calls recover() again at once, takes the attempt up: what was settled remains so, and the group
that it has made is kept. Where it was interrupted as it linked, all make another attempt. Who has no memory or no
descriptors left raises, and the others leave it out unless it calls recover() again.

The new group has memory and links of its own: whoever was lost and wakes up has none of them, and can write to nobody.
What was settled of the old group, and what is said here, lies in the old outboxes (csrc/transport/outbox/settlement.h),
which outlive their ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from errno import ENOMEM, ENOSPC
from typing import Generic, NamedTuple, TypeAlias

from .._core import ATTEMPTS, Endpoint
from ..deadline import Deadline
from ..errors import CollectiveTimeout, HocketError, PeerLost, RendezvousError
from ..rendezvous.cards import Card
from ..rendezvous.doors import Door
from ..rendezvous.gap import NO_NETWORK
from ..rendezvous.links import Links, Terms, key_of, meet_at
from ..rendezvous.sockets import USED_UP, explained
from ..run.native import create_outbox
from ..words import named
from .member import G

_POLL = 0.0005  # seconds
_COMING = 0.7  # of the time that is left, for the others to come
_FORMING = 5.0  # seconds at most, for one attempt to link
_PATIENCE = 2.0  # seconds that one may take longer than another to begin to settle


class Note(NamedTuple):
    """What a rank says: which attempt it is in, whether it has formed its links and made its group of them, and its
    card, unless it has given up this attempt."""

    attempt: int
    formed: bool
    card: bytes


Notes: TypeAlias = "dict[int, Note]"  # by rank, of those that are not lost


class Loss(NamedTuple):
    """One failure that a group has been through: the ranks that were lost in it, by the numbers that they had, and as
    messages call them; the last call of that group which all others completed; why it ended; and when, in seconds since
    the epoch."""

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    completed: int
    why: str
    at: float


class Recovery(Generic[G]):
    """One rank's way out of a group that is over, into one of those that are left. `over` is what ended it, and
    `make(rank, links)` makes a group of those, and waits for nobody."""

    def __init__(
        self, endpoint: Endpoint, rank: int, links: Links, over: HocketError, make: Callable[[int, Links], G]
    ) -> None:
        self._endpoint, self._rank, self._links, self._over, self._make = endpoint, rank, links, over, make
        self._size = len(links.pids)
        self._attempt = 1
        self._linked = 0  # the attempt in which it last began to
        self._gone = set(over.lost)
        self._members: list[int] = []
        self._card = b""
        self._made: G | None = None  # in this attempt: nobody's, until all have settled on it

    def loss(self) -> Loss:
        """What this group has been through."""
        ranks = tuple(sorted(self._gone))
        names = tuple(map(self._links.name, ranks))
        return Loss(ranks, names, self._over.completed or 0, str(self._over), time.time())

    def group(self, deadline: Deadline, *, allow_minority: bool) -> G:
        """The new one, in which the members of the old one that are left have ranks in the same order.

        Raises PeerLost where the others went on without this rank, HocketError where those that are left are too few,
        CollectiveTimeout at the deadline.
        """
        me = self._links.name(self._rank)
        while deadline.left() and self._attempt <= ATTEMPTS:
            with explained("a new group cannot be formed"):
                formed = self._try(deadline, allow_minority)
            if formed:
                assert self._made is not None
                return self._made
            self._drop()
            self._attempt += 1
        if not deadline.left():
            raise CollectiveTimeout(f"{me} timed out after {deadline} of recover(): others were lost again and again")
        raise RendezvousError(f"{me} has tried {ATTEMPTS} times to recover this group: start the job anew")

    def leave(self, error: BaseException | None) -> None:
        """This rank does not go on. What it has made may be the others' group by now."""
        if (made := self._made) is not None:
            made._close(error)

    def _drop(self) -> None:
        """What was made in this attempt is nobody's."""
        made, self._made = self._made, None
        if made is not None:
            made._drop()

    def _try(self, deadline: Deadline, allow_minority: bool) -> bool:
        """Whether this attempt is everybody's."""
        try:
            if self._linked < self._attempt:
                self._form(deadline, allow_minority)
        finally:
            if self._linked == self._attempt and self._made is None:
                self._endpoint.say_where(self._attempt, False, b"")  # nobody need wait any more
        if self._made is not None:
            self._endpoint.say_where(self._attempt, True, self._card)
            self._await(lambda note: note.formed, min(deadline.left(), _FORMING), all_of_them=True)
        return self._all_formed()

    def _form(self, deadline: Deadline, allow_minority: bool) -> None:
        """Come, settle who is to belong to it, and link. Who is interrupted in the last does not begin it anew: others
        may hold what it has closed."""
        terms = self._links.terms or Terms(b"")
        with closing(self._door(terms, deadline)) as door:
            self._card = terms.card(door, self._rank).pack()
            self._endpoint.say_where(self._attempt, False, self._card)
            self._await(lambda note: note.attempt >= self._attempt, deadline.left() * _COMING)
            self._settle_members(deadline, allow_minority)
            self._linked = self._attempt
            try:
                links = self._link(door, terms, Deadline(min(deadline.left(), _FORMING)))
            except (HocketError, OSError) as error:
                if is_own(error):
                    raise
                return
            # Where that fails it is this rank's own fault, too: it raises, and the others go on without it.
            self._made = self._make(self._members.index(self._rank), links)

    def _door(self, terms: Terms, deadline: Deadline) -> Door:
        """For those that are left. Where this host is cut off from others, those on it can still meet."""
        left = [place for rank, place in enumerate(self._links.places) if rank not in self._gone]
        if len(set(left)) == 1:
            return Door.open()
        try:
            return Door.open(terms.towards, terms.sockets, Deadline(deadline.left() / 2))  # the others wait for longer
        except OSError as error:
            if error.errno not in NO_NETWORK:
                raise
            return Door.open()

    def _settle_members(self, deadline: Deadline, allow_minority: bool) -> None:
        came = {r for r, note in self._notes().items() if note.attempt >= self._attempt}
        missing = set(range(self._size)) - came - {self._rank}
        _, lost = self._endpoint.settle(2 * self._attempt - 1, False, "", sorted(missing | self._gone), _PATIENCE)
        self._take_for_lost(lost)
        self._members = [r for r in range(self._size) if r not in self._gone]
        if not allow_minority:
            self._require_majority()

    def _require_majority(self) -> None:
        if is_majority(self._links.places, self._gone):
            return
        apart = out_of_sight(self._links.places, self._gone)
        raise HocketError(
            f"{named(self._members)} cannot know whether {named(apart)}, on other hosts, go on by themselves, and are "
            "no majority: recover(allow_minority=True) goes on all the same, where you know that the others do not"
        )

    def _link(self, door: Door, terms: Terms, deadline: Deadline) -> Links:
        """Every member's door is known from its note, which may still be on its way."""
        ready = self._await(lambda note: note.attempt == self._attempt, deadline.left(), all_of_them=True)
        notes = self._notes()
        if not ready or not all(note.card for note in notes.values()):
            raise PeerLost("not all of those that were left are there")
        rank = self._members.index(self._rank)
        fd = create_outbox(len(self._members))
        try:
            if len(self._members) == 1:
                return Links.alone(fd, terms)
            cards = [Card.unpack(notes[r].card)._replace(rank=i) for i, r in enumerate(self._members)]
            links = meet_at(door, cards, rank, fd, terms, deadline, self._look)
            links.key = key_of(self._links.key, self._attempt, self._members)
            return links
        finally:
            os.close(fd)

    def _all_formed(self) -> bool:
        """Whether this attempt is everybody's: all of its members say so, of the same members."""
        formed = self._made is not None and all(note.formed for note in self._notes().values())
        failed, lost = self._endpoint.settle(
            2 * self._attempt, not formed, named(self._gone), sorted(self._gone), _PATIENCE
        )
        self._take_for_lost(lost)
        return not failed and self._gone.isdisjoint(self._members)

    def _take_for_lost(self, lost: Collection[int]) -> None:
        self._gone = set(lost)
        if self._rank in lost:
            self._drop()
            me = self._links.name(self._rank)
            raise PeerLost(f"the others went on without {me}, which was late in recover(), or out of their sight")

    def _notes(self) -> Notes:
        """What those say that are not lost. Who has formed its links has done so in this attempt."""
        notes = [Note(*note) for note in self._endpoint.notes()]
        return {
            r: note._replace(formed=note.formed and note.attempt == self._attempt)
            for r, note in enumerate(notes)
            if r not in self._gone
        }

    def _look(self, _: list[int]) -> None:
        """While members link: whether all can still come."""
        lost = [r for r in self._endpoint.absent() if r in self._members]
        lost += [r for r, note in self._notes().items() if self._gave_up(note)]
        if lost:
            raise PeerLost(f"{named(lost)} of those that were left did not form the new group")

    def _await(self, ready: Callable[[Note], bool], seconds: float, *, all_of_them: bool = False) -> bool:
        """Until all that are there are `ready`; False where time is over or, if `all_of_them` are needed,
        where one is gone or has given up this attempt."""
        deadline = Deadline(seconds)
        absent: set[int] = set()
        while True:
            notes = {r: note for r, note in self._notes().items() if r not in absent}
            if all(map(ready, notes.values())):
                return not absent or not all_of_them
            absent = set(self._endpoint.absent()) - self._gone
            if not deadline.left() or (all_of_them and (absent or any(map(self._gave_up, notes.values())))):
                return False
            time.sleep(_POLL)

    def _gave_up(self, note: Note) -> bool:
        """Whether who says that is through with this attempt: without a door, or in a later one."""
        return note.attempt > self._attempt or (note.attempt == self._attempt and not note.card)


def is_own(error: BaseException) -> bool:
    """Whether this rank has no memory or descriptors left, which is nobody else's fault."""
    causes = (error, error.__cause__)
    return any(isinstance(each, OSError) and each.errno in (*USED_UP, ENOMEM, ENOSPC) for each in causes)


def out_of_sight(places: Sequence[int], gone: Collection[int]) -> list[int]:
    """Those of the gone of whom it is not known whether they go on by themselves: where somebody of their host is left
    it is known that they do not."""
    here = {place for rank, place in enumerate(places) if rank not in gone}
    return [rank for rank in gone if places[rank] not in here]


def is_majority(places: Sequence[int], gone: Collection[int]) -> bool:
    """Whether those that are left may go on: of two parts of a group that cannot reach each other only one may. They
    are more than those out of sight, or as many, and have the lowest rank among them."""
    members = [rank for rank in range(len(places)) if rank not in gone]
    apart = out_of_sight(places, gone)
    return (len(members), min(apart, default=len(places))) > (len(apart), min(members))
