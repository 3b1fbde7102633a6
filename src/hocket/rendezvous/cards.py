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

ONE_HOST = "hocket connects the ranks of one host only by now"


@dataclass(frozen=True)
class Card:
    """What a rank tells the others about itself. No secret: everybody may see it."""

    rank: int
    host: str
    pid: int
    boot: str
    network: str
    address: str

    @staticmethod
    def unpack(blob: bytes) -> Card:
        """Read a card. Raises RendezvousError where the blob is none."""
        with suppress(ValueError):
            match msgpack.unpackb(blob):
                case [int(rank), str(host), int(pid), str(boot), str(network), str(address)]:
                    return Card(rank, host, pid, boot, network, address)
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


def check_one_host(cards: list[Card]) -> None:
    """Raise RendezvousError, which names two ranks, unless all can reach each other's sockets."""
    first = cards[0]
    for card in cards:
        if card.boot != first.boot:
            raise RendezvousError(f"{card} and {first} are on different hosts: {ONE_HOST}")
        if card.network != first.network:
            raise RendezvousError(f"{card} and {first} are in different network namespaces (containers): {ONE_HOST}")


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


def _ranks(ranks: list[int]) -> str:
    if not ranks:
        return "none"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
