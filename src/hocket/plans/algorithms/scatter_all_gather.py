"""Broadcast of a long vector: the root deals its chunks out along a binomial tree, then they go round a ring.

    0 1 2 3 ──▶ 2 3       the root sends half of the chunks away, each half is halved again,
     ╰▶ 1        ╰▶ 3     and when rank r holds chunk r, the ring of an all-gather spreads them all.

The root sends its vector about once, not ⌈log2 n⌉ times. Van de Geijn's algorithm: Barnett, Shuler, van de Geijn,
Gupta, Payne & Watts, "Interprocessor collective communication library", SHPCC 1994.
"""

from __future__ import annotations

from ..plan import Steps, copy, out
from . import binomial_tree, ring
from .combine import fronts, then


def broadcast(n: int) -> Steps:
    """Rounds ⌈log2 n⌉ + n-1, bytes sent by the root 2(n-1)/n S."""
    return then(_deal(n), _spread(n))


def _deal(n: int) -> Steps:
    for parent, child, count in binomial_tree.down(n):
        yield copy(out(child, child, count), out(parent, child, count))


def _spread(n: int) -> Steps:
    for front in fronts(ring.all_gather(n)):
        yield front.take(front.dst_rank != 0)  # the root has all chunks and need not be sent them
