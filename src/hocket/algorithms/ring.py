"""A ring: every rank speaks only to its right neighbour, and all of them all the time.

    r0 ──c0──▶ r1 ──c1──▶ r2 ──c2──▶ r3          chunk c starts at rank c. On the way round once it is summed,
     ▲                                │           on the way round again the sum is spread.
     └───────────────c3───────────────┘
"""

from __future__ import annotations

import numpy as np

from ..plan import Steps, copy, out, reduce


def ring(n: int) -> Steps:
    """All-reduce. Rounds 2(n-1), bytes sent per rank 2(n-1)/n S.  Patarasuk & Yuan, JPDC 69(2), 2009."""
    c = np.arange(n)  # chunk c goes twice round, less two hops:
    for hop in range(2 * n - 2):  # once to be summed, once to be spread
        here, there = (c + hop) % n, (c + hop + 1) % n
        yield (reduce if hop < n - 1 else copy)(out(there, c), out(here, c))
