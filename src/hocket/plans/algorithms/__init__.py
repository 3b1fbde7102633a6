"""All algorithms there are, in one table, and `plan`, which makes a plan of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache, partial
from inspect import signature
from typing import TypeAlias

import numpy as np

from ...deadline import Deadline
from ...errors import PlanError
from ..collectives import find
from ..plan import INP, OUT, Front, Kept, Plan, Steps, extent, no_steps, walk
from . import (
    binomial_tree,
    brent_kung,
    bruck,
    chain,
    circulant,
    direct,
    dissemination,
    double_binary_tree,
    hierarchical,
    hierarchical_chain,
    hillis_steele,
    naive,
    one_shot,
    pairwise,
    recursive_doubling,
    recursive_halving,
    ring,
    scatter_all_gather,
    torus,
    two_shot,
)
from .combine import onto
from .lanes import Places

Algorithm: TypeAlias = "Callable[..., Steps]"
Meaning: TypeAlias = "tuple[dict[tuple[str, str], Algorithm], tuple[str, str], Algorithm | None]"

ALGORITHMS: dict[tuple[str, str], Algorithm] = {
    ("all_reduce", "naive"): naive.all_reduce,
    ("all_reduce", "ring"): ring.all_reduce,
    ("all_reduce", "one_shot"): one_shot.all_reduce,
    ("all_reduce", "two_shot"): two_shot.all_reduce,
    ("all_reduce", "binomial_tree"): binomial_tree.all_reduce,
    ("all_reduce", "recursive_doubling"): recursive_doubling.all_reduce,
    ("all_reduce", "recursive_halving"): recursive_halving.all_reduce,
    ("all_reduce", "circulant"): circulant.all_reduce,
    ("all_reduce", "double_binary_tree"): double_binary_tree.all_reduce,
    ("all_reduce", "torus"): torus.all_reduce,
    ("all_reduce", "hierarchical"): hierarchical.all_reduce,
    ("all_reduce", "hierarchical_chain"): hierarchical_chain.all_reduce,
    ("reduce", "direct"): direct.reduce,
    ("reduce", "binomial_tree"): binomial_tree.reduce,
    ("reduce", "recursive_halving"): recursive_halving.reduce,
    ("reduce", "double_binary_tree"): double_binary_tree.reduce,
    ("reduce", "hierarchical_chain"): hierarchical_chain.reduce,
    ("broadcast", "direct"): direct.broadcast,
    ("broadcast", "binomial_tree"): binomial_tree.broadcast,
    ("broadcast", "double_binary_tree"): double_binary_tree.broadcast,
    ("broadcast", "scatter_all_gather"): scatter_all_gather.broadcast,
    ("broadcast", "hierarchical"): hierarchical.broadcast,
    ("scatter", "direct"): direct.scatter,
    ("scatter", "binomial_tree"): binomial_tree.scatter,
    ("gather", "direct"): direct.gather,
    ("gather", "binomial_tree"): binomial_tree.gather,
    ("all_gather", "direct"): direct.all_gather,
    ("all_gather", "ring"): ring.all_gather,
    ("all_gather", "circulant"): circulant.all_gather,
    ("all_gather", "bruck"): bruck.all_gather,
    ("all_gather", "torus"): torus.all_gather,
    ("all_gather", "hierarchical"): hierarchical.all_gather,
    ("reduce_scatter", "direct"): direct.reduce_scatter,
    ("reduce_scatter", "ring"): ring.reduce_scatter,
    ("reduce_scatter", "recursive_halving"): recursive_halving.reduce_scatter,
    ("reduce_scatter", "circulant"): circulant.reduce_scatter,
    ("reduce_scatter", "torus"): torus.reduce_scatter,
    ("reduce_scatter", "hierarchical"): hierarchical.reduce_scatter,
    ("scan", "direct"): direct.scan,
    ("scan", "chain"): chain.scan,
    ("scan", "hillis_steele"): hillis_steele.scan,
    ("scan", "brent_kung"): brent_kung.scan,
    ("exscan", "direct"): direct.exscan,
    ("exscan", "chain"): chain.exscan,
    ("exscan", "hillis_steele"): hillis_steele.exscan,
    ("exscan", "brent_kung"): brent_kung.exscan,
    ("all_to_all", "direct"): direct.all_to_all,
    ("all_to_all", "pairwise"): pairwise.all_to_all,
    ("all_to_all", "bruck"): bruck.all_to_all,
    ("barrier", "direct"): direct.spread,
    ("barrier", "dissemination"): dissemination.barrier,
    ("barrier", "hierarchical"): hierarchical.barrier,
}


def plan(collective: str, algorithm: str | Algorithm | Plan, size: int, root: int = 0, places: Places = None) -> Plan:
    """The plan of `algorithm`, a name or a function of your own, for `collective` over `size` ranks. A plan is itself.

    An algorithm is a function of the number of ranks, for root 0; for other roots the ranks are renamed. Only the
    algorithms of `reduce` take the root themselves: renaming would change the order of the operands. One that has a
    parameter `places` is told where the ranks lie: `places[r]` is the number of rank r's host, or cache domain.

    Raises ValueError for an unknown name, for a size below 1, for a root that is no rank or not 0 without need, and for
    a plan of something else.
    """
    if isinstance(algorithm, Plan):
        return same(algorithm, collective, size, root)
    name, function = resolve(collective, algorithm, places, root)
    make_it = streamed if is_hashable(function) else streamed.__wrapped__
    return make_it(collective, name, function, size, root)


def same(made: Plan, collective: str, size: int, root: int) -> Plan:
    """That plan. Raises ValueError where it is one for something else."""
    if (made.collective, made.size, made.root) != (find(collective).name, size, root):
        raise ValueError(f"{made!r} is none for {collective} over {size} ranks, root {root}")
    return made


def meaning(collective: str, algorithm: object) -> Meaning | None:
    """What the name of an algorithm stands for now, to be looked up again: the table, the key in it, and what is there.
    None for what is no name."""
    if not isinstance(algorithm, str):
        return None
    key = collective, str(algorithm)
    return ALGORITHMS, key, ALGORITHMS.get(key)


def is_hashable(function: object) -> bool:
    """Whether what is made of it can be found again: not for a callable object that says no."""
    try:
        hash(function)
    except TypeError:
        return False
    return True


def resolve(collective: str, algorithm: str | Algorithm, places: Places = None, root: int = 0) -> tuple[str, Algorithm]:
    """The name of an algorithm and the function that stands for it now, where ranks lie as `places` tells. Raises
    ValueError for an unknown name."""
    spec = find(collective)
    name = algorithm if isinstance(algorithm, str) else name_of(algorithm)
    function = ALGORITHMS.get((collective, algorithm)) if isinstance(algorithm, str) else algorithm
    if function is None:
        raise ValueError(f"{collective} has no algorithm {algorithm!r}; it has {', '.join(names(collective))}")
    if places is None:
        return name, function
    first = root if spec.rooted and not spec.reduces else 0  # ranks are renamed: this one is rank 0 to it
    return name, (_placed if is_hashable(function) else _placed.__wrapped__)(function, places, first)


@lru_cache(maxsize=256)
def _placed(function: Algorithm, places: tuple[int, ...], first: int) -> Algorithm:
    """The same, which knows where the ranks from `first` on lie, if it asks. One and the same for equal questions."""
    with suppress(TypeError, ValueError):  # of a callable that has no signature
        if "places" in signature(function).parameters:
            return partial(function, places=(*places[first:], *places[:first]))
    return function


def name_of(function: Algorithm) -> str:
    """What a function of one's own is called; of a partial and of a callable object, too."""
    if not callable(function):
        raise TypeError(f"algorithm is a name, a Plan or a function of the number of ranks, not {function!r}")
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def make(
    collective: str, name: str, function: Algorithm, size: int, root: int, deadline: Deadline | None = None
) -> Plan:
    """The plan with its steps made once and stored, however often they are then asked for."""
    source = _source(collective, name, function, size, root)
    steps = Kept.of(source, f"{collective} {name} over {size} ranks", deadline)
    return Plan(collective, name, size, root, _chunks(collective, steps, size), lambda: steps)


