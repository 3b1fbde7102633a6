from functools import lru_cache
from typing import Any, NamedTuple

from .algorithms import plan
from .check import Facts, check
from .plan import Plan


class Proved(NamedTuple):
    plan: Plan
    facts: Facts


@lru_cache(maxsize=256)
def _facts(plan: Plan) -> Facts:
    return check(plan)


def proved(collective: str, algorithm: Any, size: int, root: int = 0, deadline: Any = None) -> Proved:
    made = algorithm if isinstance(algorithm, Plan) else plan(collective, algorithm, size, root)
    return Proved(made, _facts(made))
