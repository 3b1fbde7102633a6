"""How the ranks of a job find each other: each leaves a card in the store; then one socket between every two of them.

```
store.set("0/2", card of rank 2)            every rank leaves a card: host, pid, where it listens,
store.get("0/0"), store.get("0/1"), ...     and reads all others; a card that does not come names the missing rank.
rank r dials every lower rank               A Unix socket per pair, over which the two swap descriptors (mesh).
```

Where the store is, `join` knows. Ranks of different hosts are linked by TCP instead, and share no memory.

What protects the links: listeners have random names, the kernel tells the other end's user id on one host, and both
ends prove the job's secret, without which nothing is done across hosts. That comes from the launcher or the user and is
never written into the store, which may be one that everybody can read (torch's is plain TCP): the cards are sealed with
it (`seal`). Who can write the store can keep the ranks from meeting, but not meet them. Where a launcher gives no
secret, each rank of a host derives one from what identifies the job, which others may guess: there the user id is what
keeps them out.
"""

from __future__ import annotations

import hashlib
import os
import socket
import warnings
import weakref
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from .._core import Credentials, Fallback, Pipe, Stripes, Ucx, UcxContext
from ..config import SocketOptions
from ..config.observed import profile_place, trace_folder
from ..deadline import Deadline
from ..errors import RendezvousError
from ..tuning.saved import found as found_profile
from .cards import Card, connections, domains, exchange, places, spared
from .doors import Door
from .mesh import Look, Mesh
from .sockets import explained, steer
from .store import Store, Taken
from .tls import TlsSocket, credentials
from .ucx import agreed, found


@dataclass(frozen=True)
class Terms:
    """What a rank needs to be linked with others, also once more: the job's secret, the way to other hosts, whether it
    shares memory with nobody, how its TCP sockets are to be, what it shows where they use TLS, and UCX, or why it
    cannot use that."""

    secret: bytes = field(repr=False)
    towards: str = ""
    alone: bool = False
    sockets: SocketOptions = field(default_factory=SocketOptions)
    tls: Credentials | None = None
    ucx: UcxContext | None = None
    lacks: str = ""

    @staticmethod
    def of(secret: bytes, towards: str, alone: bool, sockets: SocketOptions) -> Terms:
        """These terms, with what the files of certificates hold. Raises RendezvousError where they are no good."""
        return Terms(secret, towards, alone, sockets, credentials(sockets.tls), *found(sockets))

    def card(self, door: Door, rank: int) -> Card:
        """What such a rank tells the others, who are to come to that door."""
        return door.card(rank)._replace(
            alone=self.alone,
            ways=self.sockets.ways,
            ucx=self.ucx.version if self.ucx is not None else "",
            lacks=self.lacks,
            streams=self.sockets.streams,
            life=round(1000 * self.sockets.life),
            traces=trace_folder() is not None,
        )


