"""The cards that ranks leave in the store for each other: who they are, where they run, and where they listen."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from ..deadline import Deadline
from ..errors import RendezvousError
from .sockets import USED_UP
from .store import Absent, Store, Taken


@dataclass(frozen=True)
class Card:
    """What a rank tells the others about itself. No secret: everybody may see it.

    `address` is where it listens for ranks of its host, `remote` where for others; empty: nowhere. `alone`: it shares
    no memory with anybody.
    """

    rank: int
    host: str
    pid: int
    boot: str
    network: str
    address: str
    remote: str = ""
    alone: bool = False

    @staticmethod
    def unpack(blob: bytes) -> Card:
        """Read a card. Raises RendezvousError where the blob is none."""
        with suppress(ValueError):
            unpacker = msgpack.Unpacker()  # what follows the card is padding
            unpacker.feed(blob)
            match next(unpacker, None):
                case [int(rank), str(host), int(pid), str(boot), str(net), str(address), str(remote), bool(alone)]:
                    return Card(rank, host, pid, boot, net, address, remote, alone)
        raise RendezvousError("a rank left something that is no card: do all ranks have one version of hocket?")

    def pack(self) -> bytes:
        """As it is left in the store."""
        blob: bytes = msgpack.packb(astuple(self))
        return blob

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"


def whereabouts() -> tuple[str, str]:
    """The boot of this machine and the network namespace: where both are equal, abstract sockets reach."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), str(Path("/proc/self/ns/net").readlink())
    except OSError as error:
        if error.errno in USED_UP:
            raise
        return socket.gethostname(), ""  # a container without /proc


def places(cards: list[Card]) -> list[int]:
    """The host of each rank, as a number: ranks of one number share memory. The same list on every rank.

    Raises RendezvousError, which names two ranks, where some are apart and cannot be reached from elsewhere.
    """
    seen: dict[tuple[object, ...], int] = {}
    keys = [(card.boot, card.network, card.rank if card.alone else None) for card in cards]
    numbers = [seen.setdefault(key, len(seen)) for key in keys]
    for card, number in zip(cards, numbers, strict=True):
        if len(seen) == 1 or (card.remote and cards[0].remote):
            continue
        other = next(other for other, its in zip(cards, numbers, strict=True) if its != number)
        apart = "on different hosts" if card.boot != other.boot else "in different network namespaces (containers)"
        raise RendezvousError(f"{card} and {other} are {apart}, and nothing tells how they can reach each other: {HOW}")
    return numbers


HOW = "across hosts the ranks meet over TCP, at hocket.init(rendezvous='tcp://host:port') or HOCKET_RENDEZVOUS"


def exchange(store: Store, rank: int, size: int, blob: bytes, timeout: float, prefix: str = "") -> list[bytes]:
    """Every rank's blob, by rank. Raises RendezvousError after `timeout` seconds, naming who is missing."""
    deadline = Deadline(timeout)
    try:
        store.set(f"{prefix}{rank}", blob)
    except Taken as taken:
        raise RendezvousError(
            f"two processes claim to be rank {rank}: was the job started twice?{taken.hint}"
        ) from None
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


def _ranks(ranks: list[int]) -> str:
    if not ranks:
        return "none"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
