"""Collectives out of spreads: forwards each move copies, backwards each folds; and an all-reduce without owners.

all_reduce(up, down)     `up` backwards sums every chunk at its owner, and `down` spreads the sums
pipelined(steps, 4)      every chunk in four segments, each one step behind the one before
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..plans.algorithms.combine import fronts, place
from ..plans.plan import INP, OUT, TMP, Front, Steps, copy, inp, out, reduce
from .spreads import Spread, side_by_side


def all_reduce(up: Spread, down: Spread) -> Steps:
    """Rounds and bytes are those of both. Raises ValueError where the two do not have the same owners."""
    if up.size != down.size or not np.array_equal(up.owner, down.owner):
        raise ValueError(f"chunks do not end where they are spread from: {up.title}, and {down.title}")
    yield from _summed(up, np.ones((up.size, up.chunks), bool))
    yield from spread_out(down)


def reduce_scatter(up: Spread) -> Steps:
    """The all-gather `up` backwards."""
    return _summed(up, np.arange(up.size)[:, None] == up.owner)


def reduce_to_root(up: Spread) -> Steps:
    """The broadcast `up` backwards."""
    return _summed(up, np.arange(up.size)[:, None] == up.owner)


def spread_out(down: Spread) -> Steps:
    """An all-gather or a broadcast: as the spread is."""
    for src, dst, chunk in down.steps:
        yield copy(out(dst, chunk), out(src, chunk))


def exchange(sides: Sequence[int], order: Sequence[int]) -> Steps:
    """An all-reduce of ranks in a grid: along each dimension, in this order, everyone hears the whole vector of all
    others, and folds them in the order of ranks. Recursive doubling where all sides are 2, and one_shot where there is
    one; in general "recursive multiplying"."""
    n, r = math.prod(sides), np.arange(math.prod(sides))
    held = INP
    for left, k in zip(reversed(range(len(order))), order, strict=True):
        goes = TMP if left % 2 else OUT
        after = math.prod(sides[k + 1 :])
        at = r // after % sides[k]
        others = [r + (x - at) * after for x in range(sides[k])]
        buf = np.full(n, held)
        yield (
            copy(place(np.full(n, goes), r), place(buf, others[0])),
            *(reduce(place(np.full(n, goes), r), place(buf, other)) for other in others[1:]),
        )
        held = goes


def between(groups: int, up: Spread, down: Spread) -> Steps:
    """An all-reduce of ranks in so many groups of neighbours: `up` backwards sums within each group, the owners of one
    chunk exchange their sums in one step, and `down` spreads the whole within each group."""
    inside, size, g = [side_by_side(spread, groups) for spread in (up, down)], up.size, np.arange(groups)
    yield from _summed(inside[0], np.zeros((groups * size, up.chunks), bool))
    chunk = np.tile(np.arange(up.chunks), groups)
    mine = np.tile(up.owner, groups)  # of the chunks, in each group
    at = np.repeat(g * size, up.chunks) + mine
    held = np.full(len(at), INP if size == 1 else TMP)
    yield (
        copy(out(at, chunk), place(held, mine, chunk)),
        *(reduce(out(at, chunk), place(held, k * size + mine, chunk)) for k in range(1, groups)),
    )
    yield from spread_out(inside[1])


def pipelined(steps: Steps, segments: int) -> Steps:
    """Every chunk in so many segments: what happens to the first in step t happens to the second in step t + 1."""
    held = list(fronts(steps))
    for t in range(len(held) + segments - 1):
        yield tuple(_segment(held[t - k], k, segments) for k in range(segments) if 0 <= t - k < len(held))


def _segment(f: Front, which: int, segments: int) -> Front:
    _, g = f.singles()
    dst, src = (chunk * segments + which for chunk in (g.dst_chunk, g.src_chunk))
    return Front(g.verb, g.dst_buf, g.dst_rank, dst, g.src_buf, g.src_rank, src, g.count)


def _summed(up: Spread, there: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Steps:
    """Every chunk's sum at its owner. A rank that folds a chunk for others does so in `out` where that is `there`,
    which begins as its input, and else in tmp, which it copies its input to when it is first folded into."""
    begun = np.zeros_like(there)
    for to, from_, chunk in reversed(up.steps):
        came = np.where(begun[from_, chunk], np.where(there[from_, chunk], OUT, TMP), INP)
        goes = np.where(there[to, chunk], OUT, TMP)
        fresh = np.unique((to * up.chunks + chunk)[~begun[to, chunk] & ~there[to, chunk]])
        rank, new = np.divmod(fresh, up.chunks)
        yield (
            copy(place(np.full(len(rank), TMP), rank, new), inp(rank, new)),
            reduce(place(goes, to, chunk), place(came, from_, chunk)),
        )
        begun[to, chunk] = True
