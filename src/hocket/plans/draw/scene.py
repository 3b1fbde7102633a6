"""What a picture shows of a plan: step by step, who sends which chunks to whom, and what becomes of them there.

What a rank moves within its own memory is no message, and is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...words import spans
from ..check import look
from ..plan import REDUCE, Column, Plan

MOST_MESSAGES = 4096  # arrows that a picture can hold so that a reader still has something of it


class Message(NamedTuple):
    """All that one rank sends to one other in one step: what is folded there is one, what is copied another."""

    source: int
    target: int
    folds: bool
    chunks: tuple[int, ...]  # of the vector, sorted; in all_to_all those of the sender's vector that they once were


class Scene(NamedTuple):
    """A plan as its messages, step by step."""

    plan: Plan
    steps: tuple[tuple[Message, ...], ...]

    @property
    def messages(self) -> int:
        """In all steps together."""
        return sum(map(len, self.steps))

    def said(self, chunks: tuple[int, ...]) -> str:
        """`0-3, 6`; `all` of several."""
        return "all" if len(chunks) == self.plan.chunks > 1 else spans(chunks)


class Crossing(NamedTuple):
    """What goes from rank to rank in one step, chunk by chunk: four columns of equal length."""

    source: Column
    target: Column
    folds: Column
    chunk: Column


def scene(plan: Plan, most: int = MOST_MESSAGES) -> Scene:
    """The messages of a plan.

    Raises PlanError for a plan that names what is not there, and ValueError where it has more than `most` messages.
    """
    look(plan)
    steps, drawn = list[tuple[Message, ...]](), 0
    for crossing in crossings(plan):
        steps.append(_messages(crossing))
        drawn += len(steps[-1])
        if drawn > most:
            raise ValueError(
                f"{plan.collective} {plan.algorithm} over {plan.size} ranks has more than the {most} messages that a "
                f"picture can hold; draw it over fewer, such as -n 8"
            )
    return Scene(plan, tuple(steps))


def crossings(plan: Plan) -> Iterator[Crossing]:
    """The steps of a plan that `look` has passed, each as what crosses from rank to rank. A chunk is followed through
    the buffers: it keeps the number that it has in the vector, also where it waits in tmp."""
    n, chunks, tmp = plan.size, plan.chunks, plan.tmp_chunks
    base, width = np.array([0, n * chunks, 2 * n * chunks]), np.array([chunks, chunks, tmp])
    held = np.concatenate([np.tile(np.arange(chunks), 2 * n), np.tile(np.arange(tmp) % chunks, n)])
    for front in plan.fronts():
        _, f = front.singles()
        dst = base[f.dst_buf] + f.dst_rank * width[f.dst_buf] + f.dst_chunk
        src = base[f.src_buf] + f.src_rank * width[f.src_buf] + f.src_chunk
        came = held[src]
        held[dst] = came
        folds = np.isin(dst, dst[f.verb == REDUCE])  # with the copy that such a fold begins with
        crosses = f.src_rank != f.dst_rank
        yield Crossing(*(column[crosses] for column in (f.src_rank, f.dst_rank, folds, came)))


def _messages(crossing: Crossing) -> tuple[Message, ...]:
    found: dict[tuple[int, int, bool], set[int]] = {}
    for source, target, folds, chunk in zip(*(column.tolist() for column in crossing), strict=True):
        found.setdefault((source, target, folds), set()).add(chunk)
    return tuple(Message(*key, tuple(sorted(chunks))) for key, chunks in sorted(found.items()))
