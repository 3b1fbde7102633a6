"""A ring: every rank speaks only to its right neighbour, and all of them all the time.

    r0 ──c0──▶ r1 ──c1──▶ r2 ──c2──▶ r3          chunk c starts at rank c. On the way round once it is summed,
     ▲                                │           on the way round again the sum is spread.
     └───────────────c3───────────────┘

Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
"""

from __future__ import annotations

import numpy as np

from ..plan import Front, Slots, Steps, copy, inp, join, out, reduce, tmp
from ..turn import turned


def all_reduce(n: int) -> Steps:
    """Rounds 2(n-1), bytes sent per rank 2(n-1)/n S: no all-reduce sends fewer."""
    c = np.arange(n)  # chunk c goes twice round, less two hops:
    there, here = out((c + 1) % n, c), out(c, c)
    sums, spreads = reduce(there, here), copy(there, here)
    for hop in range(2 * n - 2):  # once to be summed, once to be spread
        yield turned(sums if hop < n - 1 else spreads, hop, n)


def reduce_scatter(n: int) -> Steps:
    """Rounds n-1, bytes sent per rank (n-1)/n S. Chunk c starts at rank c+1, so that it ends at rank c."""
    c = np.arange(n)
    here, there = (c + 1) % n, (c + 2) % n

    def sums(goes: Slots, came: Slots) -> Front:
        return join(copy(goes, came), reduce(goes, inp(there, c)))

    first, last, between = inp(here, c), out(there, c), sums(tmp(there, c), tmp(here, c))
    for hop in range(n - 1):
        if hop == 0 or hop == n - 2:
            goes, came = last if hop == n - 2 else tmp(there, c), first if hop == 0 else tmp(here, c)
            yield turned(sums(goes, came), hop, n)
        else:
            yield turned(between, hop, n)


def all_gather(n: int) -> Steps:
    """Rounds n-1, bytes sent per rank (n-1)/n S: the second time round."""
    c = np.arange(n)
    spreads = copy(out((c + 1) % n, c), out(c, c))
    for hop in range(n - 1):
        yield turned(spreads, hop, n)
