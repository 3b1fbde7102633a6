"""A plan as a schedule in GOAL, the language of LogGOPSim and ATLAHS: what each rank sends, receives and computes, and
what must be over before.

    num_ranks 2
    rank 0 {
      l1: send 8b to 1 tag 0
      l2: recv 8b from 1 tag 0
      l3: calc 100
      l3 requires l2
    }

A message is all that one rank sends to one other in one step, and its tag is the number of the step. What is received
is folded, or copied on its rank, by a `calc`. (Hoefler, Schneider, Lumsdaine: LogGOPSim, LSAP 2010.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ..collectives import find
from ..partition import bounds
from ..plan import REDUCE, Column, Front, Plan
from .hazards import Hazards


def goal(plan: Plan, nbytes: int, fold: float = 0.0) -> str:
    """The schedule for a vector of `nbytes`, which is cut as hocket cuts it. To fold a byte takes `fold` nanoseconds; a
    copy from one place of a rank to another takes no time. A message without bytes, as in a barrier, is one of 1 byte.
    """
    return "\n".join([f"num_ranks {plan.size}", *_Schedule(plan, nbytes, fold).lines(), ""])


class _Schedule:
    def __init__(self, plan: Plan, nbytes: int, fold: float) -> None:
        self.fold = fold
        self.size = plan.size
        self.bytes: list[int] = np.diff(_cut(plan, nbytes)).tolist()
        self.said: list[list[str]] = [[] for _ in range(plan.size)]
        self.hazards: list[Hazards[int]] = [Hazards() for _ in range(plan.size)]
        self.labels = [0] * plan.size
        for step, front in enumerate(plan.fronts()):
            self.add(step, front)

    def lines(self) -> Iterator[str]:
        """The blocks of the ranks."""
        for rank, said in enumerate(self.said):
            yield f"\nrank {rank} {{"
            yield from said
            yield "}"

    def add(self, step: int, front: Front) -> None:
        """One more step: a send, a receive and what becomes of it, for each pair of ranks. All sends come first."""
        _, singles = front.singles()
        pairs: dict[tuple[int, int], list[tuple[int, ...]]] = defaultdict(list)
        for verb, db, dr, dc, sb, sr, sc, _ in zip(*(column.tolist() for column in singles.columns()), strict=True):
            pairs[sr, dr].append((verb, db, dc, sb, sc))
        for (here, there), moves in pairs.items():
            if here != there:
                reads = [(sb, sc) for _, _, _, sb, sc in moves]
                self.do(here, f"send {self.length(moves)}b to {there} tag {step}", reads, [])
        for (here, there), moves in pairs.items():
            reads = [(sb, sc) for _, _, _, sb, sc in moves] if here == there else []
            writes = [(db, dc) for _, db, dc, _, _ in moves]
            folded = [move for move in moves if move[0] == REDUCE]
            after = []
            if here != there:
                text = f"recv {self.length(moves)}b from {here} tag {step}"
                after = [self.do(there, text, [], [] if folded else writes)]
            if folded or here == there:
                self.do(there, f"calc {round(self.fold * self.length(folded, 0))}", reads, writes, after)

    def length(self, moves: list[tuple[int, ...]], least: int = 1) -> int:
        """The bytes that are moved."""
        return max(least, sum(self.bytes[sc % len(self.bytes)] for *_, sc in moves))

    def do(
        self,
        rank: int,
        text: str,
        reads: list[tuple[int, int]],
        writes: list[tuple[int, int]],
        after: list[int] | None = None,
    ) -> int:
        """Say that a rank does something, after what it must come after. Its label."""
        said, hazards = self.said[rank], self.hazards[rank]
        self.labels[rank] += 1
        label = self.labels[rank]
        said.append(f"  l{label}: {text}")
        said += [f"  l{label} requires l{other}" for other in (*(after or ()), *hazards.before(reads, writes))]
        hazards.did(label, reads, writes)
        return label


def _cut(plan: Plan, nbytes: int) -> Column:
    """Where the chunks of a vector begin and end."""
    blocks = np.diff(bounds(nbytes, plan.size)).tolist() if find(plan.collective).blocks else None
    return bounds(nbytes, plan.chunks, blocks)
