"""How axis 0 of an array is shared out among the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import NamedTuple


class Parts(NamedTuple):
    """Axis 0 in one part per rank: the `rows` of each, all of one `row` shape, and the elements of each, `blocks`,
    where the caller gave uneven ones."""

    rows: tuple[int, ...]
    row: tuple[int, ...]
    blocks: tuple[int, ...] | None

    @property
    def elements(self) -> int:
        """Elements of all parts."""
        return sum(self.rows) * prod(self.row)

    def shape(self, rank: int) -> tuple[int, ...]:
        """The shape of the part of `rank`."""
        return (self.rows[rank], *self.row)

    @property
    def joined(self) -> tuple[int, ...]:
        """The shape of all parts, one after the other."""
        return (sum(self.rows), *self.row)


def split(shape: tuple[int, ...], size: int, sizes: Sequence[int] | None) -> Parts:
    """An array of `shape`, split. Raises ValueError where axis 0 does not split so."""
    if not shape:
        raise ValueError("a 0-d array has no axis 0 to split")
    if sizes is None:
        if shape[0] % size:
            raise ValueError(f"axis 0 of shape {shape} does not divide by {size} ranks: give sizes=")
        return Parts((shape[0] // size,) * size, shape[1:], None)
    rows = _rows(sizes, size)
    if sum(rows) != shape[0]:
        raise ValueError(f"sizes {list(rows)} make {sum(rows)} rows, but axis 0 of shape {shape} has {shape[0]}")
    return _uneven(rows, shape[1:])


def join(shape: tuple[int, ...], rank: int, size: int, sizes: Sequence[int] | None) -> Parts:
    """The parts that are to be joined when that of `rank` has `shape`; a 0-d array is one row. Raises ValueError where
    `sizes` says otherwise."""
    own, row = (shape[0], shape[1:]) if shape else (1, ())
    if sizes is None:
        return Parts((own,) * size, row, None)
    rows = _rows(sizes, size)
    if rows[rank] != own:
        raise ValueError(f"sizes says that rank {rank} gives {rows[rank]} rows, but x has {own}")
    return _uneven(rows, row)


def _uneven(rows: tuple[int, ...], row: tuple[int, ...]) -> Parts:
    return Parts(rows, row, tuple(n * prod(row) for n in rows))


def _rows(sizes: Sequence[int], size: int) -> tuple[int, ...]:
    try:
        rows = tuple(index(n) for n in sizes)
    except TypeError:
        raise TypeError(f"sizes is a whole number of rows for each rank, not {sizes!r}") from None
    if len(rows) != size or any(n < 0 for n in rows):
        raise ValueError(f"sizes is one number of rows, not below zero, for each of {size} ranks; not {list(rows)}")
    return rows
