"""Dissemination: in each round every rank hears from the one at distance 1, 2, 4, ... all that it has heard of.

    0 ◀─ 1 ◀─ 2 ◀─ 3 ◀─ 0      distance 1: rank r has now heard of r and r+1
    0 ◀──── 2 ◀──── 0           distance 2: of r to r+3: everyone, after ⌈log2 n⌉ rounds, whatever n is
    1 ◀──── 3 ◀──── 1

Written as an all-gather of tokens, which is Bruck's, so that "everyone has heard of everyone" can be checked like any
other promise; a token has no bytes. Hensgen, Finkel & Manber, "Two algorithms for barrier synchronization", IJPP 17(1),
1988.
"""

from __future__ import annotations

from ..plan import Steps
from . import bruck


def barrier(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, messages ⌈log2 n⌉ per rank."""
    return bruck.all_gather(n)
