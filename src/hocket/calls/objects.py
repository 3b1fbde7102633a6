"""Objects of Python's, as bytes in collectives and messages. Nothing else here or below knows of pickle.

A collective of objects begins with heads, of the same size each time, which tell how many bytes there are, and have
room for those of short objects: one call, which is prepared once and made by the core (`exchange`). Longer ones move in
a second call, in the same turn; where they are not very long, padded to a power of two. So calls of a few sizes come
again and again, prepared and in buffers of their own; which is safe, as whoever has the turn is alone. Pickling and
unpickling run code of the user's, which may make calls itself: they are done outside of the turn.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from .._core import Prepared
from ..deadline import Deadline
from ..run.signature import Signature
from .dispatch import Call, Dispatch, How
from .messages import Messages, Received

PADDED = 16 << 10  # bytes: what is longer is moved as it is
HEAD = 2048  # bytes, of each rank that gives any
FEW = 32  # ranks that can all get one another's
KEPT = 64  # prepared calls

T = TypeVar("T")
Key: TypeAlias = "tuple[str, str, int, int, tuple[int, ...] | None]"

BYTE = np.dtype(np.uint8)
LENGTHS = 16  # bytes of the two lengths that begin a head


class _Ready(NamedTuple):
    """A call in buffers of its own: where it takes its input from, and where its result will lie."""

    prepared: Prepared
    given: memoryview
    got: memoryview


class Objects:
    """The objects of one rank of a group."""

    def __init__(self, go: Dispatch, messages: Messages) -> None:
        self._go, self._messages = go, messages
        self._kept: dict[Key, _Ready] = {}

    # ---- collectives -------------------------------------------------------------------------------------------------

    def broadcast(self, obj: Any, root: int, timeout: float | None) -> Any:
        """The root's object."""
        here, text = self._go.rank == root, f"broadcast_object(root={root})"
        came = self.tell(dumps(obj) if here else b"", text, timeout, root)
        return obj if here else pickle.loads(came)

    def tell(self, data: bytes, text: str, timeout: float | None, root: int = 0) -> bytes:
        """The root's bytes, in the call `text`."""

        def rest(turn: _Turn, lengths: list[int]) -> list[bytes]:
            (length,) = lengths
            return [bytes(turn.move("broadcast", data, padded(length), root)[:length])]

        (came,) = self._exchange("broadcast", text, [data] if self._go.rank == root else [], root, timeout, rest)
        return came

    def collect(self, data: bytes, text: str, timeout: float | None) -> list[bytes]:
        """All ranks' bytes, in the call `text`."""
        return self._gather("all_gather", text, data, 0, timeout)

    def gather(self, obj: Any, root: int, timeout: float | None) -> list[Any] | None:
        """All ranks' objects on the root."""
        got = self._gather("gather", f"gather_object(root={root})", dumps(obj), root, timeout)
        return None if self._go.rank != root else [pickle.loads(each) for each in got]

    def all_gather(self, obj: Any, timeout: float | None) -> list[Any]:
        """All ranks' objects."""
        return [pickle.loads(each) for each in self.collect(dumps(obj), "all_gather_object()", timeout)]

    def _gather(self, name: str, text: str, data: bytes, root: int, timeout: float | None) -> list[bytes]:
        def rest(turn: _Turn, lengths: list[int]) -> list[bytes]:
            width = padded(max(lengths))
            if width > PADDED:
                joined = turn.move(name, data, sum(lengths), root, tuple(lengths))
                ends = list(accumulate(lengths))
            else:
                joined = turn.move(name, data, self._go.size * width, root)
                ends = [rank * width + length for rank, length in enumerate(lengths)]
            if not len(joined):
                return []
            return [bytes(joined[end - length : end]) for end, length in zip(ends, lengths, strict=True)]

        # All hear how long all are, also where only the root wants to know what they are.
        return self._exchange("all_gather", text, [data], 0, timeout, rest)

    def scatter(self, objs: Sequence[Any] | None, root: int, timeout: float | None) -> Any:
        """One object of the root's for each rank."""
        rank, size, text = self._go.rank, self._go.size, f"scatter_object(root={root})"
        here, data = rank == root, list[bytes]()
        if here:
            given = list(objs or ())
            if objs is None or len(given) != size:
                raise ValueError(f"the root gives one object for each of {size} ranks, not {len(given)}")
            data = [dumps(obj) for obj in given]

        def rest(turn: _Turn, lengths: list[int]) -> list[bytes]:
            told = turn.move("broadcast", struct.pack(f"{len(data)}q", *map(len, data)), 8 * size, root)
            lengths = told.cast("q").tolist()
            width = padded(max(lengths))
            if width > PADDED:
                return [bytes(turn.move("scatter", b"".join(data), sum(lengths), root, tuple(lengths)))]
            even = b"".join(each.ljust(width, b"\0") for each in data)
            return [bytes(turn.move("scatter", even, size * width, root)[: lengths[rank]])]

        (came,) = self._exchange("scatter", text, data, root, timeout, rest)
        return given[rank] if here else pickle.loads(came)

    def _exchange(
        self,
        name: str,
        text: str,
        given: list[bytes],
        root: int,
        timeout: float | None,
        rest: Callable[[_Turn, list[int]], list[bytes]],
    ) -> list[bytes]:
        """What comes of the collective `name` of short strings; where some are not that, of `rest`, which is told the
        lengths that have come."""
        go, seconds = self._go, self._go.seconds(timeout)
        each = HEAD if go.size <= FEW else LENGTHS
        whole = each if name == "broadcast" else each * go.size
        ready = self._kept.get((text, name, root, whole, None))
        ready = ready or self.prepare(text, name, root, whole, Deadline(seconds))

        def go_on(spent: float) -> list[bytes]:
            lengths = ready.got.cast("q")[1 :: each // 8].tolist()
            turn = _Turn(self, go.session.core.run, text, Deadline(seconds, spent))
            return go.session.in_turn(lambda: rest(turn, lengths))

        came = go.session.core.exchange(ready.prepared, each, given, len(ready.got) // each, seconds, go_on)
        return go.session.over() if came is NotImplemented else cast("list[bytes]", came)

    def prepare(
        self,
        text: str,
        name: str,
        root: int,
        whole: int,
        deadline: Deadline,
        sizes: tuple[int, ...] | None = None,
        *,
        inside: bool = False,
    ) -> _Ready:
        """The collective `name` of `whole` bytes, for the user's call `text`."""
        key = text, name, root, whole, sizes
        if (found := self._kept.get(key)) is not None:
            return found
        go, signature = self._go, Signature(name, BYTE, (whole,), root=root, sizes=sizes, within=text)
        part = whole // go.size if sizes is None else sizes[go.rank]
        of_root = whole if root == go.rank else 0
        gives = part if name in ("all_gather", "gather") else of_root
        gets = part if name == "scatter" else whole if go.gets(signature) else 0
        given, got = np.zeros(gives, BYTE), np.zeros(gets, BYTE)
        how = How(got if gets else None)
        call = Call(signature, how, None, given if gives else None, got.shape if gets else None)
        ready = _Ready(go.prepare(call, deadline, inside=inside), given.data, got.data)
        if sizes is None and (whole if name == "broadcast" else part) <= PADDED:
            while len(self._kept) >= KEPT:
                with suppress(KeyError, RuntimeError, StopIteration):  # another thread has changed it meanwhile
                    del self._kept[next(iter(self._kept))]
            self._kept[key] = ready
        return ready

    # ---- messages ----------------------------------------------------------------------------------------------------

    def send(self, obj: Any, dst: int, tag: int, seconds: float) -> None:
        """Send an object."""
        self._messages.send_object(np.frombuffer(dumps(obj), BYTE), dst, tag, seconds)

    def receive(self, src: int, tag: int, seconds: float, *, sourced: bool) -> Any:
        """Receive one."""
        message, source = self._messages.receive_object(src, tag, seconds)
        obj = pickle.loads(message)
        return Received(obj, source) if sourced else obj


class _Turn:
    """The calls that one of the user's goes on with, while it has the turn."""

    def __init__(self, objects: Objects, run: Callable[..., Any], text: str, deadline: Deadline) -> None:
        self.prepare, self.run, self.text, self.deadline = objects.prepare, run, text, deadline

    def move(
        self, name: str, data: bytes, whole: int, root: int = 0, sizes: tuple[int, ...] | None = None
    ) -> memoryview:
        """What comes of the collective `name` of `data`, padded to what it takes, where all ranks' is `whole` bytes. To
        be copied before the next turn."""
        ready = self.prepare(self.text, name, root, whole, self.deadline, sizes, inside=True)
        if len(ready.given):
            ready.given[: len(data)] = data
        self.run(ready.prepared, self.deadline.seconds, self.deadline.spent())
        return ready.got


def dumps(obj: Any) -> bytes:
    """Its bytes."""
    return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)


def padded(length: int) -> int:
    """The next power of two, of what is short."""
    return length if length > PADDED else max(HEAD, 1 << (length - 1).bit_length())
