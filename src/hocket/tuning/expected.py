"""How large a plan will be, seen from small ones: whether there is memory for it must be known before it is made."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..plans.algorithms import Algorithm, plan
from ..plans.plan import MOST_MOVES, Plan
from .cluster import Cluster

SMALL = 512  # ranks, up to which anything may be made
WIDEST = 1 << 23  # moves of one step: with what is sorted of them they take a gigabyte
MEMORY = 2 << 30  # bytes for what an algorithm has in hand while it makes a step
QUICK = (1 << 20, 1 << 27)  # moves, and bytes: with fewer a plan may be made to see how large it is


class Size(NamedTuple):
    """Moves, of which turns of a front have none of their own, and bytes."""

    widest: float  # of one step
    moves: float  # of all
    memory: float  # the most while they are made

    @property
    def trouble(self) -> str:
        """Why there is no room for that, as the end of a sentence; empty where there is."""
        if self.widest > WIDEST:
            return f"about {self.widest:.0e} moves in one step, and there is room for {WIDEST:.0e}"
        if self.moves > MOST_MOVES:
            return f"about {self.moves:.0e} moves, and there may be {MOST_MOVES:.0e}"
        if self.memory > MEMORY:
            return f"about {self.memory / 2**30:.0f} GiB in hand as it is made, and there is room for {MEMORY >> 30}"
        return ""

    def at(self, times: float, before: Size) -> Size:
        """What it is over so many times as many ranks, `before` being what it was over a fourth of them."""
        return Size(*(y * times ** math.log(max(y, 1) / max(x, 1), 4) for x, y in zip(before, self, strict=True)))


def too_large(collective: str, algorithm: str | Algorithm, cluster: Cluster) -> str:
    """Why the plan of an algorithm over a cluster would not fit, as the end of a sentence; empty where it fits.

    Numbers of moves grow like a power of that of ranks, with as many of these on each host, and two smaller plans tell
    which: one four times as large as the other, so that grids of them have one shape. Where that is too much, a larger
    one is asked, as long as it may be made: over many hosts some algorithms go another way.
    """
    if cluster.ranks <= SMALL:
        return ""
    each = max(cluster.sizes) if cluster.hosts > 1 else cluster.ranks
    each = each if each <= SMALL // 16 else 1

    def measured(ranks: int) -> Size:
        return _size(plan(collective, algorithm, ranks, places=tuple(r // each for r in range(ranks))))

    ranks = 16 * max(each, 8)
    before, size = measured(ranks // 4), measured(ranks)
    while trouble := size.at(cluster.ranks / ranks, before).trouble:
        _, *larger = size.at(4, before)
        if larger[0] > QUICK[0] or larger[1] > QUICK[1]:
            break
        ranks *= 4
        before, size = size, measured(ranks)
    return trouble


def _size(made: Plan) -> Size:
    sizes, last = [0], None
    with _traced() as most:
        for front in made.fronts(lazily=True):
            if front.base is not last:
                sizes.append(len(front))
            last = front.base
    return Size(max(sizes), sum(sizes), most[0])


@contextmanager
def _traced() -> Iterator[list[int]]:
    """How many bytes more there were at the most, once it is over. NumPy tells of its arrays, too."""
    most, mine = [0], not tracemalloc.is_tracing()
    if mine:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    try:
        yield most
    finally:
        most[0] = tracemalloc.get_traced_memory()[1] - before
        if mine:
            tracemalloc.stop()
