"""Rank r sums chunk r for all, in rank order, and hands it out: a direct reduce-scatter, then a direct all-gather.

    r0 ─c1─▶ r1      first everyone sends rank r its chunk r,
    r0 ◀─c0─ r1      then rank r sends everyone the sum of chunk r.

The bytes of a ring in two rounds instead of 2(n-1); for that every rank speaks to every other. Known as the direct or
linear algorithm; Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from ..plan import Steps
from . import direct
from .combine import then


def all_reduce(n: int) -> Steps:
    """Rounds 2, messages 2(n-1) per rank, bytes sent per rank 2(n-1)/n S. Every chunk is folded in rank order."""
    return then(direct.reduce_scatter(n), direct.spread(n))
