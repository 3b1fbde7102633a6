"""What a plan costs, counted from its moves and never typed by hand: rounds, messages and bytes.

A **message** is all that one rank sends to one other in one step. **Rounds** are the alpha count: the longest chain of
messages each of which waits for the one before, because it carries on what that one brought, or because the same rank
sent (or received) that one in an earlier step. So a rank may send to many at once in one step, as in the direct
algorithms, but not in two steps at once, as in the trees. **Bytes** are multiples of S, the bytes of the whole vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .plan import REDUCE, Column, Front, Plan


@dataclass(frozen=True)
class Counts:
    """What a plan costs. The tuples have one entry per rank; chunks are counted with one S / chunks each."""

    chunks: int
    rounds: int
    steps: int
    messages_sent: tuple[int, ...]
    chunks_sent: tuple[int, ...]
    chunks_reduced: tuple[int, ...]

    @property
    def messages(self) -> int:
        """In total."""
        return sum(self.messages_sent)

    @property
    def messages_per_rank(self) -> int:
        """Sent by the rank that sends most."""
        return max(self.messages_sent)

    @property
    def bytes_per_rank(self) -> Fraction:
        """Sent by the rank that sends most, as a multiple of S."""
        return Fraction(max(self.chunks_sent), self.chunks)

    @property
    def reduced_per_rank(self) -> Fraction:
        """Bytes folded into something else by the rank that folds most, as a multiple of S: the gamma count."""
        return Fraction(max(self.chunks_reduced), self.chunks)


def count(plan: Plan) -> Counts:
    """What `plan` costs. The plan should have passed `check`."""
    tally = _Tally(plan)
    steps = 0
    for steps, front in enumerate(plan.fronts(), 1):  # noqa: B007
        tally.add(front)
    per_rank = (tuple(int(x) for x in column) for column in (tally.messages, tally.sent, tally.reduced))
    return Counts(plan.chunks, int(tally.send_clock.max(initial=0)), steps, *per_rank)


def bytes_per_host(plan: Plan, places: Sequence[int]) -> Fraction:
    """Sent to other hosts by the host that sends most, as a multiple of S: what its wire carries. `places[r]` is the
    number of rank r's host."""
    where, sent = np.asarray(places), np.zeros(max(places) + 1, np.int64)
    for front in plan.fronts():
        here, there = where[front.src_rank], where[front.dst_rank]
        np.add.at(sent, here, front.count * (here != there))
    return Fraction(int(sent.max()), plan.chunks)


class _Tally:
    def __init__(self, plan: Plan) -> None:
        n, chunks, tmp = plan.size, plan.chunks, plan.tmp_chunks
        self.size = n
        self.messages, self.sent, self.reduced, self.send_clock, self.receive_clock = np.zeros((5, n), np.int64)
        self.base, self.width = np.array([0, n * chunks, 2 * n * chunks]), np.array([chunks, chunks, tmp])
        self.round = np.zeros(n * (2 * chunks + tmp), np.int64)  # of the last message that each slot's value waited for

    def add(self, front: Front) -> None:
        """One more step."""
        np.add.at(self.reduced, front.dst_rank, front.count * (front.verb == REDUCE))
        row, dst, src = self._slots(front)
        here, there = front.src_rank[row], front.dst_rank[row]
        crosses = here != there
        pair, message = np.unique((here * self.size + there)[crosses], return_inverse=True)
        sender, receiver = pair // self.size, pair % self.size
        self.messages += np.bincount(sender, minlength=self.size)
        self.sent += np.bincount(here[crosses], minlength=self.size)
        waits = np.maximum(self.send_clock[sender], self.receive_clock[receiver])
        np.maximum.at(waits, message, self.round[src[crosses]])
        came = self.round[src]
        came[crosses] = waits[message] + 1
        np.maximum.at(self.send_clock, sender, waits + 1)
        np.maximum.at(self.receive_clock, receiver, waits + 1)
        self.round[dst[front.verb[row] != REDUCE]] = 0
        np.maximum.at(self.round, dst, came)

    def _slots(self, front: Front) -> tuple[Column, Column, Column]:
        """Chunk by chunk: the move, and the addresses of its two slots."""
        row, f = front.singles()
        dst = self.base[f.dst_buf] + f.dst_rank * self.width[f.dst_buf] + f.dst_chunk
        src = self.base[f.src_buf] + f.src_rank * self.width[f.src_buf] + f.src_chunk
        return row, dst, src
