"""Collectives that move what ranks have, and the barrier, which moves nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ..arrays.adopt import adopt
from ..arrays.shapes import Parts, join, split
from ..calls.dispatch import Algorithm, Array, Call, How
from ..calls.fastpath import ALL_GATHER, ALL_TO_ALL, BARRIER, BROADCAST, GATHER, SCATTER, CacheKey, fast_path
from ..calls.work import Work
from ..run.signature import Signature, tell
from .member import Member
from .types import A, H, MovingFrom, MovingParts, MovingPartsFrom, Number

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Movements(Member):
    """Those that take no operator."""

    @overload
    def broadcast(self, x: A, *, async_op: Literal[False] = ..., **how: Unpack[MovingFrom]) -> A: ...
    @overload
    def broadcast(self, x: A, *, async_op: Literal[True], **how: Unpack[MovingFrom]) -> Work[A]: ...
    @overload
    def broadcast(self, x: Any = ..., *, async_op: bool = ..., **how: Unpack[MovingFrom]) -> Any: ...
    @fast_path(BROADCAST)
    def broadcast(
        self,
        x: Any = None,
        *,
        root: int = 0,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """The root's `x` on every rank.

        Off the root, `x` only tells the shape, dtype and kind that are expected; it may be None.
        """
        root = self._go.rank_of(root, "root")
        how = How(out, algorithm, timeout, async_op, key=CacheKey(BROADCAST, x, None, out, root), protect=protect)
        pattern = out if x is None else x
        if self.rank == root and x is None:
            raise TypeError("the root must give the array that is broadcast")
        if pattern is None:
            return self._go.learn("broadcast", root, None, how)
        return self._go.do(self._broadcasting(pattern, root, how))

    def _broadcasting(self, pattern: Any, root: int, how: How) -> Call:
        array = adopt(pattern)
        note = tell("broadcast", array.dtype, array.shape)
        signature = self._go.signature("broadcast", array.dtype, array.shape, how, None, root, note=note)
        return Call(signature, how, pattern, array if self.rank == root else None, array.shape)

    @overload
    def scatter(self, x: H, *, async_op: Literal[False] = ..., **how: Unpack[MovingPartsFrom]) -> H: ...
    @overload
    def scatter(self, x: H, *, async_op: Literal[True], **how: Unpack[MovingPartsFrom]) -> Work[H]: ...
    @overload
    def scatter(self, x: Any = ..., *, async_op: bool = ..., **how: Unpack[MovingPartsFrom]) -> Any: ...
    @fast_path(SCATTER)
    def scatter(
        self,
        x: Any = None,
        *,
        root: int = 0,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """Each rank's part of the root's `x`, along axis 0. Off the root `x` is ignored and may be None.

        Without `sizes`, axis 0 must divide evenly; with it, rank r gets `sizes[r]` rows.
        """
        root = self._go.rank_of(root, "root")
        key = CacheKey(SCATTER, x, None, out, root) if sizes is None else None
        how = How(out, algorithm, timeout, async_op, key=key, protect=protect)
        if self.rank != root:
            return self._go.learn("scatter", root, sizes, how)
        if x is None:
            raise TypeError("the root must give the array that is scattered")
        array = adopt(x)
        return self._go.do(self._scattering(x, array, array.dtype, array.shape, root, sizes, how))

    def _scattering(
        self,
        x: Any,
        given: Array | None,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        root: int,
        sizes: Sequence[int] | None,
        how: How,
    ) -> Call:
        parts = split(shape, self.size, sizes)
        note = tell("scatter", dtype, shape, None if sizes is None else parts.rows)
        signature = self._go.signature("scatter", dtype, shape, how, parts.blocks, root, note=note)
        return Call(signature, how, x, given, parts.shape(self.rank))

    @overload
    def all_gather(self, x: Number, *, async_op: Literal[False] = ..., **how: Unpack[MovingParts]) -> Array: ...
    @overload
    def all_gather(self, x: Number, *, async_op: Literal[True], **how: Unpack[MovingParts]) -> Work[Array]: ...
    @overload
    def all_gather(self, x: H, *, async_op: Literal[False] = ..., **how: Unpack[MovingParts]) -> H: ...
    @overload
    def all_gather(self, x: H, *, async_op: Literal[True], **how: Unpack[MovingParts]) -> Work[H]: ...
    @overload
    def all_gather(self, x: Any, *, async_op: bool = ..., **how: Unpack[MovingParts]) -> Any: ...
    @fast_path(ALL_GATHER)
    def all_gather(
        self,
        x: Any,
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """All ranks' `x` joined along axis 0 in the order of ranks, on every rank. A 0-d `x` gives the shape (size,).

        Without `sizes`, `x` has the same shape everywhere; with it, rank r gives `sizes[r]` rows.
        """
        key = CacheKey(ALL_GATHER, x, None, out, 0) if sizes is None else None
        return self._go.do(
            self._joining("all_gather", x, 0, sizes, How(out, algorithm, timeout, async_op, key=key, protect=protect))
        )

    @overload
    def gather(self, x: Number, *, async_op: Literal[False] = ..., **how: Unpack[MovingPartsFrom]) -> Array | None: ...
    @overload
    def gather(self, x: Number, *, async_op: Literal[True], **how: Unpack[MovingPartsFrom]) -> Work[Array | None]: ...
    @overload
    def gather(self, x: H, *, async_op: Literal[False] = ..., **how: Unpack[MovingPartsFrom]) -> H | None: ...
    @overload
    def gather(self, x: H, *, async_op: Literal[True], **how: Unpack[MovingPartsFrom]) -> Work[H | None]: ...
    @overload
    def gather(self, x: Any, *, async_op: bool = ..., **how: Unpack[MovingPartsFrom]) -> Any: ...
    @fast_path(GATHER)
    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """As `all_gather`, but only `root` gets the result; the others get None, and their `out` is not touched."""
        root = self._go.rank_of(root, "root")
        key = CacheKey(GATHER, x, None, out, root) if sizes is None else None
        return self._go.do(
            self._joining("gather", x, root, sizes, How(out, algorithm, timeout, async_op, key=key, protect=protect))
        )

    def _joining(self, name: str, x: Any, root: int, sizes: Sequence[int] | None, how: How) -> Call:
        array = adopt(x)
        parts = join(array.shape, self.rank, self.size, sizes)
        each = array.shape if sizes is None else None
        signature = self._go.signature(name, array.dtype, parts.joined, how, parts.blocks, root, each=each)
        return Call(signature, how, x, array, parts.joined if self._go.gets(signature) else None)

    @overload
    def all_to_all(self, x: H, *, async_op: Literal[False] = ..., **how: Unpack[MovingParts]) -> H: ...
    @overload
    def all_to_all(self, x: H, *, async_op: Literal[True], **how: Unpack[MovingParts]) -> Work[H]: ...
    @overload
    def all_to_all(self, x: Any, *, async_op: bool = ..., **how: Unpack[MovingParts]) -> Any: ...
    @fast_path(ALL_TO_ALL)
    def all_to_all(
        self,
        x: Any,
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """Part r of `x` goes to rank r; the result is the parts that came, joined along axis 0 in the order of ranks.

        Without `sizes`, axis 0 must divide evenly and `x` has the same shape everywhere. With it, `sizes[r]` rows go to
        rank r; what each rank sends may differ, and how much will come is exchanged first. With `sizes`, an
        algorithm that needs equal parts is a ValueError: `bruck`, over four ranks or more.
        """
        key = CacheKey(ALL_TO_ALL, x, None, out, 0) if sizes is None else None
        how = How(out, algorithm, timeout, async_op, key=key, protect=protect)
        parts = split(adopt(x).shape, self.size, sizes)
        dealing = self._dealing(x, parts, how)
        if sizes is None:
            return self._go.do(dealing)
        deadline, signature = self._go.deadline(how), dealing.signature
        if algorithm is not None:  # which may need equal parts: that is found before anything is sent
            self._go.plan(dealing, deadline)
        rows = np.asarray(parts.rows, np.int64)
        ask = Signature("all_to_all", rows.dtype, rows.shape, within=signature.text)

        def call() -> Any:
            coming = self._go.do_inside(Call(ask, How(), None, rows, rows.shape), deadline)
            shape = (int(coming.sum()), *parts.row)
            received = tuple(int(n) * math.prod(parts.row) for n in coming)
            return self._go.do_inside(dealing._replace(shape=shape, received=received), deadline)

        return self._calls.do(call, signature.text, deadline.left(), async_op)

    def _dealing(self, x: Any, parts: Parts, how: How) -> Call:
        array = adopt(x)
        signature = self._go.signature("all_to_all", array.dtype, array.shape, how, parts.blocks)
        return Call(signature, how, x, array, array.shape)

    @overload
    def barrier(self, *, timeout: float | None = ..., async_op: Literal[False] = ...) -> None: ...
    @overload
    def barrier(self, *, timeout: float | None = ..., async_op: Literal[True]) -> Work[None]: ...
    @overload
    def barrier(self, *, timeout: float | None = ..., async_op: bool = ...) -> Any: ...
    @fast_path(BARRIER)
    def barrier(self, *, timeout: float | None = None, async_op: bool = False) -> Any:
        """Returns once every rank has called it."""
        how = How(None, None, timeout, async_op, key=CacheKey(BARRIER, None, None, None, 0))
        return self._go.do(self._meeting(how))

    def _meeting(self, how: How) -> Call:
        return Call(self._go.signature("barrier", np.dtype(np.uint8), (0,), how), how, None, None, None)
