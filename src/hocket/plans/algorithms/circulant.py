"""A circulant graph: ranks on a circle speak at distances that halve, rounded up, from ⌈n/2⌉ down to 1.

    n = 5, distances 3, 2, 1        Each rank begins with all chunks, those of the ranks ahead of it at distance 0 to 4.
    0 1 2 3 4                       It hands on those at 3 and 4 to the rank at 3, to which they are at 0 and 1,
    0 1 2 ╰─┴▶ 0 1                  then what it has at 2 to the rank at 2,
    0 1 ╰▶ 0                        and what it has at 1 to the rank at 1:
    0 ╰▶ 0                          what is left, its own chunk, is the sum of all.

Each rank sends each chunk but its own once, in ⌈log2 n⌉ rounds, and for every n. An all-gather is the same backwards.
Each chunk's bracket begins at another rank, as in a ring; where n is a power of two they differ only in which of two
operands is the left one. Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234.
"""

from __future__ import annotations

from ..plan import Steps, copy, out, reduce
from .combine import ahead, scattered, then


def all_reduce(n: int) -> Steps:
    """Rounds 2⌈log2 n⌉, bytes sent per rank 2(n-1)/n S: those of a ring."""
    return then(_sums(n), all_gather(n))


def reduce_scatter(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, bytes sent per rank (n-1)/n S: none needs fewer of either."""
    return scattered(_sums(n), n)


def all_gather(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, bytes sent per rank (n-1)/n S: none needs fewer of either."""
    for near, far in reversed(_halves(n)):
        r, c, count = ahead(n, near, far)
        yield copy(out(r, c, count), out((r + near) % n, c, count))


def _sums(n: int) -> Steps:
    """Of everyone's chunk r at rank r."""
    for near, far in _halves(n):
        r, c, count = ahead(n, near, far)
        yield reduce(out((r + near) % n, c, count), out(r, c, count))


def _halves(n: int) -> list[tuple[int, int]]:
    """(⌈n/2⌉, n), and so on down to (1, 2)."""
    halves = []
    while n > 1:
        halves.append(((n + 1) // 2, n))
        n = (n + 1) // 2
    return halves
