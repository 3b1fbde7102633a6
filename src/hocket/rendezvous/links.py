"""How the ranks of a job find each other: each leaves a card in the store; then one socket between every two of them.

```
store.set("0/2", card of rank 2)            every rank leaves a card: host, pid, where it listens,
store.get("0/0"), store.get("0/1"), ...     and reads all others; a card that does not come names the missing rank.
rank r dials every lower rank               A Unix socket per pair, over which the two swap descriptors (mesh).
```

Hocket's own launcher holds the store in its process. Under other launchers rank 0 does, while the ranks meet.

Ranks of different hosts are linked by TCP instead, and share no memory. They meet at a TCP store, which rank 0 holds,
or in a folder.

What protects the links: listeners have random names, the kernel tells the other end's user id on one host, and both
ends prove the job's secret, without which nothing is done across hosts. That comes from the launcher or the user and is
never written into the store, which may be one that everybody can read (torch's is plain TCP): who reads the cards
learns where the ranks listen, and cannot speak to them. Who can write the store as well can keep the ranks from
meeting, but not meet them. Where a launcher gives no secret, each rank of a host derives one from what identifies the
job, which others may guess: there the user id is what keeps them out.
"""

from __future__ import annotations

import os
import secrets
import socket
import weakref
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field

from .._core import Credentials, Tls
from ..addresses import tcp_url
from ..config import HOCKET_RUN, Config, SocketOptions
from ..deadline import Deadline
from ..errors import RendezvousError
from .cards import HOW, Card, exchange, places, whereabouts
from .files import FileStore
from .interfaces import own_address
from .mesh import Gone, Look, Mesh
from .server import CLOSED, StoreServer
from .sockets import explained, listen, reason, steer
from .store import Absent, Closed, SocketStore, Store, Taken
from .tls import TlsSocket, credentials


@dataclass(frozen=True)
class Terms:
    """What a rank needs to be linked with others, also once more: the job's secret, the way to other hosts, whether it
    shares memory with nobody, how its TCP sockets are to be, and what it shows where they use TLS."""

    secret: bytes = field(repr=False)
    towards: str = ""
    alone: bool = False
    sockets: SocketOptions = field(default_factory=SocketOptions)
    tls: Credentials | None = None

    @staticmethod
    def of(secret: bytes, towards: str, alone: bool, sockets: SocketOptions) -> Terms:
        """These terms, with what the files of certificates hold. Raises RendezvousError where they are no good."""
        return Terms(secret, towards, alone, sockets, credentials(sockets.tls))


