"""Everyone speaks at once to whom it concerns: one round, whatever the collective.

    r1 ──╮          r0 ──┬──▶ r1         r0 ◀──▶ r1
    r2 ──┼──▶ r0         ├──▶ r2          ▲ ╲  ╱ ▲       reductions are folded in rank order, so operators need
    r3 ──╯               ╰──▶ r3          ▼ ╱  ╲ ▼       not commute, and every chunk has the same bracket
    reduce,         broadcast,           r2 ◀──▶ r3
    gather          scatter              all_gather, reduce_scatter, all_to_all, barrier; in a scan,
                                         only from lower ranks to higher ones

The linear algorithms of Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
"""

from __future__ import annotations

import numpy as np

from .. import plan
from ..plan import Column, Steps, copy, inp, out


def _pairs(n: int) -> tuple[Column, Column]:
    """All ordered pairs of different ranks."""
    here, there = (x.astype(np.int64) for x in np.nonzero(~np.eye(n, dtype=bool)))
    return here, there


def reduce(n: int, root: int = 0) -> Steps:
    """Rounds 1, bytes sent per rank S, received by the root (n-1) S."""
    yield copy(out(root), inp(0)), plan.reduce(out(root), inp(np.arange(1, n)))


def broadcast(n: int) -> Steps:
    """Rounds 1, bytes sent by the root (n-1) S."""
    yield copy(out(np.arange(1, n)), out(0))


def scatter(n: int) -> Steps:
    """Rounds 1, bytes sent by the root (n-1)/n S."""
    r = np.arange(1, n)
    yield copy(out(r, r), inp(0, r))


def gather(n: int) -> Steps:
    """Rounds 1, bytes sent per rank S/n."""
    r = np.arange(1, n)
    yield copy(out(0, r), inp(r, r))


def all_gather(n: int) -> Steps:
    """Rounds 1, messages n-1 per rank, bytes sent per rank (n-1)/n S."""
    here, there = _pairs(n)
    yield copy(out(there, here), inp(here, here))


def spread(n: int) -> Steps:
    """The all-gather of what already lies in `out`: rank r's chunk r, to all others. With tokens, a barrier."""
    here, there = _pairs(n)
    yield copy(out(there, here), out(here, here))


def reduce_scatter(n: int) -> Steps:
    """Rounds 1, messages n-1 per rank, bytes sent per rank (n-1)/n S."""
    r = np.arange(n)
    source, chunk = np.divmod(np.arange(n * n - n), n)
    yield copy(out(r, r), inp(0, r)), plan.reduce(out(chunk, chunk), inp(source + 1, chunk))


def scan(n: int) -> Steps:
    """Rounds 1, messages n(n-1)/2 in total, bytes folded by the last rank (n-1) S."""
    r, source = _before(n)
    yield copy(out(np.arange(1, n)), inp(0)), plan.reduce(out(r), inp(source))


def exscan(n: int) -> Steps:
    """The same, but for a rank's own."""
    r, source = _before(n)
    others = source < r
    yield copy(out(np.arange(1, n)), inp(0)), plan.reduce(out(r[others]), inp(source[others]))


def _before(n: int) -> tuple[Column, Column]:
    """Every rank but the first, with each rank up to itself but the first."""
    r, source = (x.astype(np.int64) + 1 for x in np.nonzero(np.tri(max(n - 1, 0), dtype=bool)))
    return r, source


def all_to_all(n: int) -> Steps:
    """Rounds 1, messages n-1 per rank, bytes sent per rank (n-1)/n S."""
    here, there = _pairs(n)
    yield copy(out(there, here), inp(here, there))
