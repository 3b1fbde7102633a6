"""Objects of Python's, as bytes in collectives and messages. Nothing else here or below knows of pickle.

A collective of objects begins with a head, of the same size each time, which tells how many bytes there are, and has
room for those of short objects. Others move in a second call, in the same turn; where they are not long, padded to a
power of two. So calls of a few sizes come again and again, prepared and in buffers of their own; which is safe, as
whoever has the turn is alone. Pickling and unpickling run code of the user's, which may make calls itself: they are
done outside of the turn.
"""

from __future__ import annotations

import pickle
import struct
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
HEAD = 2048  # bytes, of each rank that gives any
FEW = 32  # ranks that can all get one another's
KEPT = 64  # prepared calls

T = TypeVar("T")
Key: TypeAlias = "tuple[str, str, int, tuple[int, ...] | None]"  # the root is in the first text

BYTE = np.dtype(np.uint8)
WORD = 8  # bytes of a length


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

        def call(turn: _Turn) -> bytes:
            head = turn.move("broadcast", led([len(data)], data, HEAD), HEAD, root)
            length = words(head)[0]
            if length <= HEAD - WORD:
                return bytes(head[WORD : WORD + length])
            return bytes(turn.move("broadcast", data, padded(length), root)[:length])

        return self._do(text, call, timeout)

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
        def call(turn: _Turn) -> list[bytes]:
            size, rank = self._go.size, self._go.rank
            each = HEAD if size <= FEW else WORD
            head = turn.move("all_gather", led([len(data)], data, each), size * each)
            lengths = words(head)[:: each // WORD].tolist()
            if max(lengths) <= each - WORD:
                begins = range(WORD, size * each, each) if name == "all_gather" or rank == root else ()
                return [bytes(head[begin : begin + length]) for begin, length in zip(begins, lengths, strict=False)]
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
            whole = max(min(PADDED, HEAD * size), WORD * size)
            head = turn.move("broadcast", led([*map(len, data)], b"".join(data), whole), whole, root)
            lengths = words(head)[:size].tolist()
            begin = WORD * size + sum(lengths[:rank])
            if WORD * size + sum(lengths) <= whole:
                return bytes(head[begin : begin + lengths[rank]])
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

    def move(
        self, name: str, data: bytes, whole: int, root: int = 0, sizes: tuple[int, ...] | None = None
    ) -> memoryview:
        """What comes of the collective `name` of `data`, padded to what it takes, where all ranks' is `whole` bytes. To
        be copied before the next turn."""
        key = self.text, name, whole, sizes
        ready = self.kept.get(key) or self._prepare(
            key, Signature(name, BYTE, (whole,), root=root, sizes=sizes, within=self.text)
        )
        if len(ready.given):
            ready.given[: len(data)] = data
        self.go.session.core.run(ready.prepared, self.deadline.seconds, self.deadline.spent())
        return ready.got

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


def led(lengths: Sequence[int], data: bytes, room: int) -> bytes:
    """A head: lengths, and the data that they are of, if there is room for both."""
    begin = struct.pack(f"{len(lengths)}q", *lengths)
    return begin + data if len(begin) + len(data) <= room else begin


def words(head: memoryview) -> memoryview:
    """A head, or several, where lengths are read: each head begins with them."""
    return head.cast("q")


def padded(length: int) -> int:
    """The next power of two, of what is short."""
    return length if length > PADDED else max(HEAD, 1 << (length - 1).bit_length())