@dataclass(eq=False)
class Links:
    """What one rank holds of the others; every list is indexed by rank.

    `places` are numbers of hosts: ranks of one number share memory. `sockets` are connected stream sockets,
    non-blocking, Unix on one host and TCP between hosts, None at the own rank. `fds` are the descriptors that the peers
    gave, and a duplicate of the own one. `pidfds` become readable when a peer's process ends, whoever else still holds
    its sockets; -1 at the own rank. From another host there are no descriptors, but -1. `events` are eventfds of this
    host's ranks, where there are several hosts. The Links own all of them; `close` closes them. `crowd` ranks share the
    cores of this machine. `formations` counts the subgroups that were begun; between hosts, `terms` is what those need
    to link anew.
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

    def __post_init__(self) -> None:
        if self.is_far:
            _far.add(self)

    @property
    def is_far(self) -> bool:
        """Whether there are several hosts."""
        return len(set(self.places)) > 1

    @property
    def tls(self) -> list[Tls | None]:
        """What goes over each socket, where it is encrypted."""
        return [sock.tls if isinstance(sock, TlsSocket) else None for sock in self.sockets]

    @property
    def checked(self) -> bool:
        """Whether all that goes between hosts carries checksums."""
        return self.terms is not None and self.terms.sockets.integrity

    def name(self, rank: int) -> str:
        """How messages call a rank."""
        return f"rank {rank} (pid {self.pids[rank]} on {self.hosts[rank]})"

    def close_outboxes(self) -> None:
        """Close `fds` and `events`: what they stand for has been mapped, and duplicated."""
        for fds in (self.fds, self.events):
            while fds:
                if (fd := fds.pop()) >= 0:
                    os.close(fd)

    def close(self) -> None:
        """Close all sockets and descriptors. A second call does nothing."""
        self.close_outboxes()
        while self.pidfds:
            if (pidfd := self.pidfds.pop()) >= 0:
                os.close(pidfd)
        while self.sockets:
            if (link := self.sockets.pop()) is not None:
                link.close()


@dataclass
class Door:
    """Where one rank listens while the ranks meet: for those of its host, and for others where there may be some. Once
    its addresses are `told`, others may come at any time."""

    listener: socket.socket
    remote: socket.socket | None = None
    name: str = ""
    told: bool = False

    @staticmethod
    def open(towards: str = "", interface: str = "") -> Door:
        """A door with a name that nobody can guess; for ranks elsewhere, on the interface `towards` that address, or on
        the one that is wished for."""
        name = secrets.token_hex(16)
        with ExitStack() as undo:
            door = Door(undo.enter_context(listen(f"@hocket-{name}")), None, name)
            if towards and (own := own_address(towards, interface)):
                door.remote = listen(own)
            undo.pop_all()
        return door

    @property
    def address(self) -> str:
        """Its name, as others dial it."""
        return f"@{self.listener.getsockname()[1:].decode()}"

    def card(self, rank: int, alone: bool) -> Card:
        """What the others must know to come here."""
        host, pid = socket.gethostname(), os.getpid()
        return Card(rank, host, pid, *whereabouts(), self.address, self.remote_address, alone)

    @property
    def remote_address(self) -> str:
        """As ranks of other hosts dial it; empty where they cannot."""
        if self.remote is None:
            return ""
        host, port, *_ = self.remote.getsockname()
        return tcp_url(host, port, self.name)

    @property
    def listeners(self) -> list[tuple[socket.socket, bytes | None]]:
        """The sockets, and what they are called in proofs."""
        near: list[tuple[socket.socket, bytes | None]] = [(self.listener, None)]
        return near if self.remote is None else [*near, (self.remote, self.name.encode())]

    def close(self) -> None:
        """Listen no longer."""
        self.listener.close()
        if self.remote is not None:
            self.remote.close()


@dataclass
class _Meeting:
    """A rank's meetings at one address: a job may init, close and init again.

    A meeting that failed is tried again under the same number, behind the same door: the others may have read its
    address, and still wait there. So a rank that gave up too early finds those that did not.
    """

    number: int = 0
    door: Door | None = None

    def over(self) -> None:
        """The next one is another one."""
        self.number += 1
        self.leave()

    def leave(self) -> None:
        """Close the door."""
        if self.door is not None:
            self.door.close()
            self.door = None


_meetings: dict[tuple[str, int], _Meeting] = {}  # by address and rank


def forget_doors() -> None:
    """Close the doors of meetings that failed."""
    for meeting in _meetings.values():
        meeting.leave()


_far: weakref.WeakSet[Links] = weakref.WeakSet()


def _let_go() -> None:
    """A connection lasts until nobody holds it: so a child does not, and its parent's death shows on other hosts."""
    null = os.open(os.devnull, os.O_RDWR)
    for links in list(_far):
        for sock in links.sockets:
            if sock is not None and sock.family != socket.AF_UNIX:
                os.dup2(null, sock.fileno(), inheritable=False)  # the number stays taken, as its owner believes
    os.close(null)


os.register_at_fork(after_in_child=_let_go)
os.register_at_fork(after_in_child=forget_doors)  # a rank is one process: its children do not open in its name


def join(config: Config, fd: int, timeout: float | None = None) -> Links:
    """Meet the other ranks of the job and give `fd` to each of them. Raises RendezvousError after `timeout` seconds.

    The n-th meeting on one rank is the n-th on the others; one that failed on a rank can be tried again there. A world
    of one meets nobody.
    """
    deadline = Deadline(config.timeout if timeout is None else timeout)
    if config.size == 1:
        with explained("this rank cannot start"):
            return Links([0], [None], [os.dup(fd)], [socket.gethostname()], [os.getpid()], [-1], [], 1)
    meeting = _meetings.setdefault((config.address, config.rank), _Meeting())
    try:
        with explained("this rank cannot meet the others"):
            meeting.door = meeting.door or Door.open(config.towards, config.sockets.interface)
            links = _meet(config, fd, deadline, meeting.door, f"{meeting.number}/")
        meeting.over()
        return links
    except Gone as error:  # all others have met without this rank, or one has died: this meeting will not be
        meeting.over()
        raise RendezvousError(_signed(str(error), config)) from error
    except RendezvousError as error:
        raise RendezvousError(_signed(str(error), config)) from error.__cause__
    finally:
        if meeting.door is not None and not meeting.door.told:
            meeting.leave()


