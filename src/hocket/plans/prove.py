"""The one way in which a plan comes to be executed: made once, proved, and kept.

`proved` is asked for every call that is prepared, and answers what it has proved before in about a microsecond. It goes
by the function that a name stands for at that moment, so that a change of `ALGORITHMS` is seen, and proved like the
first. What is executed is what was proved: the steps are stored, and the algorithm is never asked again.

To make and prove a plan the first time takes each rank, in milliseconds on one core that others use too:

    ranks                      2     4     8    16    64         (least and most of all shipped algorithms)
    of one step or two       1-3   1-3   1-4   1-4  2-19
    trees and the like       1-4   1-4   2-4   2-4   2-7
    rings and pairwise       1-2   1-3   2-5   2-8  9-36

    python -m timeit -u msec -s "from hocket.plans.algorithms import ALGORITHMS as a, make; from hocket.plans.check \\
        import check" "check(make('all_reduce', 'ring', a['all_reduce', 'ring'], 16, 0))"
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..deadline import Deadline
from .algorithms import Algorithm, is_hashable, make, resolve, same
from .algorithms.lanes import Places
from .check import Facts, check
from .plan import Plan


class Proved(NamedTuple):
    """A plan that keeps its collective's promise, its steps stored, and what is true of it."""

    plan: Plan
    facts: Facts


def proved(
    collective: str,
    algorithm: str | Algorithm | Plan,
    size: int,
    root: int = 0,
    deadline: Deadline | None = None,
    places: Places = None,
) -> Proved:
    """The plan of `algorithm`: a name, a function of the number of ranks, or a plan. `places[r]` is the number of rank
    r's host, for those that ask.

    Raises PlanError for a plan that breaks its promise; ValueError for an unknown name, a root that is no rank and a
    plan for something else; CollectiveTimeout where the deadline passes while the algorithm makes its steps.
    """
    if isinstance(algorithm, Plan):
        return _proved(same(algorithm, collective, size, root).keep(deadline))
    name, function = resolve(collective, algorithm, places, root)
    place = _place(collective, name, function, size, root) if is_hashable(function) else []
    if not place:
        place.append(_proved(make(collective, name, function, size, root, deadline)))
    return place[0]


@lru_cache(maxsize=256)
def _place(collective: str, name: str, function: Algorithm, size: int, root: int) -> list[Proved]:
    """Where it is kept, once somebody has proved it. So the cache is functools', which threads and forks do not harm,
    and the deadline is no part of the question."""
    return []


@lru_cache(maxsize=256)
def _proved(plan: Plan) -> Proved:
    """By what it moves: equal plans are proved once."""
    return Proved(plan, check(plan))
