"""All to one, one to all: what everyone writes first.

r1 ──╮         ╭──▶ r1      the root does all the work, and its link carries everything
r2 ──┼──▶ r0 ──┼──▶ r2
r3 ──╯         ╰──▶ r3
"""

from __future__ import annotations

import numpy as np

from ..plan import Steps, copy, inp, out, reduce, tmp


def all_reduce(n: int) -> Steps:
    """Rounds 2, messages 2(n-1) in total, bytes sent by the root (n-1) S. Folded in rank order."""
    others = np.arange(1, n)
    yield copy(tmp(0, others - 1), inp(others))
    yield reduce(out(0), tmp(0, others - 1))
    yield copy(out(others), out(0))
