"""Plans as one page that plays them: chunks that move and are summed, step by step, beside one another.

The page carries the moves, and what each rank begins with. What it shows after a step it computes itself
(`web/play.js`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from ..check import look
from ..collectives import FOLD, NOBODY, layout
from ..count import count
from ..plan import INP, Plan

Values = npt.NDArray[np.int64]

MOST_RANKS, MOST_CHUNKS, MOST_MOVES = 16, 64, 20_000


def page(plans: Sequence[Plan]) -> str:
    """The page, as the text of a file that needs no other.

    Raises PlanError for a plan that names what is not there, and ValueError for one that is more than a page can show.
    """

    def part(name: str) -> str:
        return files(__package__).joinpath("web", name).read_text(encoding="utf-8")

    base = 10 if all(plan.chunks <= 10 for plan in plans) else 100
    data = json.dumps([playable(plan, base) for plan in plans], separators=(",", ":")).replace("<", "\\u003c")
    parts = {"title": escape(_title(plans)), "plans.json": data}
    return re.sub(r"{{([\w.]+)}}", lambda found: parts.get(found[1]) or part(found[1]), part("page.html"))


def _title(plans: Sequence[Plan]) -> str:
    """What all have in common, then what they differ in: `all_reduce over 8 ranks: ring, two_shot`."""
    (collective, size), *others = dict.fromkeys((plan.collective, plan.size) for plan in plans)
    if others:
        return ", ".join(f"{plan.collective} {plan.algorithm}" for plan in plans)
    return f"{collective} over {size} rank{'s' * (size > 1)}: {', '.join(plan.algorithm for plan in plans)}"


def playable(plan: Plan, base: int = 10) -> dict[str, Any]:
    """What the page knows of a plan, for JSON: its counts and moves, and three tables [size][chunks] of integers, null
    where there is nothing: what ranks give, what their outputs begin as, and what they are to get. Raises as `page`."""
    look(plan)
    steps = [np.stack(front.columns(), axis=1).tolist() for front in plan.fronts()]
    moves = sum(move[-1] for step in steps for move in step)
    for number, most, what in (
        (plan.size, MOST_RANKS, "ranks"),
        (max(plan.chunks, plan.tmp_chunks), MOST_CHUNKS, "chunks"),
        (moves, MOST_MOVES, "moves"),
    ):
        if number > most:
            raise ValueError(
                f"a page has room for {most} {what}, and {plan.collective} {plan.algorithm} over {plan.size} ranks has "
                f"{number}; play it over fewer ranks, such as -n 8"
            )
    promise, costs, given = layout(plan.collective, plan.size, plan.chunks, plan.root), count(plan), begin(plan, base)
    return {
        "collective": plan.collective,
        "algorithm": plan.algorithm,
        "size": plan.size,
        "root": plan.root,
        "chunks": plan.chunks,
        "rounds": costs.rounds,
        "messages": costs.messages,
        "base": base,
        "bytes": float(costs.bytes_per_rank),
        "shows_inp": any(move[4] == INP for step in steps for move in step),
        "inp": _shown(given, promise.inp),
        "out": _shown(given, promise.seed),
        "want": _shown(_wanted(plan, given), promise.rank != NOBODY),
        "steps": steps,
    }


def begin(plan: Plan, base: int = 10) -> Values:
    """The numbers that the page begins with, [size, chunks]: rank 2's chunk 3 is 33, so that it is known again, or 303
    where ten digits do not tell the chunks."""
    return base * (np.arange(plan.size)[:, None] + 1) + np.arange(plan.chunks)


def _wanted(plan: Plan, given: Values) -> Values:
    """What every slot of the output is to be, when a reduction is a sum."""
    promise = layout(plan.collective, plan.size, plan.chunks, plan.root)
    sums = np.concatenate([np.zeros_like(given[:1]), np.cumsum(given, axis=0)])
    rank, chunk = np.maximum(promise.rank, 0), promise.chunk
    return np.where(promise.rank == FOLD, sums[promise.ranks, chunk], given[rank, chunk])


def _shown(values: Values, there: npt.NDArray[np.bool_]) -> list[list[int | None]]:
    rows = zip(values.tolist(), there.tolist(), strict=True)
    return [[value if shown else None for value, shown in zip(*row, strict=True)] for row in rows]
