"""Bruck's algorithms: what goes far goes in hops of 1, 2, 4, ..., as the bits of its distance say.

    all_gather    0 1 2 3 4 0 ...       with each hop a rank has the blocks of twice as many ranks: first of itself,
                  0◀1 2◀3 4◀0           then of the next, then of the two after that, then of what is left.
                  0◀──2
                  0◀────────4
    all_to_all    r ─1─▶ r+1 ─4─▶ r+5   a block for the rank at distance 5 goes one rank on in the first round, rests in
                                        the second, and goes four on in the third, with all others on the same way.

So there are ⌈log2 n⌉ rounds for every n. In an all-to-all each hop is paid for in bytes, so it is for short blocks, and
for equal ones: a rank between has no slots for blocks of sizes that it has never heard of. Bruck, Ho, Kipnis, Upfal &
Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing systems", IEEE TPDS 8(11),
1997.
"""

from __future__ import annotations

import numpy as np

from ..plan import INP, OUT, TMP, Steps, copy, out
from .combine import ahead, place


def all_gather(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, bytes sent per rank (n-1)/n S: none needs fewer of either."""
    for hop in (1 << k for k in range((n - 1).bit_length())):
        r, c, count = ahead(n, hop, min(2 * hop, n))
        yield copy(out(r, c, count), out((r + hop) % n, c, count))


def all_to_all(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, bytes sent per rank at most ⌈log2 n⌉ S/2. For blocks that are all equally large."""
    hops = np.zeros(n, np.int64)  # of the blocks of each distance: they lie in one row of tmp, then in the other
    for hop in (1 << k for k in range((n - 1).bit_length())):
        d = np.flatnonzero(np.arange(n) & hop)
        r, d = np.repeat(np.arange(n), len(d)), np.tile(d, n)
        to, starts, ends = (r + hop) % n, d % hop == 0, d < 2 * hop
        comes = place(np.where(starts, INP, TMP), r, np.where(starts, (r + d) % n, d + n * ((hops[d] + 1) % 2)))
        goes = place(np.where(ends, OUT, TMP), to, np.where(ends, (to - d) % n, d + n * (hops[d] % 2)))
        yield copy(goes, comes)
        hops[d] += 1
