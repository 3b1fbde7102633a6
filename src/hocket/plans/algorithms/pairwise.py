"""Pairwise exchange: in each step every rank has one partner, and the two swap what they have for each other.

    step 0   0─4 1─3 2─5        a round-robin tournament of six: who meets whom in step h? The partner of r is h - r
    step 1   0─1 2─4 3─5        modulo 5, and who would meet itself meets rank 5. An odd tournament has no such rank:
    step 2   0─2 1─5 3─4        who would meet itself has a pause.
    ...

No rank ever speaks to two at once, and since partners swap in one step, it is right in place too. Thakur, Rabenseifner
& Gropp, IJHPCA 19(1), 2005; the tournament is Kirkman's, 1847.
"""

from __future__ import annotations

import numpy as np

from ..plan import Steps, copy, inp, out


def all_to_all(n: int) -> Steps:
    """Rounds n-1 (n where n is odd), messages n-1 per rank, bytes sent per rank (n-1)/n S."""
    odd = n - 1 + n % 2
    r = np.arange(n)
    for h in range(odd):
        partner = (h - r) % odd
        if n % 2 == 0:
            alone = h * (odd + 1) // 2 % odd  # the r with 2r = h modulo odd
            partner[alone], partner[-1] = n - 1, alone
        met = partner != r
        yield copy(out(partner[met], r[met]), inp(r[met], partner[met]))
