"""Groups out of a group: every rank says which part it belongs to, and the ranks of each part link anew.

Where all are on one host they are connected already, so nothing listens and nothing is proved a second time: each sends
each other one parcel over the parent's socket.

```
header: magic, number of the formation, sender's rank in the parent        its outbox, and from the lower of the two
                                                                           ranks one end of a new pair of sockets
```

All ranks of a group form its subgroups in one order, so on each socket the parcels lie in that order too. One that is
ahead may have sent its next parcel already: who reads never reads beyond the one it waits for.

Between hosts those sockets are busy. There the ranks tell each other in the parent group at which doors they stand, and
the members meet there as they first did.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..deadline import Deadline
from ..errors import CollectiveTimeout, PeerLost, RendezvousError
from .cards import Card
from .doors import Door
from .links import Links, key_of, meet_at
from .parcels import Incoming, Outgoing
from .sockets import explained

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_HEADER = struct.Struct("<8sQI")
_MAGIC = b"hocket/1"
_CARD = 1024  # bytes of a card, as it is passed on
_LOOK = 0.02  # seconds between two looks at the parent group
_DYING = 50  # milliseconds
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Part(NamedTuple):
    """One rank's place in its new group: its rank there, the members' ranks in the parent, and which formation of the
    parent this is. Between hosts, its open door and the members' cards, too."""

    rank: int
    members: list[int]
    number: int
    door: Door | None = None
    cards: list[Card] | None = None


def form(links: Links, gather: Callable[[Array], Array], color: int | None, key: int, limit: Deadline) -> Part | None:
    """This rank's part: the ranks of equal `color`, in the order of (key, rank). None for a rank without a colour.

    `gather(row)` gives all ranks' rows, by rank; `links` are those between them. A moment without a network is borne,
    not beyond the `limit`.
    """
    number, links.formations = links.formations, links.formations + 1
    own = next(rank for rank, sock in enumerate(links.sockets) if sock is None)
    rows = gather(np.array([color is not None, color or 0, key], np.int64))
    same = np.flatnonzero((rows[:, 0] == 1) & (rows[:, 1] == (color or 0)))
    members: list[int] = same[np.lexsort((same, rows[same, 2]))].tolist()
    if not links.is_far:
        return None if color is None else Part(members.index(own), members, number)
    with explained("a subgroup cannot be formed"), ExitStack() as undo:
        door, card = None, b""
        if color is not None:
            assert links.terms is not None
            door = undo.enter_context(closing(Door.open(links.terms.towards, links.terms.sockets, limit)))
            card = links.terms.card(door, members.index(own)).pack()
        cards = gather(np.frombuffer(card.ljust(_CARD, b"\0"), np.uint8))
        undo.pop_all()
    if color is None:
        return None
    unpacked = [Card.unpack(cards[rank].tobytes()) for rank in members]
    return Part(members.index(own), members, number, door, unpacked)


def meet(part: Part, links: Links, fd: int, deadline: Deadline, look: Callable[[list[int]], None]) -> Links:
    """Link with the other members, whose `links` in the parent group these are, and swap `fd` for theirs.

    `look(ranks)` is called again and again while these ranks of the parent are waited for; it raises where the parent
    is broken. Raises PeerLost, which names a member that died or left the parent, as soon as that shows;
    CollectiveTimeout, which names who is missing, at the deadline; RendezvousError where descriptors are used up.
    """
    new = _meet(part, links, fd, deadline, look)
    new.key = key_of(links.key, part.number, part.members)
    return new


def _meet(part: Part, links: Links, fd: int, deadline: Deadline, look: Callable[[list[int]], None]) -> Links:
    if part.door is not None and part.cards is not None and links.terms is not None:
        with explained("a subgroup cannot be formed"), closing(part.door):
            return meet_at(
                part.door,
                part.cards,
                part.rank,
                fd,
                links.terms,
                deadline,
                lambda ranks: look([part.members[rank] for rank in ranks]),
            )
    with explained("a subgroup cannot be formed"), ExitStack() as undo:
        formation = _Formation(part, links, fd, undo)
        while formation.pending:
            look(list(formation.pending))
            formation.turn(deadline)
        new = formation.links(fd)
        undo.pop_all()
    formation.close_given()
    return new


class _Exchange:
    """What goes to one member, and what comes from it."""

    def __init__(self, link: socket.socket, header: bytes, fds: list[int], expected: int) -> None:
        self.expected = expected  # descriptors
        self.out, self.into = Outgoing(link, header, fds), Incoming(link, _HEADER.size, 2)
        self.sent = self.received = False


