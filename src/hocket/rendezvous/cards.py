"""The cards that ranks leave in the store for each other: who they are, where they run, and where they listen."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]

from .._core import VERSION
from ..config import LIFE
from ..deadline import Deadline
from ..errors import RendezvousError
from ..words import named
from .seal import seal, unseal
from .sockets import USED_UP
from .store import Absent, Store, Taken

_LONGEST = 4096  # bytes of a note: a store may hold anything
_HEAD = re.compile(rb"hocket ([!-~]{1,40})\n")


class Card(NamedTuple):
    """What a rank tells the others about itself. No secret is in it; but where ranks listen is nobody else's business.

    `address` is where it listens for ranks of its host, `remote` where for others; empty: nowhere. `alone`: it shares
    no memory with anybody. `ways` are what it may talk over to other hosts, "ucx" and "tcp", the best first; `ucx` is
    the version of UCX that it would use, and `lacks` tells why it can use none, although it should. `streams` are the
    TCP connections that it would have with each rank of another host, and after `life` milliseconds of silence it would
    give that one up; where it `traces` it writes a timeline. `spare` is where it listens
    for what goes on there when the way over `remote` breaks; empty: nowhere. `domain` is the number of the cores that
    share a cache to which it is bound (`hocket.cores`), -1 where to none. `profile` is what it knows of its machine
    (`hocket.tuning.profile`), packed: rank 0 tells it where a job meets, and all ranks take that one; else it is empty.
    """

    rank: int
    host: str
    pid: int
    boot: str
    network: str
    address: str
    remote: str = ""
    alone: bool = False
    ways: tuple[str, ...] = ("tcp",)
    ucx: str = ""
    lacks: str = ""
    streams: int = 1
    life: int = round(1000 * LIFE)
    traces: bool = False
    spare: str = ""
    domain: int = -1
    profile: str = ""

    @staticmethod
    def unpack(blob: bytes) -> Card:
        """Read a card. Raises RendezvousError where the blob is none."""
        with suppress(ValueError, msgpack.BufferFull):
            most = len(Card._fields)  # of an array: one of a hundred million would be made because its head says so
            unpacker = msgpack.Unpacker(max_buffer_size=_LONGEST, max_array_len=most, max_map_len=0, max_ext_len=0)
            unpacker.feed(blob)  # what follows the card is padding
            match next(unpacker, None):
                case [
                    int(),
                    str(),
                    int(),
                    str(),
                    str(),
                    str(),
                    str(),
                    bool(),
                    [*ways],
                    str(),
                    str(),
                    int(),
                    int(),
                    bool(),
                    str(),
                    int(),
                    str(),
                ] as found:
                    found[8] = tuple(map(str, ways))
                    return Card(*found)
        raise RendezvousError("a rank left something that is no card: do all ranks have one version of hocket?")

    def pack(self) -> bytes:
        """As it is passed on within a group."""
        blob: bytes = msgpack.packb(self)
        return blob

    def note(self, secret: bytes, label: str) -> bytes:
        """As it is left in a store: sealed (`seal`), behind the version of hocket, which is in clear."""
        return b"hocket " + VERSION.encode() + b"\n" + seal(secret, label, self.pack())

    @staticmethod
    def read(note: bytes, secret: bytes, label: str, writer: int, reader: int) -> Card:
        """The card in a note of rank `writer`. Raises RendezvousError for one of another version, which it names, and
        for one that was not sealed with this secret and label."""
        head = _HEAD.match(note)
        if head is None or len(note) > _LONGEST:
            raise RendezvousError(f"rank {writer} left what is no card: do all ranks have one version of hocket?")
        if (theirs := head[1].decode()) != VERSION:
            raise RendezvousError(
                f"rank {writer} has hocket {theirs}, and rank {reader} has {VERSION}: all ranks need the same version"
            )
        try:
            return Card.unpack(unseal(secret, label, note[head.end() :]))
        except RendezvousError as error:
            raise RendezvousError(f"the card of rank {writer} cannot be read: {error}") from None

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


def domains(cards: list[Card], places: list[int]) -> list[int]:
    """The cache domain of each rank, as a number: no two hosts have one in common, and a host of which any rank is
    bound to none counts as one. The same list on every rank. `places` are the numbers of their hosts."""
    loose = {place for card, place in zip(cards, places, strict=True) if card.domain < 0}
    seen: dict[tuple[int, int], int] = {}
    keys = [(place, -1 if place in loose else card.domain) for card, place in zip(cards, places, strict=True)]
    return [seen.setdefault(key, len(seen)) for key in keys]


def connections(cards: list[Card], ways: Sequence[Sequence[str]]) -> list[int]:
    """How many there are with each rank, over what the two may talk: several only where that is TCP alone. One that may
    be through UCX has one, which is also all that it falls back to.

    Raises RendezvousError, the same one on each rank, where there are several hosts and two ranks want another number,
    or would give each other up after another time: who waits longer would not say often enough that it lives.
    """
    if any(ways):
        _agree(cards, "HOCKET_TCP_STREAMS", [card.streams for card in cards], 1)
        _agree(cards, "HOCKET_HEARTBEAT_TIMEOUT", [card.life / 1000 for card in cards], LIFE)
    return [cards[0].streams if tuple(way) == ("tcp",) else 1 for way in ways]


def spared(cards: list[Card], ways: Sequence[Sequence[str]], rank: int, *, upwards: bool) -> list[str]:
    """Where what this rank has with each other one goes on when the first way breaks: at the other door of the one that
    is dialled, by lower ranks (`upwards`) or by higher ones; or, behind UCX, over TCP at least. Empty: nowhere."""

    def spare(peer: int) -> str:
        dialled = cards[max(rank, peer) if upwards else min(rank, peer)]
        return dialled.spare or (dialled.remote if tuple(ways[peer]) == ("ucx", "tcp") else "")

    return [spare(peer) if ways[peer] and peer != rank else "" for peer in range(len(cards))]


def _agree(cards: list[Card], name: str, values: Sequence[float], default: float) -> None:
    for other, value in zip(cards, values, strict=True):
        if value != values[0]:
            raise RendezvousError(
                f"{cards[0]} has {name}={values[0]:.15g}, and {other} has {name}={value:.15g} "
                f"(it is {default:g} where it is not set): give all ranks the same"
            )


HOW = (
    "across hosts the ranks meet over TCP and have one secret: hocket.init(rendezvous='tcp://host:port', secret=...), "
    "or HOCKET_RENDEZVOUS and HOCKET_SECRET, or a tcp:// URL for each rank of peers"
)


def exchange(store: Store, rank: int, size: int, blob: bytes, limit: Deadline | float, prefix: str = "") -> list[bytes]:
    """Every rank's blob, by rank. Raises RendezvousError at the limit, naming who is missing."""
    deadline = Deadline.of(limit)
    try:
        store.set(f"{prefix}{rank}", blob, deadline.left())
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
        f"{named(missing)} did not arrive within {deadline}; {named(here)} did. "
        "Every rank must make this call: look for an earlier error there, or give a longer timeout"
    )


def _wrote(store: Store, key: str) -> bool:
    try:
        store.get(key, 0.0)
    except Absent:
        return False
    return True
