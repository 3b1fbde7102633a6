"""Dissemination: in each round every rank tells the one at distance 1, 2, 4, ... all that it has heard of.

    0 ─▶ 1 ─▶ 2 ─▶ 3 ─▶ 0      distance 1: rank r has now heard of r-1 and r
    0 ────▶ 2 ────▶ 0           distance 2: of r-3 to r: everyone, after ⌈log2 n⌉ rounds, whatever n is
    1 ────▶ 3 ────▶ 1

Written as an all-gather of tokens (Bruck's algorithm), so that "everyone has heard of everyone" can be checked like any
other promise; a token has no bytes. Hensgen, Finkel & Manber, "Two algorithms for barrier synchronization", IJPP 17(1),
1988; Bruck, Ho, Kipnis, Upfal & Weathersby, IEEE TPDS 8(11), 1997.
"""

from __future__ import annotations

import numpy as np

from ..plan import Steps, copy, out


def barrier(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, messages ⌈log2 n⌉ per rank."""
    r = np.arange(n)
    for distance in (1 << k for k in range((n - 1).bit_length())):
        count = min(distance, n - distance)  # the last round tells only what is still unknown
        first, to = (r - count + 1) % n, (r + distance) % n
        straight = np.minimum(count, n - first)  # the tokens before the turn from n-1 to 0
        turns = straight < count
        here, there, rest = r[turns], to[turns], (count - straight)[turns]
        yield copy(out(to, first, straight), out(r, first, straight)), copy(out(there, 0, rest), out(here, 0, rest))
