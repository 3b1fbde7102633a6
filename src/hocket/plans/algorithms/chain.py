"""A chain: every rank adds its own to what comes from the left, keeps it, and hands it on to the right.

    r0 ──▶ r1 ──▶ r2 ──▶ r3        r0   r0+r1   (r0+r1)+r2   ((r0+r1)+r2)+r3

As many rounds as there are ranks to pass. But long vectors go down in segments, one behind the other, so that all ranks
are at work at the same time, and nobody sends or folds more than S. Each rank's sum is that of the rank before and its
own: its bits are those of a fold from the first rank on.

The linear pipeline of Sanders & Träff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006, LNCS 4192.
"""

from __future__ import annotations

from ..plan import Steps, copy, inp, out, reduce, tmp


def scan(n: int) -> Steps:
    """Rounds n-1, messages n-1 in total, bytes sent per rank S."""
    for r in range(1, n):
        yield copy(out(r), out(r - 1)), reduce(out(r), inp(r))


def exscan(n: int) -> Steps:
    """Rounds n-1, messages n-1 in total, bytes sent per rank S. What is handed on lies beside the result."""
    for r in range(1, n):
        yield copy(out(r), inp(0) if r == 1 else tmp(r - 1))
        if r < n - 1:
            yield copy(tmp(r), out(r)), reduce(tmp(r), inp(r))
