"""Doubling: in each round, every rank hears from the one at distance 1, 2, 4, ... before it, and puts that in front.

    r0 ──▶ r1 ──▶ r2 ──▶ r3 ──▶ r4     distance 1: each rank holds the sum of its left neighbour and itself
    r0 ─────────▶ r2 ─────────▶ r4     distance 2: of the three before it and itself
           r1 ─────────▶ r3
    r0 ───────────────────────▶ r4     distance 4: of the seven before it, as far as there are any

As few rounds as can be, and operands in the order of ranks. But a rank's sum is not that of the rank before with one
operand more, so that its bits are others. Known as simultaneous binomial trees, and in MPI as recursive doubling.

Hillis & Steele, "Data parallel algorithms", CACM 29(12), 1986; as an adder, Kogge & Stone, IEEE ToC C-22(8), 1973.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..plan import Column, Steps
from .combine import in_front, moved_on


def rounds(n: int) -> Iterator[tuple[Column, Column]]:
    """Who gets, and what is put in front of it."""
    for distance in (1 << k for k in range((n - 1).bit_length())):
        to = np.arange(distance, n)
        yield to, to - distance


def scan(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, bytes sent by the first rank S in each."""
    return in_front(n, rounds(n))


def exscan(n: int) -> Steps:
    """Rounds 1 + ⌈log2(n-1)⌉: each rank's input goes to the next rank, and is scanned there."""
    return moved_on(n, rounds(n - 1))
