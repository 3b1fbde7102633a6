"""Collectives that reduce: a method for each, with all that its user needs to know, and hardly any code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ..arrays.adopt import adopt_elements
from ..arrays.ops import Operator, resolve
from ..arrays.shapes import Parts, split
from ..calls.dispatch import Algorithm, Call, How, Order
from ..calls.fastpath import ALL_REDUCE, EXSCAN, REDUCE, REDUCE_SCATTER, SCAN, CacheKey, fast_path
from ..calls.work import Work
from .member import Member
from .types import A, H, Reducing, ReducingParts, ReducingTo

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Reductions(Member):
    """Those that take an operator."""

    @overload
    def all_reduce(self, x: A, op: Operator = ..., *, async_op: Literal[False] = ..., **how: Unpack[Reducing]) -> A: ...
    @overload
    def all_reduce(self, x: A, op: Operator = ..., *, async_op: Literal[True], **how: Unpack[Reducing]) -> Work[A]: ...
    @overload
    def all_reduce(self, x: Any, op: Operator = ..., *, async_op: bool = ..., **how: Unpack[Reducing]) -> Any: ...
    @fast_path(ALL_REDUCE)
    def all_reduce(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """The reduction of all ranks' `x`, element by element, on every rank.

        `x` has the same shape and dtype on all ranks, and so has the result. `op` is "sum", "mean", "product", "min",
        "max", "band", "bor", "bxor", "land", "lor", "lxor", a binary NumPy ufunc, or a callable `f(a, b, out)`; see
        `hocket.arrays.ops`. All ranks get the same bits, in every run (where two NaNs meet, either may be left) and for
        every size of the message; `order="any"` gives up the last of these for speed.
        """
        key = CacheKey(ALL_REDUCE, x, op, out, 0)
        return self._go.do(
            self._reduction("all_reduce", x, op, How(out, algorithm, timeout, async_op, order, key, protect))
        )

    @overload
    def reduce(
        self, x: A, op: Operator = ..., *, async_op: Literal[False] = ..., **how: Unpack[ReducingTo]
    ) -> A | None: ...
    @overload
    def reduce(
        self, x: A, op: Operator = ..., *, async_op: Literal[True], **how: Unpack[ReducingTo]
    ) -> Work[A | None]: ...
    @overload
    def reduce(self, x: Any, op: Operator = ..., *, async_op: bool = ..., **how: Unpack[ReducingTo]) -> Any: ...
    @fast_path(REDUCE)
    def reduce(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        root: int = 0,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """As `all_reduce`, but only `root` gets the result; the others get None, and their `out` is not touched."""
        root = self._go.rank_of(root, "root")
        key = CacheKey(REDUCE, x, op, out, root)
        return self._go.do(
            self._reduction("reduce", x, op, How(out, algorithm, timeout, async_op, order, key, protect), root=root)
        )

    @overload
    def reduce_scatter(
        self, x: H, op: Operator = ..., *, async_op: Literal[False] = ..., **how: Unpack[ReducingParts]
    ) -> H: ...
    @overload
    def reduce_scatter(
        self, x: H, op: Operator = ..., *, async_op: Literal[True], **how: Unpack[ReducingParts]
    ) -> Work[H]: ...
    @overload
    def reduce_scatter(
        self, x: Any, op: Operator = ..., *, async_op: bool = ..., **how: Unpack[ReducingParts]
    ) -> Any: ...
    @fast_path(REDUCE_SCATTER)
    def reduce_scatter(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """The reduction of all ranks' `x`, of which each rank gets its part of axis 0.

        Without `sizes`, axis 0 must divide evenly; with it, rank r gets `sizes[r]` rows. `op` as in `all_reduce`.
        """
        parts = split(adopt_elements(x).shape, self.size, sizes)
        key = CacheKey(REDUCE_SCATTER, x, op, out, 0) if sizes is None else None
        return self._go.do(
            self._reduction("reduce_scatter", x, op, How(out, algorithm, timeout, async_op, order, key, protect), parts)
        )

    @overload
    def scan(self, x: A, op: Operator = ..., *, async_op: Literal[False] = ..., **how: Unpack[Reducing]) -> A: ...
    @overload
    def scan(self, x: A, op: Operator = ..., *, async_op: Literal[True], **how: Unpack[Reducing]) -> Work[A]: ...
    @overload
    def scan(self, x: Any, op: Operator = ..., *, async_op: bool = ..., **how: Unpack[Reducing]) -> Any: ...
    @fast_path(SCAN)
    def scan(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """The reduction of `x` over the ranks up to this one: rank r gets x₀ op x₁ op ... op xᵣ. As MPI_Scan.

        Arguments as for `all_reduce`, but no "mean". By default it is folded from the first rank on, so that a rank's
        result is, bit for bit, that of the rank before `op` its own, and the last rank's is that of an `all_reduce`.
        """
        key = CacheKey(SCAN, x, op, out, 0)
        return self._go.do(self._reduction("scan", x, op, How(out, algorithm, timeout, async_op, order, key, protect)))

    @overload
    def exscan(
        self, x: A, op: Operator = ..., *, async_op: Literal[False] = ..., **how: Unpack[Reducing]
    ) -> A | None: ...
    @overload
    def exscan(
        self, x: A, op: Operator = ..., *, async_op: Literal[True], **how: Unpack[Reducing]
    ) -> Work[A | None]: ...
    @overload
    def exscan(self, x: Any, op: Operator = ..., *, async_op: bool = ..., **how: Unpack[Reducing]) -> Any: ...
    @fast_path(EXSCAN)
    def exscan(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        timeout: float | None = None,
        async_op: bool = False,
        protect: bool | None = None,
    ) -> Any:
        """The reduction of `x` over the ranks before this one: x₀ op ... op xᵣ₋₁, such as where this rank's part of
        something begins. As `scan`; the first rank, which has none before it, gets None, and its `out` is not touched.
        """
        key = CacheKey(EXSCAN, x, op, out, 0)
        return self._go.do(
            self._reduction("exscan", x, op, How(out, algorithm, timeout, async_op, order, key, protect))
        )

    def _reduction(self, name: str, x: Any, op: Operator, how: How, parts: Parts | None = None, root: int = 0) -> Call:
        array = adopt_elements(x)
        operator = resolve(op, array.dtype)
        scans = name in ("scan", "exscan")
        if scans and operator.mean:
            raise ValueError(f'there is no {name} with op "mean": give "sum", and divide by the number of ranks in it')
        # 0 or 1 also where there is nothing to combine
        if (scans or self.size == 1) and operator.name in ("land", "lor", "lxor"):
            array, how = np.asarray(array != 0, array.dtype), how._replace(key=None)
        dtype, elements = operator.element(array)
        blocks = parts and parts.blocks and (parts.rows if operator.rows else parts.blocks)
        signature = self._go.signature(name, dtype, elements, how, blocks, root, operator.name)
        shape = array.shape if parts is None else parts.shape(self.rank)
        return Call(signature, how, x, array, shape if self._go.gets(signature) else None, operator)
