"""A torus: ranks in rows and columns, a ring along each. First along the rows, then along the columns.

    r0 ─▶ r1 ─▶ r2 ─▶ r0       n = 6 as 2 rows of 3. Around its row, each rank sums its third of the vector over the
     ⇅     ⇅     ⇅             row; around its column, of that its half over all rows. An all-gather is the same
    r3 ─▶ r4 ─▶ r5 ─▶ r3       backwards: the bytes of one ring of six, in 2 + 1 rounds instead of 5.

Rows are as near as can be to as long as columns, and never shorter; a prime number of ranks is one row, which is a
ring. Each chunk's bracket begins at another rank, as in a ring. The bucket algorithms of Barnett, Littlefield, Payne &
van de Geijn, "Global combine on mesh architectures with wormhole routing", IPPS 1993.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..plan import Column, Steps, copy, out, reduce
from .combine import scattered, then


def all_reduce(n: int) -> Steps:
    """Rounds 2(a+b-2) for n = a b, bytes sent per rank 2(n-1)/n S: those of a ring."""
    return then(_sums(n), all_gather(n))


def reduce_scatter(n: int) -> Steps:
    """Rounds a+b-2 for n = a b, bytes sent per rank (n-1)/n S: those of a ring."""
    return scattered(_sums(n), n)


def all_gather(n: int) -> Steps:
    """Rounds a+b-2 for n = a b, bytes sent per rank (n-1)/n S: those of a ring."""
    for here, there, c in reversed(list(_hops(n))):
        yield copy(out(here, c), out(there, c))


def _sums(n: int) -> Steps:
    """Of everyone's chunk r at rank r."""
    for here, there, c in _hops(n):
        yield reduce(out(there, c), out(here, c))


def _hops(n: int) -> Iterator[tuple[Column, Column, Column]]:
    """From where to where which chunks go, so that chunk r comes to rank r: first to its column, then to its row."""
    rows = max(a for a in range(1, n + 1) if n % a == 0 and a * a <= n)
    columns = n // rows
    r, c = np.divmod(np.arange(rows * n), n)  # a row, and a chunk
    for hop in range(1, columns):
        yield r * columns + (c + hop) % columns, r * columns + (c + hop + 1) % columns, c
    c = np.arange(n)
    for hop in range(1, rows):
        yield (c + hop * columns) % n, (c + (hop + 1) * columns) % n, c
