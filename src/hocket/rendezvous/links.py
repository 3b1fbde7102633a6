"""How the ranks of a job find each other: each leaves a card in the store; then one socket between every two of them.

```
store.set("0/2", card of rank 2)            every rank leaves a card: host, pid, where it listens,
store.get("0/0"), store.get("0/1"), ...     and reads all others; a card that does not come names the missing rank.
rank r dials every lower rank               A Unix socket per pair, over which the two swap descriptors (mesh).
```

Hocket's own launcher holds the store in its process. Under other launchers rank 0 does, while the ranks meet.

What protects the links: listeners have random names, the kernel tells the other end's user id, and both ends prove the
job's secret. That comes from the launcher and is never written into the store, which may be one that everybody can read
(torch's is plain TCP): who reads the cards learns where the ranks listen, and cannot speak to them. Who can write the
store as well can keep the ranks from meeting, but not meet them. Where a launcher gives no secret, each rank derives
one from what identifies the job, which others may guess: there the user id is what keeps them out.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import ExitStack, closing
from dataclasses import dataclass

from ..config import HOCKET_RUN, Config
from ..deadline import Deadline
from ..errors import RendezvousError
from .cards import ONE_HOST, Card, check_one_host, exchange, whereabouts
from .mesh import Gone, Mesh
from .server import UnixStoreServer
from .sockets import explained, listen, reason
from .store import Absent, Store, Taken, UnixStore


@dataclass
class Links:
    """What one rank holds of the others; every list is indexed by rank.

    `sockets` are connected Unix stream sockets, non-blocking, None at the own rank. `fds` are the descriptors that the
    peers gave, and a duplicate of the own one. `pidfds` become readable when a peer's process ends, whoever else still
    holds its sockets; -1 at the own rank. The Links own all of them; `close` closes them. `formations` counts the
    subgroups that were begun.
    """

    sockets: list[socket.socket | None]
    fds: list[int]
    hosts: list[str]
    pids: list[int]
    pidfds: list[int]
    formations: int = 0

    def name(self, rank: int) -> str:
        """How messages call a rank."""
        return f"rank {rank} (pid {self.pids[rank]} on {self.hosts[rank]})"

    def close_outboxes(self) -> None:
        """Close `fds`: what they stand for has been mapped."""
        while self.fds:
            os.close(self.fds.pop())

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
    """Where one rank listens while the ranks meet. Once its address is `told`, others may come at any time."""

    listener: socket.socket
    told: bool = False

    @staticmethod
    def open() -> Door:
        """A door with a name that nobody can guess."""
        return Door(listen(f"@hocket-{secrets.token_hex(16)}"))

    @property
    def address(self) -> str:
        """Its name, as others dial it."""
        return f"@{self.listener.getsockname()[1:].decode()}"

    def close(self) -> None:
        """Listen no longer."""
        self.listener.close()


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


os.register_at_fork(after_in_child=forget_doors)  # a rank is one process: its children do not open in its name


def join(config: Config, fd: int, timeout: float | None = None) -> Links:
    """Meet the other ranks of the job and give `fd` to each of them. Raises RendezvousError after `timeout` seconds.

    The n-th meeting on one rank is the n-th on the others; one that failed on a rank can be tried again there. A world
    of one meets nobody.
    """
    deadline = Deadline(config.timeout if timeout is None else timeout)
    if config.size == 1:
        with explained("this rank cannot start"):
            return Links([None], [os.dup(fd)], [socket.gethostname()], [os.getpid()], [-1])
    meeting = _meetings.setdefault((config.address, config.rank), _Meeting())
    try:
        with explained("this rank cannot meet the others"):
            meeting.door = meeting.door or Door.open()
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
    address = config.address if config.launcher == HOCKET_RUN else f"{config.address}/{prefix}"
    server = None
    with ExitStack() as stack:
        try:
            if config.hosts_store:
                server = UnixStoreServer(address, config.secret, deadline.left(), patient=False)
                stack.enter_context(closing(server)).start()
            store = stack.enter_context(closing(UnixStore(address, config.secret, deadline.left())))
            return connect(
                store, config.rank, config.size, fd, deadline.left(), prefix, secret=config.secret, door=door
            )
        except Absent as error:
            holder = "The launcher" if config.launcher == HOCKET_RUN else "Rank 0"
            where = f"{error}. {holder} does: it may be slow, have failed, or run on another host: {ONE_HOST}"
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
    secret: bytes,
    door: Door | None = None,
) -> Links:
    """Link this rank with every other one, and swap `fd` for theirs. Raises RendezvousError after `timeout` seconds.

    `secret` is the job's, which all ranks know from elsewhere and prove to each other. A `door` remains the caller's.
    """
    deadline = Deadline(timeout)
    with ExitStack() as undo, ExitStack() as stack, explained("this rank cannot be connected"):
        door = door or stack.enter_context(closing(Door.open()))
        pidfd = os.pidfd_open(os.getpid())
        stack.callback(os.close, pidfd)
        own = os.dup(fd)
        undo.callback(os.close, own)
        try:
            store.set(f"{prefix}size", str(size).encode())
        except Taken as taken:
            theirs = taken.value.decode(errors="replace")
            raise RendezvousError(f"two jobs met at one address: one has {size} ranks, the other {theirs}") from None
        card = Card(rank, socket.gethostname(), os.getpid(), *whereabouts(), door.address)
        door.told = True
        blobs = exchange(store, rank, size, card.pack(), deadline.left(), prefix)
        cards = [Card.unpack(blob) for blob in blobs]
        check_one_host(cards)
        mesh = Mesh(door.listener, [str(card) for card in cards], [card.address for card in cards], rank, secret)
        found = mesh.run([fd, pidfd], deadline)
        undo.pop_all()
    links = Links([None] * size, [own] * size, [c.host for c in cards], [c.pid for c in cards], [-1] * size)
    for peer, (sock, (outbox, process)) in found.items():
        links.sockets[peer], links.fds[peer], links.pidfds[peer] = sock, outbox, process
    return links


def _signed(text: str, config: Config) -> str:
    return f"{text} (said by rank {config.rank} of {config.size}, started by {config.launcher})"
