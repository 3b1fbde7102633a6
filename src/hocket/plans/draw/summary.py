"""What the steps of a plan do, in words, one line for all that do the same: for more ranks than a picture has room for.

>>> print(summary(plan("all_reduce", "ring", 1000)))
steps     messages  from → to                   chunks each, of 1000
0-998         1000  r → r+1                     1, folded
999-1997      1000  r → r+1                     1, copied
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import numpy.typing as npt

from ..check import look
from ..plan import Plan
from .scene import Crossing, crossings

Ranks = npt.NDArray[np.int64]


def summary(plan: Plan) -> str:
    """A table of what each step sends, where to, and what becomes of it. Raises PlanError for a plan that names what is
    not there."""
    look(plan)
    said = [_said(crossing, plan.size) for crossing in crossings(plan)]
    lines, step = [("steps", "messages", "from → to", f"chunks each, of {plan.chunks}")], 0
    for words, those in groupby(said):
        last = step + sum(1 for _ in those) - 1
        lines.append((str(step) if step == last else f"{step}-{last}", *words))
        step = last + 1
    return "\n".join(f"{steps:<9} {messages:>8}  {way:<26}  {what}" for steps, messages, way, what in lines)


def _said(crossing: Crossing, size: int) -> tuple[str, str, str]:
    """How many messages, from where to where, and what they carry."""
    if not len(crossing.source):
        return "0", "each rank within itself", ""
    pairs, chunks = np.unique(crossing.source * size + crossing.target, return_counts=True)
    least, most = int(chunks.min()), int(chunks.max())
    folded = "folded" if crossing.folds.all() else "partly folded" if crossing.folds.any() else "copied"
    return str(len(pairs)), _way(pairs // size, pairs % size, size), f"{_range(least, most)}, {folded}"


def _way(source: Ranks, target: Ranks, size: int) -> str:
    """The rule behind the pairs, where there is a simple one."""
    if len(source) == 1:
        return f"r{source[0]} → r{target[0]}"
    if len(source) == size * (size - 1):
        return "all → all"
    for many, one, words in ((target, source, "r{} → {} ranks"), (source, target, "{1} ranks → r{0}")):
        if (one == one[0]).all():
            return words.format(one[0], len(many))
    flips = np.unique(source ^ target)
    if len(flips) == 1 and len(source) == size:
        return f"r ↔ r xor {flips[0]}"
    hops = [hop if 2 * hop <= size else hop - size for hop in np.unique((target - source) % size).tolist()]
    some = "" if len(np.unique(source)) == size else f" of {len(np.unique(source))} ranks"
    if len(hops) <= 3:
        return f"r → {', '.join(f'r{hop:+}' for hop in sorted(hops, key=abs))}{some}"
    sent, got = (np.unique(ranks, return_counts=True)[1] for ranks in (source, target))
    return f"each to {_range(sent.min(), sent.max())}, from {_range(got.min(), got.max())}{some}"


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}-{most}"