@dataclass(eq=False)
class Links:
    """What one rank holds of the others; every list is indexed by rank.

    `places` are numbers of hosts: ranks of one number share memory; `domains` are numbers of sets of cores that share a
    cache, where that is known. `sockets` are connected stream sockets,
    non-blocking, Unix on one host and TCP between hosts, None at the own rank. `fds` are the descriptors that the peers
    gave, and a duplicate of the own one. `pidfds` become readable when a peer's process ends, whoever else still holds
    its sockets; -1 at the own rank. From another host there are no descriptors, but -1. `events` are eventfds of this
    host's ranks, where there are several hosts. The Links own all of them; `close` closes them. `crowd` ranks share the
    cores of this machine. `formations` counts the subgroups that were begun; between hosts, `terms` is what those need
    to link anew. `ucx` are the ways through UCX, by rank, and `more` the sockets beside that in `sockets`, where a link
    has several; `close` closes them, too. `traces` tells which ranks write timelines. `key` is the group's: the same on
    all of its ranks, and another one for every other group. `spares` are the sockets over which a link goes on where
    its first way breaks, and `fallbacks` the pipes that do so. `profile` is the group's
    (`hocket.tuning.profile`), packed, or empty: that of rank 0 of the job, which all groups that come of it take over.
    """

    places: list[int]
    sockets: list[socket.socket | None]
    fds: list[int]
    hosts: list[str]
    pids: list[int]
    pidfds: list[int]
    events: list[int]
    crowd: int
    formations: int = 0
    terms: Terms | None = None
    ucx: dict[int, Ucx] = field(default_factory=dict)
    more: dict[int, list[socket.socket]] = field(default_factory=dict)
    traces: list[bool] = field(default_factory=list)
    key: int = 0
    profile: str = ""
    spares: dict[int, socket.socket] = field(default_factory=dict)
    fallbacks: dict[int, Fallback] = field(default_factory=dict)
    domains: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.is_far:
            _far.add(self)

    def __del__(self) -> None:
        """What is dropped before a group has it, by an interrupt for instance, lets go: sockets close themselves, but a
        descriptor is a number."""
        self._close_descriptors()

    @property
    def is_far(self) -> bool:
        """Whether there are several hosts."""
        return len(set(self.places)) > 1

    @property
    def pipes(self) -> list[Pipe | None]:
        """How bytes go to each rank, where they do not go over its socket as they are."""

        def through(rank: int) -> Pipe | None:
            if rank in self.ucx:
                return self.ucx[rank]
            if self.more.get(rank):
                return Stripes([_pipe(sock) for sock in self._first(rank)])
            return _encrypted(self.sockets[rank])

        pipes = [through(rank) for rank in range(len(self.sockets))]
        for rank, spare in self.spares.items():
            ways = [pipes[rank] or _pipe(self._first(rank)[0]), _pipe(spare)]
            pipes[rank] = self.fallbacks[rank] = Fallback(ways, self.life / 2)
        return pipes

    def _first(self, rank: int) -> list[socket.socket]:
        first = self.sockets[rank]
        return [] if first is None else [first, *self.more.get(rank, [])]

    def all(self, rank: int) -> list[socket.socket]:
        """The sockets of one link."""
        return [*self._first(rank), *([self.spares[rank]] if rank in self.spares else [])]

    @property
    def transports(self) -> list[str]:
        """What each rank is reached by: "self", "shm", "tcp", "tls", or "ucx" and what that uses, as "ucx:rc_mlx5"; and
        "tcp:4" where that is four connections."""
        own = self.sockets.index(None)

        def name(rank: int) -> str:
            if rank in self.ucx:
                return f"ucx:{self.ucx[rank].transports()}"
            far = "tls" if isinstance(self.sockets[rank], TlsSocket) else "tcp"
            far += f":{len(self._first(rank))}" if self.more.get(rank) else ""
            return "self" if rank == own else "shm" if self.places[rank] == self.places[own] else far

        return [name(rank) for rank in range(len(self.sockets))]

    def ways_lost(self, rank: int) -> int:
        """How many of the ways to it have broken."""
        return self.fallbacks[rank].way if rank in self.fallbacks else 0

    @property
    def wire(self) -> int:
        """Bytes that a link between hosts carries in the time of a round, where that was given, else 0."""
        return self.terms.sockets.wire if self.terms is not None else 0

    @property
    def checked(self) -> bool:
        """Whether all that goes between hosts carries checksums."""
        return self.terms is not None and self.terms.sockets.integrity

    @property
    def life(self) -> float:
        """Seconds after which ranks of other hosts that are silent are given up."""
        return (self.terms.sockets if self.terms is not None else SocketOptions()).life

    @staticmethod
    def alone(fd: int, terms: Terms | None = None) -> Links:
        """Those of a world of one, whose outbox is a duplicate of `fd`."""
        hosts, pids = [socket.gethostname()], [os.getpid()]
        return Links([0], [None], [os.dup(fd)], hosts, pids, [-1], [], 1, terms=terms, key=new_key())

    def name(self, rank: int) -> str:
        """How messages call a rank."""
        return f"rank {rank} (pid {self.pids[rank]} on {self.hosts[rank]})"

    def close_outboxes(self) -> None:
        """Close `fds` and `events`: what they stand for has been mapped, and duplicated."""
        _close_all(self.fds, self.events)

    def _close_descriptors(self) -> None:
        _close_all(self.fds, self.events, self.pidfds)

    def close(self) -> None:
        """Close all sockets and descriptors. A second call does nothing."""
        self._close_descriptors()
        while self.ucx:
            self.ucx.popitem()[1].close()
        for rank in range(len(self.sockets)):
            for sock in self.all(rank):
                sock.close()
        self.sockets.clear()


def _close_all(*lists: list[int]) -> None:
    for fds in lists:
        while fds:
            if (fd := fds.pop()) >= 0:
                os.close(fd)


def _pipe(sock: socket.socket) -> Pipe:
    return _encrypted(sock) or Pipe(sock.fileno())


def _encrypted(sock: socket.socket | None) -> Pipe | None:
    return sock.tls if isinstance(sock, TlsSocket) else None


_far: weakref.WeakSet[Links] = weakref.WeakSet()


def _let_go() -> None:
    """A connection lasts until nobody holds it: so a child does not, and its parent's death shows on other hosts."""
    null = os.open(os.devnull, os.O_RDWR)
    for links in list(_far):
        for sock in [sock for rank in range(len(links.sockets)) for sock in links.all(rank)]:
            if sock.family != socket.AF_UNIX:
                os.dup2(null, sock.fileno(), inheritable=False)  # the number stays taken, as its owner believes
    os.close(null)


os.register_at_fork(after_in_child=_let_go)


