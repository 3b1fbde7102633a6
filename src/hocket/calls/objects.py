"""Objects of Python's, as bytes in collectives and messages. Nothing else here or below knows of pickle.

A collective of objects is two calls, in one turn: first all that need to know learn how many bytes there are, then
these move. Short ones are padded to a power of two, so that calls of the same few sizes come again and again, prepared
and in buffers of their own; which is safe, as whoever has the turn is alone. Pickling and unpickling run code of the
user's, which may make calls itself: they are done outside of the turn.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from .._core import Prepared
from ..deadline import Deadline
from ..run.signature import Signature
from .dispatch import Call, Dispatch, How
from .messages import Messages, Received

PADDED = 16 << 10  # bytes: what is longer is moved as it is
LEAST = 256
KEPT = 64  # prepared calls

T = TypeVar("T")
Key: TypeAlias = "tuple[str, str, bool, int, tuple[int, ...] | None]"  # the root is in the first text

BYTE, LENGTH = np.dtype(np.uint8), np.dtype(np.int64)


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
        data = dumps(obj) if here else b""

        def call(turn: _Turn) -> bytes:
            (length,) = turn.lengths("broadcast", [len(data)] if here else (), 1, root)
            return bytes(turn.move("broadcast", data, padded(length), root)[:length])

        came = self._do(text, call, timeout)
        return obj if here else pickle.loads(came)

    def gather(self, obj: Any, root: int, timeout: float | None) -> list[Any] | None:
        """All ranks' objects on the root."""
        got = self._gather("gather", f"gather_object(root={root})", dumps(obj), root, timeout)
        return None if self._go.rank != root else [pickle.loads(each) for each in got]

    def all_gather(self, obj: Any, timeout: float | None) -> list[Any]:
        """All ranks' objects."""
        got = self._gather("all_gather", "all_gather_object()", dumps(obj), 0, timeout)
        return [pickle.loads(each) for each in got]

    def _gather(self, name: str, text: str, data: bytes, root: int, timeout: float | None) -> list[bytes]:
        def call(turn: _Turn) -> list[bytes]:
            lengths = turn.lengths("all_gather", [len(data)], self._go.size)
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

        return self._do(text, call, timeout)

    def scatter(self, objs: Sequence[Any] | None, root: int, timeout: float | None) -> Any:
        """One object of the root's for each rank."""
        rank, size, text = self._go.rank, self._go.size, f"scatter_object(root={root})"
        here, data = rank == root, []
        if here:
            given = list(objs or ())
            if objs is None or len(given) != size:
                raise ValueError(f"the root gives one object for each of {size} ranks, not {len(given)}")
            data = [dumps(obj) for obj in given]

        def call(turn: _Turn) -> bytes:
            lengths = turn.lengths("broadcast", [*map(len, data)], size, root)
            width = padded(max(lengths))
            if width > PADDED:
                return bytes(turn.move("scatter", b"".join(data), sum(lengths), root, tuple(lengths)))
            even = b"".join(each.ljust(width, b"\0") for each in data)
            return bytes(turn.move("scatter", even, size * width, root)[: lengths[rank]])

        came = self._do(text, call, timeout)
        return given[rank] if here else pickle.loads(came)

    def _do(self, text: str, call: Callable[[_Turn], T], timeout: float | None) -> T:
        deadline = self._go.deadline(How(timeout=timeout))
        turn = _Turn(self._go, self._kept, text, deadline)
        return cast(T, self._go.session.do(lambda: call(turn), text, deadline.seconds, False))

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
    """The calls that one of the user's is made of, while it has the turn."""

    def __init__(self, go: Dispatch, kept: dict[Key, _Ready], text: str, deadline: Deadline) -> None:
        self.go, self.kept, self.text, self.deadline = go, kept, text, deadline

    def lengths(self, name: str, mine: Sequence[int], count: int, root: int = 0) -> list[int]:
        """So many lengths, as the collective `name` spreads them; `mine` are those that this rank gives."""
        ready = self._ready(name, LENGTH, count, root, None)
        for i, length in enumerate(mine):
            ready.given[i] = length
        return self._made(ready).tolist()

    def move(
        self, name: str, data: bytes, whole: int, root: int = 0, sizes: tuple[int, ...] | None = None
    ) -> memoryview:
        """What comes of the collective `name` of `data`, padded to what it takes, where all ranks' is `whole` bytes. To
        be copied before the next turn."""
        ready = self._ready(name, BYTE, whole, root, sizes)
        if len(ready.given):
            ready.given[: len(data)] = data
        return self._made(ready)

    def _made(self, ready: _Ready) -> memoryview:
        self.go.session.core.run(ready.prepared, self.deadline.seconds, self.deadline.spent())
        return ready.got

    def _ready(self, name: str, dtype: np.dtype[Any], whole: int, root: int, sizes: tuple[int, ...] | None) -> _Ready:
        key = self.text, name, dtype is BYTE, whole, sizes
        found = self.kept.get(key)
        return found or self._prepare(key, Signature(name, dtype, (whole,), root=root, sizes=sizes, within=self.text))

    def _prepare(self, key: Key, signature: Signature) -> _Ready:
        go, (whole,) = self.go, signature.shape
        part = whole // go.size if signature.sizes is None else signature.sizes[go.rank]
        of_root = whole if signature.root == go.rank else 0
        gives = part if signature.collective in ("all_gather", "gather") else of_root
        gets = part if signature.collective == "scatter" else whole if go.gets(signature) else 0
        given, got = np.zeros(gives, signature.dtype), np.zeros(gets, signature.dtype)
        how = How(got if gets else None)
        call = Call(signature, how, None, given if gives else None, got.shape if gets else None)
        prepared = go.prepare(call, self.deadline, inside=True)
        ready = _Ready(prepared, given.data, got.data)
        if signature.sizes is None and (whole if signature.collective == "broadcast" else part) <= PADDED:
            while len(self.kept) >= KEPT:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = ready
        return ready


def dumps(obj: Any) -> bytes:
    """Its bytes."""
    return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)


def padded(length: int) -> int:
    """The next power of two, of what is short."""
    return length if length > PADDED else max(LEAST, 1 << (length - 1).bit_length())
