"""The definition: what a plan means, on all ranks at once, in plain NumPy. Every engine is compared with this page.

It is written to be read, not to be fast, and it checks nothing: a wrong plan gives a wrong result, or names a slot that
is not there. What was never written holds garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import PlanError
from .collectives import find, layout
from .partition import bounds
from .plan import INP, OUT, REDUCE, TMP, Front, Plan

Array: TypeAlias = "npt.NDArray[Any]"
Slot: TypeAlias = "tuple[int, int, int]"  # buffer, rank, chunk
Lengths: TypeAlias = "npt.NDArray[np.int64]"  # elements of each chunk, with the shape [size, chunks]


def interpret(
    plan: Plan,
    arrays: Sequence[Array | None],
    op: Callable[[Any, Any], Any] | None = None,
    *,
    sizes: Sequence[Any] | None = None,
    in_place: bool = False,
    accumulate: npt.DTypeLike | None = None,
) -> list[Array | None]:
    """What every rank gets: a 1-D array per rank, None where the collective gives it nothing.

    `arrays` holds what every rank gives: the whole vector, in gather, all_gather and barrier its own block of it, and
    None (or anything) where it gives nothing. `op(a, b)` is the operator of a reduction, element by element.

    `sizes` are the elements of each rank's block, as given in scatter and reduce_scatter; in all_to_all there is a list
    of them for every rank: what it sends to each. Without, vectors are cut as evenly as they can be.

    With `in_place`, `out` is the memory of `inp` wherever a rank has both; in all_to_all, ValueError where they are not
    equally large. With `accumulate`, all that one front folds into one slot is folded in that dtype and rounded once.
    The given arrays are never written.
    """
    given, got = _lengths(plan, arrays, sizes)
    memory = _Memory(plan, arrays, given, got, in_place)
    for front in plan.fronts():
        memory.step(front, op, accumulate)
    return memory.results()


class _Memory:
    def __init__(
        self, plan: Plan, arrays: Sequence[Array | None], given: Lengths, got: Lengths, in_place: bool
    ) -> None:
        self.promise = layout(plan.collective, plan.size, plan.chunks, plan.root)
        self.plan, self.given = plan, given
        self.slots: dict[Slot, Array] = {}
        for rank in np.flatnonzero(self.promise.inp.any(axis=1)).tolist():
            array, mine = np.asarray(arrays[rank]), np.flatnonzero(self.promise.inp[rank])
            self.dtype = array.dtype
            ends = np.cumsum(given[rank, mine]).tolist()
            for c, begin, end in zip(mine.tolist(), [0, *ends], ends, strict=False):
                self.slots[INP, rank, c] = array[begin:end].copy()
        for r, c in np.argwhere(self.promise.out).tolist():
            source = self.slots.get((INP, r, c))
            if in_place and source is not None:
                if len(source) != got[r, c]:
                    raise ValueError(f"not in place: rank {r} gives {len(source)} elements where it gets {got[r, c]}")
                self.slots[OUT, r, c] = source  # the same memory
            elif self.promise.seed[r, c] and source is not None:
                self.slots[OUT, r, c] = source.copy()
            else:
                self.slots[OUT, r, c] = self._garbage(int(got[r, c]))

    def step(self, front: Front, op: Callable[[Any, Any], Any] | None, accumulate: npt.DTypeLike | None) -> None:
        """All reads, then all writes. Into one slot, moves apply in their order."""
        new: dict[int, tuple[Array, Array]] = {}  # by memory: the slot, and what it will hold
        for verb, dst, src in _moves(front):
            slot, value = self._at(dst), self._at(src)
            if slot.shape != value.shape:
                raise PlanError(f"{self.plan!r}: {value.size} elements do not fit a slot of {slot.size}")
            value = value.astype(accumulate) if accumulate is not None else value.copy()
            if verb == REDUCE:
                assert op is not None, "a reduction needs an operator"
                _, held = new.get(id(slot), (slot, slot))
                value = op(held.astype(value.dtype), value)
            new[id(slot)] = slot, value
        for slot, value in new.values():
            slot[...] = value

    def results(self) -> list[Array | None]:
        """What lies in `out`."""
        chunks = [
            [self.slots[OUT, rank, int(c)] for c in np.flatnonzero(row)] for rank, row in enumerate(self.promise.out)
        ]
        return [np.concatenate(mine) if mine else None for mine in chunks]

    def _at(self, slot: Slot) -> Array:
        buf, rank, chunk = slot
        if buf == TMP and chunk >= 0 and 0 <= rank < self.plan.size:  # as large as chunk `chunk % chunks`
            return self.slots.setdefault(slot, self._garbage(int(self.given[rank, chunk % self.plan.chunks])))
        if slot not in self.slots:
            raise PlanError(f"{self.plan!r}: there is no slot {slot}")
        return self.slots[slot]

    def _garbage(self, size: int) -> Array:
        return np.full(size * self.dtype.itemsize, 0xFF, np.uint8).view(self.dtype)


def _moves(front: Front) -> list[tuple[int, Slot, Slot]]:
    rows = zip(*(column.tolist() for column in front.columns()), strict=True)
    return [(v, (db, dr, dc + i), (sb, sr, sc + i)) for v, db, dr, dc, sb, sr, sc, k in rows for i in range(k)]


def _lengths(plan: Plan, arrays: Sequence[Array | None], sizes: Sequence[Any] | None) -> tuple[Lengths, Lengths]:
    """The elements of each chunk of each rank's vector, of what is given and of what is got: twice [size, chunks]."""
    spec, n, chunks = find(plan.collective), plan.size, plan.chunks
    totals = [0 if array is None else len(array) for array in arrays]
    if spec.transposed:
        parts = np.asarray([_cut(total, n) for total in totals] if sizes is None else sizes, np.int64)
        both = [[_cut(int(part.sum()), chunks, part) for part in p] for p in (parts, parts.T)]
        return np.array(both[0]), np.array(both[1])
    total = totals[plan.root]
    if spec.gives == "own":
        sizes, total = totals, sum(totals)
    elif spec.blocks and sizes is None:
        sizes = _cut(total, n).tolist()
    lengths = np.tile(_cut(total, chunks, sizes), (n, 1))
    return lengths, lengths


def _cut(count: int, chunks: int, sizes: Sequence[int] | None = None) -> Lengths:
    offsets = bounds(count, chunks, sizes)
    return offsets[1:] - offsets[:-1]
