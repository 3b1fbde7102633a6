"""How the ranks of a job find each other: each leaves a card in the store; then one socket between every two of them.

```
store.set("0/2", card of rank 2)            every rank leaves a card: host, pid, where it listens,
store.get("0/0"), store.get("0/1"), ...     and reads all others; a card that does not come names the missing rank.
rank r calls every lower rank               A Unix socket per pair, over which the two swap a file descriptor.
```

Hocket's own launcher holds the store in its process. Under other launchers rank 0 does, while the ranks meet.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import struct
from contextlib import ExitStack, closing, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from ..config import HOCKET_RUN, Config
from ..deadline import Deadline
from ..errors import RendezvousError
from .store import SLACK, Absent, Store, Taken, UnixStore, UnixStoreServer, call, listen, verify

__all__ = ["Links", "Store", "UnixStore", "UnixStoreServer", "connect", "exchange", "join"]

ONE_HOST = "hocket connects the ranks of one host only by now"


@dataclass
class Links:
    """What one rank holds of the others; every list is indexed by rank.

    `sockets` are connected Unix stream sockets, non-blocking, None at the own rank. They stay open for life, since the
    end of file on one is how a peer's death is seen. `fds` are the descriptors that the peers gave, and a duplicate of
    the own one. The Links own both; `close` closes them.
    """

    sockets: list[socket.socket | None]
    fds: list[int]
    hosts: list[str]
    pids: list[int]

    def close(self) -> None:
        """Close all sockets and descriptors. A second call does nothing."""
        while self.fds:
            os.close(self.fds.pop())
        while self.sockets:
            if (link := self.sockets.pop()) is not None:
                link.close()


_generation = itertools.count()  # how often this process has joined: a job may init, close and init again


def join(config: Config, fd: int, timeout: float | None = None) -> Links:
    """Meet the other ranks of the job and give `fd` to each of them. Raises RendezvousError after `timeout` seconds.

    The n-th call on one rank meets the n-th on the others. A world of one meets nobody.
    """
    timeout = config.timeout if timeout is None else timeout
    prefix = f"{next(_generation)}/"
    if config.size == 1:
        return Links([None], [os.dup(fd)], [socket.gethostname()], [os.getpid()])
    deadline = Deadline(timeout)
    address = config.address if config.launcher == HOCKET_RUN else f"{config.address}/{prefix}"
    server = None
    with ExitStack() as stack:
        try:
            if config.hosts_store:
                server = stack.enter_context(closing(UnixStoreServer(address, config.secret, timeout).start()))
            store = stack.enter_context(closing(UnixStore(address, config.secret, deadline.left())))
            return connect(store, config.rank, config.size, fd, deadline.left(), prefix)
        except Absent as error:
            holder = "The launcher" if config.launcher == HOCKET_RUN else "Rank 0"
            where = f"{error}. {holder} does: it may be slow, have failed, or run on another host: {ONE_HOST}"
            raise RendezvousError(_signed(where, config)) from None
        except (RendezvousError, OSError) as error:
            if server is not None:
                server.close(f"rank 0, which held the meeting point, gave up: {error}")
            raise RendezvousError(_signed(str(error), config)) from None


def connect(store: Store, rank: int, size: int, fd: int, timeout: float, prefix: str = "") -> Links:
    """Link this rank with every other one, and swap `fd` for theirs. Raises RendezvousError after `timeout` seconds."""
    deadline = Deadline(timeout)
    name = f"@hocket-{secrets.token_hex(16)}"
    with closing(listen(name)) as listener:
        try:
            store.set(f"{prefix}size", str(size).encode())
        except Taken as taken:
            theirs = taken.value.decode(errors="replace")
            raise RendezvousError(f"two jobs met at one address: one has {size} ranks, the other {theirs}") from None
        card = Card(rank, socket.gethostname(), os.getpid(), *_whereabouts(), name, os.urandom(32))
        blobs = exchange(store, rank, size, msgpack.packb(astuple(card)), deadline.left(), prefix)
        cards = [Card.unpack(blob) for blob in blobs]
        _check_one_host(cards)
        sockets, fds = _mesh(listener, cards, rank, fd, deadline)
    fds[rank] = os.dup(fd)
    ranks = range(size)
    return Links(
        [sockets.get(r) for r in ranks], [fds[r] for r in ranks], [c.host for c in cards], [c.pid for c in cards]
    )


def exchange(store: Store, rank: int, size: int, blob: bytes, timeout: float, prefix: str = "") -> list[bytes]:
    """Every rank's blob, by rank. Raises RendezvousError after `timeout` seconds, naming who is missing."""
    deadline = Deadline(timeout)
    try:
        store.set(f"{prefix}{rank}", blob)
    except Taken:
        raise RendezvousError(f"two processes claim to be rank {rank}: was the job started twice?") from None
    try:
        return [store.get(f"{prefix}{peer}", deadline.left()) for peer in range(size)]
    except Absent:
        here = [peer for peer in range(size) if _wrote(store, f"{prefix}{peer}")]
    missing = [peer for peer in range(size) if peer not in here]
    raise RendezvousError(
        f"{_ranks(missing)} did not arrive within {deadline}; {_ranks(here)} did. "
        "Every rank must make this call: look for an earlier error there, or give a longer timeout"
    )