def _meet(config: Config, fd: int, deadline: Deadline, door: Door, prefix: str) -> Links:
    """Find the store, or open it, and connect."""
    terms = Terms.of(config.secret, config.towards, config.transport == "tcp", config.sockets)

    def link(store: Store) -> Links:
        return connect(store, config.rank, config.size, fd, deadline.left(), prefix, terms=terms, door=door)

    if config.folder is not None:
        notes = FileStore(config.folder)
        links = link(notes)
        if config.rank == 0:
            with suppress(OSError):  # all have read all cards, or they would not be linked
                notes.clear(prefix)
        return links
    is_lasting = config.launcher == HOCKET_RUN or config.is_far  # the same at all meetings
    address = config.address if is_lasting else f"{config.address}/{prefix}"
    server = None
    with ExitStack() as stack:
        try:
            if config.hosts_store:
                server = StoreServer(address, config.secret, deadline.left(), patient=False, tls=terms.tls)
                stack.enter_context(closing(server)).start()
            while True:
                store = stack.enter_context(closing(SocketStore(address, config.secret, deadline.left(), terms.tls)))
                try:
                    return link(store)
                except Closed as error:
                    if str(error) != CLOSED or not config.is_far or not deadline.left():
                        raise
                    store.close()  # it was that of an earlier meeting, at the same port
        except Absent as error:
            holder = "The launcher" if config.launcher == HOCKET_RUN else "Rank 0"
            where = f"{error}. {holder} does: it may be slow, have failed, or run on another host: {HOW}"
            raise RendezvousError(where) from None
        except (RendezvousError, OSError) as error:
            if server is not None:
                server.close(f"rank 0, which held the meeting point, gave up: {reason(error)}")
            raise


def connect(
    store: Store,
    rank: int,
    size: int,
    fd: int,
    timeout: float,
    prefix: str = "",
    *,
    terms: Terms,
    door: Door | None = None,
) -> Links:
    """Link this rank with every other one, and swap `fd` for theirs. Raises RendezvousError after `timeout` seconds.

    The secret of `terms` is the job's, which all ranks know from elsewhere and prove to each other. A `door` remains
    the caller's.
    """
    deadline = Deadline(timeout)
    with ExitStack() as stack, explained("this rank cannot be connected"):
        door = door or stack.enter_context(closing(Door.open(terms.towards, terms.sockets.interface)))
        try:
            checked = " with integrity" * terms.sockets.integrity
            store.set(f"{prefix}size", f"{size}{checked}".encode())
        except Taken as taken:
            theirs = taken.value.decode(errors="replace")
            words = f"two jobs met at one address: one has {size} ranks{checked}, the other {theirs}"
            what = "integrity" if "integrity" in checked + theirs else "the size"
            raise RendezvousError(f"{words}: do all agree on {what}?{taken.hint}") from None
        card = door.card(rank, terms.alone)
        door.told = True
        blobs = exchange(store, rank, size, card.pack(), deadline.left(), prefix)
        cards = [Card.unpack(blob) for blob in blobs]
        return meet_at(door, cards, rank, fd, terms, deadline)


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
        addresses = [card.address if here else card.remote for card, here in zip(cards, near, strict=True)]
        mesh = Mesh(door.listeners, [str(card) for card in cards], addresses, rank, terms.secret, terms.tls)
        given = [fd, pidfd]
        if not all(near):
            given.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            undo.callback(os.close, given[2])
        found = mesh.run(given, deadline, look)
        undo.pop_all()
    fds = [own if peer == rank else -1 for peer in range(size)]
    events = [given[2] if peer == rank else -1 for peer in range(size)] if given[2:] else []
    crowd = sum(card.boot == cards[rank].boot for card in cards)
    names, pids = [card.host for card in cards], [card.pid for card in cards]
    links = Links(hosts, [None] * size, fds, names, pids, [-1] * size, events, crowd, terms=terms)
    for peer, (sock, theirs) in found.items():
        links.sockets[peer] = sock
        for fds, fd in zip((links.fds, links.pidfds, links.events), theirs, strict=False):
            fds[peer] = fd
    try:
        for sock, _ in found.values():
            steer(sock, terms.sockets.congestion)
    except RendezvousError:
        links.close()
        raise
    return links


def _signed(text: str, config: Config) -> str:
    return f"{text} (said by rank {config.rank} of {config.size}, started by {config.launcher})"