@lru_cache(maxsize=256)
def streamed(collective: str, name: str, function: Algorithm, size: int, root: int) -> Plan:
    """The plan whose steps are made anew each time."""
    source = _source(collective, name, function, size, root)
    steps = walk(source(), f"{collective} {name} over {size} ranks", lazily=True)
    return Plan(collective, name, size, root, _chunks(collective, steps, size), source)


def _source(collective: str, name: str, function: Algorithm, size: int, root: int) -> Callable[[], Steps]:
    spec = find(collective)
    if size < 1 or not 0 <= root < size or (root and not spec.rooted):
        raise ValueError(f"{collective} cannot be over {size} ranks with root {root}")
    to, whose = (np.arange(size) + root) % size, f"{collective} {name} over {size} ranks"

    def source() -> Steps:
        if root == 0:
            return _asked(function, whose, size)
        if spec.reduces:
            return _asked(function, whose, size, root)
        return onto(_asked(function, whose, size), to, to if spec.blocks else None)

    return source


def _asked(function: Algorithm, whose: str, *arguments: int) -> Steps:
    """The steps of an algorithm. Raises PlanError where it is no function of its arguments, or gives none."""
    try:
        steps = function(*arguments)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # in the function, and not in the call of it
        asked = "the number of ranks" if len(arguments) == 1 else "the number of ranks and the root"
        raise PlanError(f"{whose}: the algorithm is not a function of {asked}{_home(function)}: {error}") from None
    if not isinstance(steps, Iterable):
        raise no_steps(steps, whose, _home(function))
    return steps


def _home(function: Algorithm) -> str:
    """Where it is written, " (file.py:7)", if that can be known."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def _chunks(collective: str, fronts: Iterable[Front], size: int) -> int:
    """As many as the steps name, and where ranks own blocks at least one for each."""
    return max(extent(fronts, (INP, OUT)), size if find(collective).blocks else 1)


def names(collective: str) -> list[str]:
    """The algorithms of `collective`."""
    return [name for of, name in ALGORITHMS if of == collective]