class _Formation:
    """One rank's view of a subgroup on its way. `undo` closes all that is held, if it does not come about."""

    def __init__(self, part: Part, links: Links, fd: int, undo: ExitStack) -> None:
        self._part, self._parent, self._undo = part, links, undo
        self._own = part.members[part.rank]
        self._given: list[socket.socket] = []  # the ends of new pairs that others get
        self._sockets: dict[int, socket.socket] = {}  # to the members, new ones
        self.pending: dict[int, _Exchange] = {}  # by rank in the parent, as what follows
        self._done: dict[int, _Exchange] = {}
        undo.callback(self.close_given)
        header = _HEADER.pack(_MAGIC, part.number, self._own)
        for rank in part.members:
            link = links.sockets[rank]
            if link is None:
                continue
            lower = self._own < rank
            exchange = _Exchange(link, header, [fd, *self._pair(rank)] if lower else [fd], 1 if lower else 2)
            undo.callback(exchange.into.close)
            self.pending[rank] = exchange

    def _pair(self, rank: int) -> list[int]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._given.append(theirs)
        self._keep(rank, ours)
        return [theirs.fileno()]

    def _keep(self, rank: int, sock: socket.socket) -> None:
        self._undo.callback(sock.close)
        sock.setblocking(False)
        self._sockets[rank] = sock

    def close_given(self) -> None:
        """Close the ends that others hold by now."""
        while self._given:
            self._given.pop().close()

    def turn(self, deadline: Deadline) -> None:
        """Send and read what can be, or wait a moment for that to change."""
        ended = self._poll(min(_LOOK, deadline.left()))
        for rank, exchange in list(self.pending.items()):
            try:
                exchange.sent = exchange.sent or exchange.out.push()
                exchange.received = exchange.received or exchange.into.pull()
            except (EOFError, ConnectionError):
                ended.add(rank)
            if exchange.sent and exchange.received:
                self._accept(rank, self.pending.pop(rank))
        # Who had ended before we read has no more to say. The others have our parcels by now: they need not blame us.
        if lost := [rank for rank in self.pending if rank in ended]:
            raise self._lost(lost)
        if self.pending and not deadline.left():
            who = ", ".join(self._parent.name(rank) for rank in self.pending)
            me = self._parent.name(self._own)
            raise CollectiveTimeout(f"{me} timed out after {deadline} of waiting for a subgroup, in vain for {who}")

    def _poll(self, seconds: float) -> set[int]:
        """Wait until something happens. Those that have ended, as processes or in the parent group."""
        poll, whose = select.poll(), {}
        for rank, exchange in self.pending.items():
            link, pidfd = self._parent.sockets[rank], self._parent.pidfds[rank]
            assert link is not None
            events = (0 if exchange.received else select.POLLIN) | (0 if exchange.sent else select.POLLOUT)
            poll.register(link, events | select.POLLRDHUP)
            poll.register(pidfd, select.POLLIN)
            whose[link.fileno()], whose[pidfd] = (rank, _GONE), (rank, select.POLLIN)
        return {whose[fd][0] for fd, told in poll.poll(seconds * 1000) if told & whose[fd][1]}

    def _lost(self, ranks: list[int]) -> PeerLost:
        """Who left may have done so because of one that died; that one may have sent us its parcel first.

        A process that dies closes its sockets a moment before its pidfd tells of it.
        """
        poll = select.poll()
        whose = {self._parent.pidfds[rank]: rank for rank in [*self._done, *self.pending]}
        for pidfd in whose:
            poll.register(pidfd, select.POLLIN)
        dead = sorted((whose[pidfd] for pidfd, _ in poll.poll(_DYING)), key=lambda rank: rank not in ranks)
        me = self._parent.name(self._own)
        who, how = (dead[0], "died") if dead else (ranks[0], "left the group")
        return PeerLost(f"{self._parent.name(who)} {how} while {me} formed a subgroup with it")

    def _accept(self, rank: int, exchange: _Exchange) -> None:
        header = _HEADER.unpack(exchange.into.data)
        if header != (_MAGIC, self._part.number, rank) or len(exchange.into.fds) != exchange.expected:
            raise RendezvousError(
                f"{self._parent.name(rank)} formed another subgroup than {self._parent.name(self._own)} at this time: "
                "all ranks of a group must form its subgroups in one order"
            )
        if exchange.expected == 2:
            self._keep(rank, socket.socket(fileno=exchange.into.fds.pop()))
        self._done[rank] = exchange

    def links(self, fd: int) -> Links:
        """The new links, when nobody is waited for any more. They hold nothing of the parent's."""
        parent, members = self._parent, self._part.members
        fds: list[int] = []
        pidfds: list[int] = []
        for rank in members:
            if rank == self._own:
                fds.append(os.dup(fd))
                self._undo.callback(os.close, fds[-1])
                pidfds.append(-1)
            else:
                fds.append(self._done[rank].into.fds[0])
                pidfds.append(os.dup(parent.pidfds[rank]))
                self._undo.callback(os.close, pidfds[-1])
        sockets = [self._sockets.get(rank) for rank in members]
        places = [parent.places[r] for r in members]
        hosts, pids = [parent.hosts[r] for r in members], [parent.pids[r] for r in members]
        links = Links(places, sockets, fds, hosts, pids, pidfds, [], len(members), terms=parent.terms)
        links.domains = [parent.domains[r] for r in members] if parent.domains else []
        return links
