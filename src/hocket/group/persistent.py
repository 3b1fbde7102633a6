"""Calls that are made again and again: prepared once, as MPI's persistent ones are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays.adopt import adopt, adopt_elements
from ..arrays.ops import Operator
from ..arrays.shapes import split
from ..calls.dispatch import Algorithm, How, Order, Persistent
from .movements import Movements
from .reductions import Reductions


class PersistentCalls(Reductions, Movements):
    """Each call of what these give back is one call of the collective that they are named after, of what the arrays
    hold then. Its result is the same array every time: `out`, or a new one. Arguments are as for that collective;
    nothing is sent yet. Arrays that need no copies (contiguous ones of NumPy's, say) are the fast ones.
    """

    def all_reduce_init(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        protect: bool | None = None,
    ) -> Persistent:
        """An `all_reduce` to be made again and again."""
        return self._go.persistent(
            self._reduction("all_reduce", x, op, How(out, algorithm, order=order, protect=protect))
        )

    def reduce_init(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        root: int = 0,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        protect: bool | None = None,
    ) -> Persistent:
        """A `reduce` to be made again and again."""
        root, how = self._go.rank_of(root, "root"), How(out, algorithm, order=order, protect=protect)
        return self._go.persistent(self._reduction("reduce", x, op, how, root=root))

    def reduce_scatter_init(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        protect: bool | None = None,
    ) -> Persistent:
        """A `reduce_scatter` to be made again and again."""
        parts = split(adopt_elements(x).shape, self.size, sizes)
        return self._go.persistent(
            self._reduction("reduce_scatter", x, op, How(out, algorithm, order=order, protect=protect), parts)
        )

    def scan_init(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        protect: bool | None = None,
    ) -> Persistent:
        """A `scan` to be made again and again."""
        return self._go.persistent(self._reduction("scan", x, op, How(out, algorithm, order=order, protect=protect)))

    def exscan_init(
        self,
        x: Any,
        op: Operator = "sum",
        *,
        out: Any = None,
        algorithm: Algorithm = None,
        order: Order = "same",
        protect: bool | None = None,
    ) -> Persistent:
        """An `exscan` to be made again and again."""
        return self._go.persistent(self._reduction("exscan", x, op, How(out, algorithm, order=order, protect=protect)))

    def broadcast_init(
        self, x: Any = None, *, root: int = 0, out: Any = None, algorithm: Algorithm = None, protect: bool | None = None
    ) -> Persistent:
        """A `broadcast` to be made again and again. All ranks give `x` or `out`, by which they know what will come:
        TypeError where one gives neither."""
        root = self._go.rank_of(root, "root")
        pattern = out if x is None and self.rank != root else x
        if pattern is None:
            raise TypeError("give x, and off the root x or out: a persistent broadcast has to know what will come")
        return self._go.persistent(self._broadcasting(pattern, root, How(out, algorithm, protect=protect)))

    def scatter_init(
        self,
        x: Any = None,
        *,
        root: int = 0,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        protect: bool | None = None,
    ) -> Persistent:
        """A `scatter` to be made again and again. Off the root `out` must be given, by which a rank knows what will
        come: TypeError where it is not."""
        root, how = self._go.rank_of(root, "root"), How(out, algorithm, protect=protect)
        if self.rank == root:
            if x is None:
                raise TypeError("the root must give the array that is scattered")
            array = adopt(x)
            return self._go.persistent(self._scattering(x, array, array.dtype, array.shape, root, sizes, how))
        if out is None:
            raise TypeError("off the root give out: a persistent scatter has to know what will come")
        part = adopt(out)
        rows = part.shape[0] * self.size if sizes is None else sum(sizes)
        shape = (rows, *part.shape[1:])
        return self._go.persistent(self._scattering(out, None, part.dtype, shape, root, sizes, how))

    def all_gather_init(
        self,
        x: Any,
        *,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        protect: bool | None = None,
    ) -> Persistent:
        """An `all_gather` to be made again and again."""
        return self._go.persistent(self._joining("all_gather", x, 0, sizes, How(out, algorithm, protect=protect)))

    def gather_init(
        self,
        x: Any,
        *,
        root: int = 0,
        sizes: Sequence[int] | None = None,
        out: Any = None,
        algorithm: Algorithm = None,
        protect: bool | None = None,
    ) -> Persistent:
        """A `gather` to be made again and again."""
        root = self._go.rank_of(root, "root")
        return self._go.persistent(self._joining("gather", x, root, sizes, How(out, algorithm, protect=protect)))

    def all_to_all_init(
        self, x: Any, *, out: Any = None, algorithm: Algorithm = None, protect: bool | None = None
    ) -> Persistent:
        """An `all_to_all` of equal parts, to be made again and again."""
        parts = split(adopt(x).shape, self.size, None)
        return self._go.persistent(self._dealing(x, parts, How(out, algorithm, protect=protect)))

    def barrier_init(self) -> Persistent:
        """A `barrier` to be made again and again."""
        return self._go.persistent(self._meeting(How()))
