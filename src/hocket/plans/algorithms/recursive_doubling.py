"""Recursive doubling: everyone exchanges sums with the neighbour at distance 1, then 2, then 4, ...

    r0 ◀─▶ r1   r2 ◀─▶ r3        after round k every rank holds the sum of its 2^k neighbours.
    r0 ◀───────▶ r2              Both partners fold the lower rank's sum first, so all ranks hold
          r1 ◀───────▶ r3        the same bracket, hence the same bits, and in rank order.

Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
"""

from __future__ import annotations

import numpy as np

from ..plan import Steps, copy, inp, out, reduce, tmp
from .combine import folded


@folded
def all_reduce(n: int) -> Steps:
    """Rounds ⌊log2 n⌋, and 2 more where n is no power of two; bytes sent per rank S in each."""
    r, rounds = np.arange(n), (n - 1).bit_length()
    held = inp
    for k in range(rounds):
        low, high = r & ~(1 << k), r | 1 << k
        goes = tmp if (rounds - k) % 2 == 0 else out  # never where partners read, and in the end into out
        yield copy(goes(r), held(low)), reduce(goes(r), held(high))
        held = goes
