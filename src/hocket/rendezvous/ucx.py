"""What goes between hosts through UCX instead of TCP: which ranks do that, and how two of them come to it.

Each rank's card tells over what it may be spoken to from other hosts, and why it cannot use UCX, if it cannot. So all
ranks come to the same conclusion for every two of them, before any of them is linked. Then, over the proven socket of
such two, which stays (`csrc/transport/ucx`):

```
here I can be reached ───▶     ◀─── here I can be reached        or why not
I have reached you    ───▶     ◀─── I have reached you           or why not
a greeting through UCX ┄┄▶     ◀┄┄ a greeting through UCX
```

Where one of them cannot, both go on over TCP, if they may; else it is an error, which says why.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations

from .._core import Ucx, UcxContext
from ..config import SocketOptions
from ..errors import HocketError, RendezvousError
from .cards import Card
from .parcels import Incoming, Outgoing

_NO, _YES, _WITH_WARNING = range(3)  # cannot; can; can, and would tell if it broke
_HEAD = struct.Struct("<BH")
_LONGEST = 400  # bytes of why not, on a card
_HOW = "; HOCKET_TRANSPORT=shm,ucx,tcp, or a tcp:// URL beside each rdma://, would fall back to TCP"
_PLACE, _VERDICT = 8192, 512  # bytes of the notes


def found(options: SocketOptions) -> tuple[UcxContext | None, str]:
    """UCX, as this rank can use it, or why it cannot; neither where nobody asked for it."""
    if "ucx" not in options.ways:
        return None, ""
    if options.tls is not None:
        return None, "the job uses TLS (HOCKET_TLS_CERT), and what goes through UCX is not encrypted"
    if not options.ucx_transports:
        return None, "UCX_TLS leaves it nothing but TCP, which hocket does not let it use: it believes whoever comes"
    try:
        return _context(options.libucp, options.ucx_transports), ""
    except HocketError as error:
        return None, str(error).encode()[:_LONGEST].decode(errors="ignore")


@cache
def _context(path: str, transports: str) -> UcxContext:
    """It takes a moment to begin, and is kept."""
    return UcxContext(path, transports)


def agreed(cards: Sequence[Card], places: Sequence[int], rank: int) -> list[tuple[str, ...]]:
    """Over what this rank may talk to each other one, the best first: ("ucx",), ("ucx", "tcp") or ("tcp",); nothing to
    those of its host.

    Raises RendezvousError, the same one on each rank, where two of them have nothing in common.
    """
    kinds = {(place, card.ways, card.ucx, card.lacks): card for card, place in zip(cards, places, strict=True)}
    for (one, first), (other, second) in combinations(kinds.items(), 2):
        if one[0] != other[0]:
            _between(first, second)
    return [
        () if place == places[rank] else _between(cards[rank], card) for card, place in zip(cards, places, strict=True)
    ]


def _between(one: Card, other: Card) -> tuple[str, ...]:
    common = tuple(way for way in one.ways if way in other.ways)
    if not common:
        raise RendezvousError(
            f"{one} talks to other hosts over {' or '.join(one.ways)}, and {other} over {' or '.join(other.ways)}: "
            "give all ranks one HOCKET_TRANSPORT, or URLs of peers that have tcp:// or rdma:// in common"
        )
    if "ucx" in common and (why := _hindrance(one, other)):
        common = tuple(way for way in common if way != "ucx")
        if not common:
            raise RendezvousError(f"{why}{_HOW}")
    return common


def _hindrance(one: Card, other: Card) -> str:
    """Why the two, which should, cannot talk through UCX. Of two versions of it one was seen to crash the other."""
    for card in (one, other):
        if card.lacks:
            return f"{card} is to talk to other hosts through UCX, and cannot: {card.lacks}"
    if one.ucx.split(".")[:2] != other.ucx.split(".")[:2]:
        return f"{one} has UCX {one.ucx}, and {other} has {other.ucx}: they must be of one version"
    return ""


class Crossing:
    """One end of a way through UCX, as it comes about over a proven socket, without waiting: `advance` is called again
    and again. `pipe` is the way; None where it is to be TCP, which only may be where that is `optional`."""

    def __init__(self, context: UcxContext, sock: socket.socket, *, optional: bool) -> None:
        self._sock, self._optional = sock, optional
        self._place, self._verdict = Incoming(sock, _PLACE), Incoming(sock, _VERDICT)
        self._told: tuple[int, bytes] | None = None  # what this end said of its attempt
        self.pipe: Ucx | None = None
        try:
            self.pipe = Ucx(context, sock.fileno())
            self._say(_PLACE, _YES, self.pipe.address())
        except HocketError as error:
            self._say(_PLACE, _NO, str(error).encode())

    def advance(self) -> bool:
        """Whether all is done. Raises RendezvousError where it cannot be, and EOFError where the other end left."""
        if not self._place.pull():
            return False
        if self._told is None:
            self._told = self._reach(*_note(self._place.data))
            self._say(_VERDICT, *self._told)
        if not self._verdict.pull():
            return False
        theirs = _note(self._verdict.data)
        if self._told[0] != theirs[0] or self._told[0] == _NO:
            return self._give_up(min(self._told, theirs)[1])
        assert self.pipe is not None
        try:
            if self.pipe.greeted():
                return True
        except HocketError as error:
            raise RendezvousError(str(error)) from None
        with suppress(BlockingIOError):
            if not self._sock.recv(1, socket.MSG_PEEK):
                raise EOFError("it left before it had greeted")
        return False

    def close(self) -> None:
        """Give the way up."""
        if self.pipe is not None:
            self.pipe.close()
        self.pipe = None

    def _reach(self, can: int, place: bytes) -> tuple[int, bytes]:
        if self.pipe is None:
            return _NO, b"the other end cannot use UCX"
        if can == _NO:
            return _NO, place
        try:
            return (_WITH_WARNING if self.pipe.connect(place) else _YES), b""
        except HocketError as error:
            return _NO, str(error).encode()

    def _give_up(self, why: bytes) -> bool:
        self.close()
        if self._optional:
            return True
        reason = why.decode(errors="replace") or "the two ends chose different transports of UCX"
        raise RendezvousError(f"{reason}{_HOW}")

    def _say(self, size: int, kind: int, text: bytes) -> None:
        if len(text) > size - _HEAD.size:
            if kind != _NO:
                kind, text = _NO, b"UCX has an address that is too long"
            text = text[: size - _HEAD.size]
        if not Outgoing(self._sock, (_HEAD.pack(kind, len(text)) + text).ljust(size, b"\0")).push():
            raise EOFError("it does not listen")


def _note(data: bytes) -> tuple[int, bytes]:
    kind, length = _HEAD.unpack_from(data)
    return kind, data[_HEAD.size : _HEAD.size + length]
