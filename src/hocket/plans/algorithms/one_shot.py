"""Everyone sends everything to everyone, and each sums for itself.

r0 ◀──▶ r1      one round: nothing is faster for a few bytes.
 ▲ ╲  ╱ ▲       n times the bytes and n times the sums: nothing is slower for many.
 ▼ ╱  ╲ ▼
r2 ◀──▶ r3      All fold in rank order, so all hold the same bits.
"""

from __future__ import annotations

import numpy as np

from ..plan import Steps, copy, inp, out, reduce


def all_reduce(n: int) -> Steps:
    """Rounds 1, messages n(n-1) in total, bytes sent per rank (n-1) S."""
    q, r = np.divmod(np.arange(n * n - n), n - 1 if n > 1 else 1)  # every rank q, and every r but the first
    yield copy(out(np.arange(n)), inp(0)), reduce(out(q), inp(r + 1))
