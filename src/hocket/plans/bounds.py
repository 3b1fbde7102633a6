"""The least that any algorithm can do with, and how near to it a plan comes.

**Rounds**: where a rank speaks to at most k others in one round, and hears at most k, it can have heard of (k+1)^t
ranks after t of them, itself among these. Whose result depends on all n ranks, or whose value all n are to have, needs
⌈log_{k+1} n⌉: Bruck, Ho, Kipnis, Upfal & Weathersby, "Efficient algorithms for all-to-all communications in multiport
message-passing systems", IEEE TPDS 8(11), 1997. k is the plan's own: so a plan of one round meets its bound, too.

**Bytes**, sent by the rank that sends most, as a multiple of S: what has to go to others, shared evenly where it can
be. 2(n-1)/n for an all_reduce is Patarasuk & Yuan's (JPDC 69(2), 2009), the others are in Chan, Heimlich, Purkayastha &
van de Geijn, "Collective communication: theory, practice, and experience", CCPE 19(13), 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .collectives import find
from .count import count
from .plan import Plan


@dataclass(frozen=True)
class Certificate:
    """What a plan takes beside the least there is. `ports` is the most messages that a rank sends, or gets, in one
    step; bytes are those of the rank that sends most, as multiples of S."""

    ports: int
    rounds: int
    least_rounds: int
    bytes_per_rank: Fraction
    least_bytes: Fraction

    @property
    def is_optimal(self) -> tuple[bool, bool]:
        """Whether no algorithm needs fewer rounds, speaking to as many at once; and whether none sends fewer bytes."""
        return self.rounds == self.least_rounds, self.bytes_per_rank == self.least_bytes


def certificate(plan: Plan) -> Certificate:
    """That of a plan, which should have passed `check`."""
    counts, most = count(plan), ports(plan)
    least = least_rounds(plan.size, most), least_bytes(plan.collective, plan.size)
    return Certificate(most, counts.rounds, least[0], counts.bytes_per_rank, least[1])


def ports(plan: Plan) -> int:
    """The most messages that a rank sends, or gets, in one step."""
    most = 0
    for front in plan.fronts():
        away = front.src_rank != front.dst_rank
        pairs = np.unique((front.src_rank * plan.size + front.dst_rank)[away])
        for rank in (pairs // plan.size, pairs % plan.size):
            most = max(most, int(np.bincount(rank).max(initial=0)))
    return most


def least_rounds(size: int, ports: int = 1) -> int:
    """⌈log_{ports+1} size⌉."""
    rounds, reached = 0, 1
    while reached < size:
        rounds, reached = rounds + 1, reached * (max(ports, 1) + 1)
    return rounds


def least_bytes(collective: str, size: int) -> Fraction:
    """Sent by the rank that sends most, as a multiple of S. Raises ValueError for what is no collective."""
    find(collective)
    share = Fraction(size - 1, size)
    if size == 1 or collective == "barrier":  # whose tokens have no bytes
        return Fraction(0)
    if collective == "all_reduce":
        return 2 * share
    if collective in ("broadcast", "reduce", "scan", "exscan"):
        return Fraction(1)  # the root's, or every other one's, or the first one's vector has to leave it
    if collective == "gather":
        return Fraction(1, size)
    return share
