"""Two binary trees, each for one half of the vector: who hands on in one of them is a leaf of the other.

    0───────╮                                 even ranks hand on in the first tree, odd ones in the second: so a rank
        ╭───4──╮            ╭───3───╮         sends and gets its vector about once on the way up and once on the way
      ╭─2─╮  ╭─6          ╭─1─╮   ╭─5─╮       down, and long ones go segment behind segment, both ways at once.
      1   3  5            0   2   4   6       Whoever stands to the left is folded first: sums are in rank order.

The sums of the two halves have different brackets. Sanders, Speck & Träff, "Two-tree algorithms for full bandwidth
broadcast, reduction and scan", Parallel Computing 35(12), 2009; the first tree is NCCL's, and so is the second but that
it is never mirrored, which would turn the order of its operands.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .. import plan
from ..plan import INP, OUT, TMP, Column, Front, Slots, Step, Steps, copy, inp, out, tmp
from .combine import beside, fronts, place, then


def all_reduce(n: int) -> Steps:
    """Rounds 2⌈log2 n⌉, messages 4(n-1) in total, bytes sent per rank at most 2 S."""
    return beside(*(then(_up(n, half, np.full(n, OUT)), _down(n, half)) for half in (0, 1)))


def broadcast(n: int) -> Steps:
    """Rounds at most ⌊log2 n⌋ + 1, bytes sent per rank S. The root first sends the second tree its half."""
    second = then([copy(out(_roots(n)[1], 1), out(0, 1))], _down(n, 1))
    return beside(_down(n, 0), (front.take(front.dst_rank > 0) for front in fronts(second)))


def reduce(n: int, root: int = 0) -> Steps:
    """Rounds at most ⌈log2 n⌉ + 1, messages at most 2n in total, bytes sent per rank S. One bracket for every root."""
    sums = np.where(np.arange(n) == root, OUT, TMP)
    last = ([copy(out(root, half), tmp(top, half))] * (top != root) for half, top in enumerate(_roots(n)))
    return beside(*(then(_up(n, half, sums), step) for half, step in enumerate(last)))


def _up(n: int, half: int, sums: Column) -> Iterator[Step]:
    """The sum of one half at the root of its tree; what rank r sums up lies in `sums[r]`."""

    def held(rank: Column) -> Slots:
        return place(np.where(rank % 2 == half, sums[rank], INP), rank, half)

    for parent, child in _levels(n, half):
        left, right, first = child < parent, child > parent, parent == 0  # rank 0 has nobody to its left
        yield (
            copy(held(parent[first]), inp(parent[first], half)),
            copy(held(parent[left]), held(child[left])),
            plan.reduce(held(parent[left]), inp(parent[left], half)),
            plan.reduce(held(parent[right]), held(child[right])),
        )


def _down(n: int, half: int) -> Iterator[Front]:
    """One half from the root of its tree to all."""
    for parent, child in reversed(_levels(n, half)):
        yield copy(out(child, half), out(parent, half))


def _roots(n: int) -> tuple[int, int]:
    """Of the two trees."""
    return 0, (1 << (n.bit_length() - 1)) - 1


def _levels(n: int, half: int) -> list[tuple[Column, Column]]:
    """Parents and their children, leaves first. The second tree is the first one of a rank more, without rank 0.

    In it, x with the lowest bit b is the left child of x + b or the right one of x - b, as x has the bit 2b or has not,
    or x + b would be no rank.
    """
    x = np.arange(1, n + half)
    low = x & -x
    up = np.where((x & 2 * low > 0) | (x + low >= n + half), x - low, x + low)
    x, up = x[up >= half], up[up >= half]
    span = np.where(up, up & -up, 2 * n)
    return [(up[span == level] - half, x[span == level] - half) for level in sorted(set(span.tolist()))]
