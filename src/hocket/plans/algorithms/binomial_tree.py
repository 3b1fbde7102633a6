"""A binomial tree: in each round, twice as many ranks have spoken (or have heard) as in the round before.

    0─────────────┐            a rank's subtree is the range of ranks from it on, as long as its lowest set bit:
    0─────┐       4─────┐      4 stands for 4 5 6 7. So sums stay in rank order. The way up takes the smallest
    0─┐   2─┐     4─┐   6─┐    subtrees first, the way down the largest: ⌈log2 n⌉ rounds each.
    0 1   2 3     4 5   6 7

Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005; the tree is that of Vuillemin, CACM 21(4), 1978.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .. import plan
from ..plan import (
    INP,
    OUT,
    TMP,
    Column,
    Steps,
    copy,
    inp,
    out,
    tmp,
)
from .combine import place, then


def up(n: int) -> Iterator[tuple[Column, Column, Column]]:
    """The tree's rounds, leaves first: parents, their children, and how many ranks each child stands for."""
    for span in (1 << k for k in range((n - 1).bit_length())):
        parent = np.arange(0, n - span, 2 * span)
        yield parent, parent + span, np.minimum(span, n - parent - span)


def down(n: int) -> Iterator[tuple[Column, Column, Column]]:
    """The same rounds, root first."""
    return reversed(tuple(up(n)))


def all_reduce(n: int) -> Steps:
    """Rounds 2⌈log2 n⌉, messages 2(n-1) in total, bytes sent by the root ⌈log2 n⌉ S."""
    return then((plan.reduce(out(parent), out(child)) for parent, child, _ in up(n)), broadcast(n))


def broadcast(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, messages n-1 in total, bytes sent by the root ⌈log2 n⌉ S."""
    for parent, child, _ in down(n):
        yield copy(out(child), out(parent))


def reduce(n: int, root: int = 0) -> Steps:
    """Rounds ⌈log2 n⌉, messages n-1 in total, bytes sent per rank S. The same bracket for every root.

    A subtree's sum lies with its lowest rank, but in the root's own subtree with the root: this is why the tree is not
    just relabelled, which would turn the order of the operands. Each sum goes into the rank's other tmp slot.
    """
    held, slot = np.full(n, INP), np.zeros(n, np.int64)  # where each rank's sum lies
    for low, high, _ in up(n):
        span = high[0] - low[0]
        left, right = (np.where((first <= root) & (root < first + span), root, first) for first in (low, high))
        at = np.where(right == root, root, left)
        goes = out(root) if 2 * span >= n else tmp(at, 1 - slot[at])
        yield copy(goes, place(held[left], left, slot[left])), plan.reduce(goes, place(held[right], right, slot[right]))
        held[at], slot[at] = goes.buf, goes.chunk


def scatter(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, messages n-1 in total, bytes sent by the root (n-1)/n S.

    A child's own chunk goes where it belongs; the chunks that it is to hand on go to its tmp.
    """
    for parent, child, count in down(n):
        source = np.where(parent == 0, INP, TMP)
        own = copy(out(child, child), place(source, parent, child))
        more = count > 1
        child, count = child[more] + 1, count[more] - 1
        yield own, copy(tmp(child - 1, child, count), place(source[more], parent[more], child, count))


def gather(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, messages n-1 in total, bytes sent by the busiest rank about S/2: scatter, backwards."""
    for parent, child, count in up(n):
        goal = np.where(parent == 0, OUT, TMP)
        own = copy(place(goal, parent, child), inp(child, child))
        more = count > 1
        child, count = child[more] + 1, count[more] - 1
        yield own, copy(place(goal[more], parent[more], child, count), tmp(child - 1, child, count))
