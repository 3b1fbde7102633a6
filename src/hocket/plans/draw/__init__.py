"""A plan as text: who sends to whom, and every step.

>>> print(draw(plan("all_reduce", "ring", 3)))
all_reduce ring: size 3, chunks 3, rounds 4, steps 4, messages 12, bytes/rank 1.33 S
<BLANKLINE>
r0 ──▶ r1 ──▶ r2
 ▲             │
 └─────────────┘
<BLANKLINE>
0  r1.out[0] += r0   r2.out[1] += r1   r0.out[2] += r2
1  r2.out[0] += r1   r0.out[1] += r2   r1.out[2] += r0
2  r0.out[0] <- r2   r1.out[1] <- r0   r2.out[2] <- r1
3  r1.out[0] <- r0   r2.out[1] <- r1   r0.out[2] <- r2
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..check import look
from ..count import count
from ..plan import Front, Plan

WIDEST = 16  # ranks that a picture has room for


def draw(plan: Plan, most: int = 16) -> str:
    """The plan's counts, its picture (up to 16 ranks) and its steps, each with at most its first `most` moves.

    `r1.out[0] += r0` says that r0's chunk is reduced into r1's, `<-` that it is copied, and `<- r0 + r2` that several
    are folded. A source's buffer and chunk are written out only where they differ from the destination's.

    Raises PlanError for a plan that names what is not there, such as a rank beyond its size.
    """
    look(plan)
    c = count(plan)
    root = f", root {plan.root}" if plan.root else ""
    sent = f"{float(c.bytes_per_rank):.3g} S"
    head = f"{plan.collective} {plan.algorithm}: size {plan.size}{root}, chunks {plan.chunks}, "
    head += f"rounds {c.rounds}, steps {c.steps}, messages {c.messages}, bytes/rank {sent}"
    return "\n\n".join(part for part in (head, _picture(plan), steps(plan, most)) if part)


def steps(plan: Plan, most: int = 16) -> str:
    """One line per step."""
    width = len(str(max(0, sum(1 for _ in plan.fronts()) - 1)))
    return "\n".join(f"{number:{width}}  {_moves(front, most)}" for number, front in enumerate(plan.fronts()))


def picture(plan: Plan) -> str:
    """Who sends to whom: a ring where it is one, else a table of how many messages. Empty for more than 16 ranks.
    Raises as `draw`."""
    look(plan)
    return _picture(plan)


def _picture(plan: Plan) -> str:
    sent = _messages(plan)
    if not sent.any() or plan.size > WIDEST:
        return ""
    return _ring(plan.size) if _is_ring(sent) else _table(sent)


def _messages(plan: Plan) -> npt.NDArray[np.int64]:
    """How many messages go from each rank (row) to each rank (column)."""
    sent = np.zeros((plan.size, plan.size), np.int64)
    for front in plan.fronts():
        crosses = front.src_rank != front.dst_rank
        here, there = np.unique(np.stack((front.src_rank, front.dst_rank))[:, crosses], axis=1)
        sent[here, there] += 1
    return sent


def _is_ring(sent: npt.NDArray[np.int64]) -> bool:
    """Everyone sends to the right neighbour and to nobody else."""
    n = len(sent)
    return n > 2 and np.array_equal(sent > 0, np.roll(np.eye(n, dtype=bool), 1, axis=1))


def _ring(n: int) -> str:
    top = " ──▶ ".join(f"r{rank}" for rank in range(n))
    inner = len(top) - 3 - len(str(n - 1)) + 1
    return f"{top}\n ▲{' ' * inner}│\n └{'─' * inner}┘"


def _table(sent: npt.NDArray[np.int64]) -> str:
    """Messages from the rank of the row to the rank of the column."""
    names = [f"r{rank}" for rank in range(len(sent))]
    width = max(len(names[-1]), len(str(sent.max()))) + 2
    lines = [" " * 8 + "".join(f"{name:>{width}}" for name in ["to " + names[0], *names[1:]])]
    for name, row in zip(names, sent.tolist(), strict=True):
        lines.append(f"from {name:<3}" + "".join(f"{x or '·':>{width}}" for x in row))
    return "\n".join(lines)


def _moves(front: Front, most: int) -> str:
    """The moves of a front; those into one slot as one fold."""
    key = np.stack((front.dst_buf, front.dst_rank, front.dst_chunk, front.count))
    _, first, slot = np.unique(key, axis=1, return_index=True, return_inverse=True)
    starts = np.sort(first)
    said = [_fold(front, np.flatnonzero(slot == slot[start]), most) for start in starts[:most]]
    return "   ".join(said + _more(len(starts) - most))


def _fold(front: Front, rows: npt.NDArray[np.int64], most: int) -> str:
    """`r1.out[0] += r0 + r2`."""
    dst, sign, _ = front.describe(int(rows[0])).split()
    sources = []
    for row in rows[:most]:
        rank, slot = front.describe(int(row)).split()[2].split(".")
        sources.append(rank if dst.endswith(f".{slot}") else f"{rank}.{slot}")
    return f"{dst} {sign} {' + '.join(sources + _more(len(rows) - most))}"


def _more(count: int) -> list[str]:
    return [f"… {count} more"] if count > 0 else []