def connect(
    store: Store,
    rank: int,
    size: int,
    fd: int,
    limit: Deadline | float,
    prefix: str = "",
    *,
    terms: Terms,
    door: Door | None = None,
) -> Links:
    """Link this rank with every other one, and swap `fd` for theirs. Raises RendezvousError at the limit, a deadline or
    seconds from now.

    The secret of `terms` is the job's, which all ranks know from elsewhere and prove to each other. A `door` remains
    the caller's.
    """
    deadline = Deadline.of(limit)
    with ExitStack() as stack, explained("this rank cannot be connected"):
        door = door or stack.enter_context(closing(Door.open(terms.towards, terms.sockets, deadline)))
        try:
            options = terms.sockets
            chosen = " with integrity" * options.integrity + f" with HOCKET_WIRE={options.wire}" * (options.wire > 0)
            store.set(f"{prefix}size", f"{size}{chosen}".encode(), deadline.left())
        except Taken as taken:
            theirs = taken.value.decode(errors="replace")
            words = f"two jobs met at one address: one has {size} ranks{chosen}, the other {theirs}"
            what = next((name for name in ("integrity", "HOCKET_WIRE") if name in chosen + theirs), "the size")
            raise RendezvousError(f"{words}: do all agree on {what}?{taken.hint}") from None
        card = terms.card(door, rank)._replace(profile=_profile() if rank == 0 else "")
        note = card.note(terms.secret, f"{prefix}{rank}")
        door.told = True
        notes = exchange(store, rank, size, note, deadline, prefix)
        cards = [Card.read(note, terms.secret, f"{prefix}{writer}", writer, rank) for writer, note in enumerate(notes)]
        links = meet_at(door, cards, rank, fd, terms, deadline)
        links.key = key_of(prefix, *cards)
        links.profile = cards[0].profile
        return links


def _profile() -> str:
    """What is known of this machine, for all ranks; with a warning where there is a file that is no good."""
    profile, why = found_profile(*profile_place())
    if why:
        warnings.warn(f"{why}; until then algorithms are chosen as without one", stacklevel=2)
    return profile.pack() if profile is not None else ""


def new_key() -> int:
    """A number of 64 bits that nobody else has."""
    return int.from_bytes(os.urandom(8), "little")


def key_of(*words: object) -> int:
    """A number of 64 bits, which only the same words have."""
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "little")


def meet_at(
    door: Door, cards: list[Card], rank: int, fd: int, terms: Terms, deadline: Deadline, look: Look = None
) -> Links:
    """Link with the ranks that left these cards, all of which are at their doors, and swap `fd` for theirs on one host.

    `look(ranks)` is called again and again while these are waited for, and may raise.
    """
    size = len(cards)
    with ExitStack() as undo, ExitStack() as stack:
        pidfd = os.pidfd_open(os.getpid())
        stack.callback(os.close, pidfd)
        own = os.dup(fd)
        undo.callback(os.close, own)
        hosts = places(cards)
        near = [host == hosts[rank] for host in hosts]
        ways = agreed(cards, hosts, rank)
        addresses = [card.address if here else card.remote for card, here in zip(cards, near, strict=True)]
        names = [str(card) for card in cards]
        spares = spared(cards, ways, rank, upwards=door.upwards)
        mesh = Mesh(
            *(door.listeners, names, addresses, rank, terms.secret, terms.tls, terms.ucx, ways),
            counts=connections(cards, ways),
            spares=spares,
            upwards=door.upwards,
        )
        given = [fd, pidfd]
        if not all(near):
            given.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            undo.callback(os.close, given[2])
        met = mesh.run(given, deadline, look)
        undo.pop_all()
    fds = [own if peer == rank else -1 for peer in range(size)]
    events = [given[2] if peer == rank else -1 for peer in range(size)] if given[2:] else []
    crowd = sum(card.boot == cards[rank].boot for card in cards)
    machines, pids = [card.host for card in cards], [card.pid for card in cards]
    links = Links(hosts, [None] * size, fds, machines, pids, [-1] * size, events, crowd, terms=terms)
    links.traces = [card.traces for card in cards]
    links.domains = domains(cards, hosts)
    for peer, (sock, theirs, ucx, more, spare) in met.items():
        links.sockets[peer], links.more[peer] = sock, more
        if spare is not None and ucx is None and spares[peer] in (cards[rank].remote, cards[peer].remote):
            spare.close()  # it was for UCX, which is not there
        elif spare is not None:
            links.spares[peer] = spare
        if ucx is not None:
            links.ucx[peer] = ucx
        for fds, fd in zip((links.fds, links.pidfds, links.events), theirs, strict=False):
            fds[peer] = fd
    try:
        for peer in met:
            for each in links.all(peer):
                steer(each, terms.sockets.congestion)
    except RendezvousError:
        links.close()
        raise
    return links
