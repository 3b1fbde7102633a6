"""A ring: every rank speaks only to its right neighbour, and all of them all the time.

    r0 ──c0──▶ r1 ──c1──▶ r2 ──c2──▶ r3          chunk c starts at rank c. On the way round once it is summed,
     ▲                                │           on the way round again the sum is spread.
     └───────────────c3───────────────┘

Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
"""

from __future__ import annotations

import numpy as np

from ..plan import Steps, copy, inp, out, reduce, tmp


def all_reduce(n: int) -> Steps:
    """Rounds 2(n-1), bytes sent per rank 2(n-1)/n S: no all-reduce sends fewer."""
    c = np.arange(n)  # chunk c goes twice round, less two hops:
    for hop in range(2 * n - 2):  # once to be summed, once to be spread
        here, there = (c + hop) % n, (c + hop + 1) % n
        yield (reduce if hop < n - 1 else copy)(out(there, c), out(here, c))


def reduce_scatter(n: int) -> Steps:
    """Rounds n-1, bytes sent per rank (n-1)/n S. Chunk c starts at rank c+1, so that it ends at rank c."""
    c = np.arange(n)
    for hop in range(n - 1):
        here, there = (c + 1 + hop) % n, (c + 2 + hop) % n
        came = inp(here, c) if hop == 0 else tmp(here, c)
        goes = out(there, c) if hop == n - 2 else tmp(there, c)
        yield copy(goes, came), reduce(goes, inp(there, c))


def all_gather(n: int) -> Steps:
    """Rounds n-1, bytes sent per rank (n-1)/n S: the second time round."""
    c = np.arange(n)
    for hop in range(n - 1):
        yield copy(out((c + hop + 1) % n, c), out((c + hop) % n, c))
