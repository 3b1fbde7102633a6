"""All algorithms there are, in one table, and `plan`, which makes a plan of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from ..collectives import find
from ..plan import INP, OUT, Plan, Steps, extent
from . import (
    binomial_tree,
    direct,
    dissemination,
    naive,
    one_shot,
    pairwise,
    recursive_doubling,
    ring,
    scatter_all_gather,
    two_shot,
)
from .combine import fronts, onto

Algorithm: TypeAlias = "Callable[..., Steps]"

ALGORITHMS: dict[tuple[str, str], Algorithm] = {
    ("all_reduce", "naive"): naive.all_reduce,
    ("all_reduce", "ring"): ring.all_reduce,
    ("all_reduce", "one_shot"): one_shot.all_reduce,
    ("all_reduce", "two_shot"): two_shot.all_reduce,
    ("all_reduce", "binomial_tree"): binomial_tree.all_reduce,
    ("all_reduce", "recursive_doubling"): recursive_doubling.all_reduce,
    ("reduce", "direct"): direct.reduce,
    ("reduce", "binomial_tree"): binomial_tree.reduce,
    ("broadcast", "direct"): direct.broadcast,
    ("broadcast", "binomial_tree"): binomial_tree.broadcast,
    ("broadcast", "scatter_all_gather"): scatter_all_gather.broadcast,
    ("scatter", "direct"): direct.scatter,
    ("scatter", "binomial_tree"): binomial_tree.scatter,
    ("gather", "direct"): direct.gather,
    ("gather", "binomial_tree"): binomial_tree.gather,
    ("all_gather", "direct"): direct.all_gather,
    ("all_gather", "ring"): ring.all_gather,
    ("reduce_scatter", "direct"): direct.reduce_scatter,
    ("reduce_scatter", "ring"): ring.reduce_scatter,
    ("all_to_all", "direct"): direct.all_to_all,
    ("all_to_all", "pairwise"): pairwise.all_to_all,
    ("barrier", "direct"): direct.spread,
    ("barrier", "dissemination"): dissemination.barrier,
}


@lru_cache(maxsize=256)
def plan(collective: str, algorithm: str | Algorithm, size: int, root: int = 0) -> Plan:
    """The plan of `algorithm`, a name or a function of your own, for `collective` over `size` ranks.

    An algorithm is a function of the number of ranks, for root 0; for other roots the ranks are renamed. Only the
    algorithms of `reduce` take the root themselves: renaming would change the order of the operands.

    Raises ValueError for an unknown name, for a size below 1, and for a root that is no rank or not 0 without need.
    """
    spec = find(collective)
    if isinstance(algorithm, str):
        name, function = algorithm, ALGORITHMS.get((collective, algorithm))
    else:
        name, function = algorithm.__name__, algorithm
    if function is None:
        raise ValueError(f"{collective} has no algorithm {name!r}; it has {', '.join(names(collective))}")
    if size < 1 or not 0 <= root < size or (root and not spec.rooted):
        raise ValueError(f"{collective} cannot be over {size} ranks with root {root}")
    to = (np.arange(size) + root) % size

    def source() -> Steps:
        if root == 0:
            return function(size)
        return function(size, root) if spec.reduces else onto(function(size), to, to if spec.blocks else None)

    chunks = max(extent(fronts(source()), (INP, OUT)), size if spec.blocks else 1)
    return Plan(collective, name, size, root, chunks, source)


def names(collective: str) -> list[str]:
    """The algorithms of `collective`."""
    return [name for of, name in ALGORITHMS if of == collective]
