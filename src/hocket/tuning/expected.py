"""How large a plan will be, seen from small ones: whether there is memory for it must be known before it is made."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..plans.algorithms import Algorithm, plan
from ..plans.plan import MOST_MOVES, Plan
from .cluster import Cluster

SMALL = 512  # ranks, up to which anything may be made
WIDEST = 1 << 23  # moves of one step: with what is sorted of them they take a gigabyte


class Size(NamedTuple):
    """Moves, of which turns of a front have none of their own."""

    widest: float  # of one step
    moves: float  # of all


def too_large(collective: str, algorithm: str | Algorithm, cluster: Cluster) -> str:
    """Why the plan of an algorithm over a cluster would not fit, as the end of a sentence; empty where it fits."""
    size = expected(collective, algorithm, cluster)
    if size.widest > WIDEST:
        return f"about {size.widest:.0e} moves in one step, and there is room for {WIDEST:.0e}"
    if size.moves > MOST_MOVES:
        return f"about {size.moves:.0e} moves, and there may be {MOST_MOVES:.0e}"
    return ""


def expected(collective: str, algorithm: str | Algorithm, cluster: Cluster) -> Size:
    """About that of the plan. Numbers of moves grow like a power of that of ranks, with as many of these on each host,
    and two smaller plans tell which."""
    each = max(cluster.sizes) if cluster.hosts > 1 else cluster.ranks
    each = each if each <= SMALL // 8 else 1
    small, large = 4 * max(each, 8), 8 * max(each, 8)
    if cluster.ranks <= SMALL:
        return Size(0, 0)
    few, more = (
        _size(plan(collective, algorithm, n, places=tuple(r // each for r in range(n)))) for n in (small, large)
    )
    times = cluster.ranks / large
    return Size(*(y * times ** math.log2(max(y, 1) / max(x, 1)) for x, y in zip(few, more, strict=True)))


def _size(made: Plan) -> Size:
    sizes, last = [0], None
    for front in made.fronts(lazily=True):
        if front.base is not last:
            sizes.append(len(front))
        last = front.base
    return Size(max(sizes), sum(sizes))