def _wrote(store: Store, key: str) -> bool:
    try:
        store.get(key, 0.0)
    except Absent:
        return False
    return True


@dataclass(frozen=True)
class Card:
    """What a rank tells the others about itself. `secret` is for the links; that of rank 0 is used."""

    rank: int
    host: str
    pid: int
    boot: str
    network: str
    address: str
    secret: bytes

    @staticmethod
    def unpack(blob: bytes) -> Card:
        """Read a card. Raises RendezvousError where the blob is none."""
        with suppress(ValueError):
            match msgpack.unpackb(blob):
                case [int(rank), str(host), int(pid), str(boot), str(network), str(address), bytes(secret)]:
                    return Card(rank, host, pid, boot, network, address, secret)
        raise RendezvousError("a rank left something that is no card: do all ranks have one version of hocket?")

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"


def _whereabouts() -> tuple[str, str]:
    """The boot of this machine and the network namespace: where both are equal, abstract sockets reach."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), str(Path("/proc/self/ns/net").readlink())
    except OSError:
        return socket.gethostname(), ""


def _check_one_host(cards: list[Card]) -> None:
    first = cards[0]
    for card in cards:
        if card.boot != first.boot:
            raise RendezvousError(f"{card} and {first} are on different hosts: {ONE_HOST}")
        if card.network != first.network:
            raise RendezvousError(f"{card} and {first} are in different network namespaces (containers): {ONE_HOST}")


def _mesh(
    listener: socket.socket, cards: list[Card], rank: int, fd: int, deadline: Deadline
) -> tuple[dict[int, socket.socket], dict[int, int]]:
    """Call every lower rank, then be called by every higher one: rank 0 only listens, so that no circle waits."""
    sockets: dict[int, socket.socket] = {}
    fds: dict[int, int] = {}
    secret = cards[0].secret
    with ExitStack() as undo:
        try:
            while len(sockets) < len(cards) - 1:
                lower = len(sockets) < rank
                sock = (
                    call(cards[len(sockets)].address, secret, deadline)
                    if lower
                    else _pick_up(listener, secret, deadline)
                )
                undo.callback(sock.close)
                peer, theirs = _swap(sock, rank, fd, deadline)
                undo.callback(os.close, theirs)
                sockets[peer], fds[peer] = sock, theirs
        except (OSError, EOFError, RendezvousError) as error:
            absent = [str(card) for card in cards if card.rank != rank and card.rank not in sockets]
            why = str(error) or f"no answer within {deadline}"
            raise RendezvousError(f"{', '.join(absent)} arrived, but could not be connected: {why}") from error
        undo.pop_all()
    for sock in sockets.values():
        sock.setblocking(False)
    return sockets, fds


def _pick_up(listener: socket.socket, secret: bytes, deadline: Deadline) -> socket.socket:
    """The next caller that proves to belong to the job. Strangers are sent away, and cost little time."""
    while True:
        listener.settimeout(max(deadline.left(), 0.001))
        sock, _ = listener.accept()
        try:
            verify(sock, secret, "host", Deadline(min(SLACK, deadline.left())))
            return sock
        except (OSError, EOFError, RendezvousError):
            sock.close()


def _swap(sock: socket.socket, rank: int, fd: int, deadline: Deadline) -> tuple[int, int]:
    """Give rank and descriptor, and take the peer's."""
    sock.settimeout(max(deadline.left(), 0.001))
    socket.send_fds(sock, [struct.pack("<I", rank)], [fd])
    message, fds, _, _ = socket.recv_fds(sock, 4, 1)
    for received in fds:
        os.set_inheritable(received, False)
    if len(message) != 4 or len(fds) != 1:
        raise EOFError("it left in the middle of the greeting")
    return struct.unpack("<I", message)[0], fds[0]


def _signed(text: str, config: Config) -> str:
    return f"{text} (said by rank {config.rank} of {config.size}, started by {config.launcher})"


def _ranks(ranks: list[int]) -> str:
    if not ranks:
        return "none"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
