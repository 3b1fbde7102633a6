"""What is looked at: spreads that are written down, in a fixed order, and the plans that they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, permutations, product

from ..plans.algorithms import make
from ..plans.algorithms.combine import onto
from ..plans.plan import Plan, Steps
from . import collectives
from .collectives import between, exchange, pipelined, reduce_scatter, reduce_to_root, spread_out
from .distances import Apart, nearest_first, tour
from .spreads import Spread, along, dealt, grid, heap, hops, in_order, knomial, named, split

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
FOUND = "found"  # what each is called
ROOTED = ("broadcast", "reduce")
ROOTS = 8  # of trees, where any rank may be it
GRIDS = 64


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan that may be good. `code` is the Python that makes its steps, of the words that stand in this room."""

    collective: str
    size: int
    title: str
    code: str
    steps: Callable[[], Steps]
    up: Spread | None = None  # of what spreads it consists, where it does
    down: Spread | None = None
    segments: int = 1

    @property
    def shape(self) -> str:
        """What it is called in whatever order of ranks and number of segments."""
        return re.sub(r", ranks in (the order [\d ]+\d|another order)|; in \d+ segments", "", self.title)

    def plan(self) -> Plan:
        """Its steps made once and stored."""
        return make(self.collective, FOUND, lambda _: self.steps(), self.size, 0)

    def in_segments(self, segments: int) -> Candidate:
        """The same with its chunks cut, which has not been cut yet."""
        title, code = f"{self.title}; in {segments} segments", f"pipelined({self.code}, {segments})"
        return replace(self, title=title, code=code, steps=lambda: pipelined(self.steps(), segments), segments=segments)


def of(collective: str, up: Spread, down: Spread) -> Candidate:
    """The plan that these make, of which all but an all-reduce only looks at one."""
    n = up.size
    if collective == "all_reduce":
        title = up.title if up.code == down.code else f"up: {up.title}; down: {down.title}"
        code = f"all_reduce({up.code}, {down.code})"
        return Candidate(collective, n, title, code, lambda: collectives.all_reduce(up, down), up, down)
    if collective in ("all_gather", "broadcast"):
        return Candidate(collective, n, down.title, f"spread_out({down.code})", lambda: spread_out(down), None, down)
    function = reduce_scatter if collective == "reduce_scatter" else reduce_to_root
    return Candidate(collective, n, up.title, f"{function.__name__}({up.code})", lambda: function(up), up, None)


def spreads(collective: str, n: int, took: Apart) -> Iterator[Spread]:
    """What collectives may be made of, simple ones first. Of trees only those from rank 0 have it as their root."""
    round_tour = tour(took)
    if collective not in ROOTED:
        yield from _in_blocks(n, round_tour)
    if collective == "all_reduce":
        for root in _spaced(n, ROOTS):
            yield from _trees(n, took, root, round_tour)
        yield from _two_trees(n, round_tour)
    if collective in ROOTED:
        yield from _trees(n, took, 0, round_tour)
        for block in islice(_in_blocks(n, round_tour), GRIDS):
            yield dealt(block)


def exchanges(n: int, took: Apart) -> Iterator[Candidate]:
    """All-reduces in which everyone sums for itself."""
    orders = list(_orders(n, tour(took)))
    for sides in [(n,), *factorisations(n)]:
        for order in permutations(range(len(sides))):
            for ranks in orders:
                text = "x".join(map(str, sides))
                title = f"exchange {text}" + (f", dimensions {' '.join(map(str, order))}" if len(order) > 1 else "")
                code = f"exchange({list(sides)}, {list(order)})"
                if ranks != list(range(n)):
                    title += in_order(ranks)
                    code = f"onto({code}, {ranks})"
                yield Candidate("all_reduce", n, title, code, _exchange(sides, order, ranks))


def betweens(n: int) -> Iterator[Candidate]:
    """All-reduces within groups of neighbours, and one exchange between the groups."""
    for groups, size in (sides for sides in factorisations(n) if len(sides) == 2):
        kinds = [*_circles(size), *islice(_grids(size), 8)]
        for up, down in [(kind, kind) for kind in kinds] + list(permutations(kinds[:3], 2)):
            inside = up.title if up is down else f"up: {up.title}; down: {down.title}"
            title = f"{groups} groups of {size} ({inside}), exchange between them"
            code = f"between({groups}, {up.code}, {down.code})"
            yield Candidate("all_reduce", n, title, code, _between(groups, up, down))


def _between(groups: int, up: Spread, down: Spread) -> Callable[[], Steps]:
    return lambda: between(groups, up, down)


def renamed(candidate: Candidate, ranks: list[int]) -> Candidate:
    """The same with rank r called `ranks[r]`, and cut in as many segments."""
    up, down = candidate.up or candidate.down, candidate.down or candidate.up
    if up is not None and down is not None:
        made = of(candidate.collective, named(up, ranks), named(down, ranks))
        return made if candidate.segments == 1 else made.in_segments(candidate.segments)
    title, steps = candidate.title + in_order(ranks), candidate.steps
    return replace(candidate, title=title, code=f"onto({candidate.code}, {ranks})", steps=lambda: onto(steps(), ranks))


def _exchange(sides: Sequence[int], order: Sequence[int], ranks: list[int]) -> Callable[[], Steps]:
    return lambda: onto(exchange(sides, order), ranks)


def factorisations(n: int) -> list[tuple[int, ...]]:
    """All ways in which n is a product of two to four numbers above 1, in every order; the fewest first."""
    found = [t for k in (2, 3, 4) for t in _products(n, k)]
    return found[:GRIDS]


def _products(n: int, k: int) -> Iterator[tuple[int, ...]]:
    if k == 1:
        yield (n,)
        return
    for a in range(2, n):
        if n % a == 0 and n // a >= 2 ** (k - 1):
            yield from ((a, *rest) for rest in _products(n // a, k - 1))


def _in_blocks(n: int, round_tour: list[int]) -> Iterator[Spread]:
    for spread in _circles(n):
        yield from (named(spread, ranks) for ranks in _orders(n, round_tour))
    ring = hops(n, [[-1]] * (n - 1))
    back = hops(n, [[1]] * (n - 1))
    if n > 2:
        yield from (split(named(ring, ranks), named(back, ranks)) for ranks in _orders(n, round_tour))
    yield from islice(_grids(n), 4 * GRIDS)


def _orders(n: int, round_tour: list[int]) -> Iterator[list[int]]:
    yield list(range(n))
    if round_tour != list(range(n)):
        yield round_tour


def _circles(n: int) -> Iterator[Spread]:
    """Those that look the same from every rank, each once."""
    seen = set[str]()
    ring = [[-1]] * (n - 1)
    both = [[-1, 1]] * (n // 2)
    halves = list[list[int]]()
    m = n
    while m > 1:
        halves.append([(m + 1) // 2])
        m = (m + 1) // 2
    radices = [_radix(n, k) for k in (2, 3, 4, 5)]
    for rounds in (ring, [list(range(1, n))], both, *radices, halves[::-1]):
        key = str([sorted({h % n for h in each}) for each in rounds])
        if key not in seen and rounds:
            seen.add(key)
            yield hops(n, rounds)


def _radix(n: int, k: int) -> list[list[int]]:
    rounds, near = list[list[int]](), 1
    while near < n:
        rounds.append([near * j for j in range(1, k) if near * j < n])
        near *= k
    return rounds


def _grids(n: int) -> Iterator[Spread]:
    for sides in factorisations(n):
        kinds = [list(islice(_circles(side), 4)) for side in sides]
        orders = list(permutations(range(len(sides)))) if len(sides) < 4 else [(0, 1, 2, 3), (3, 2, 1, 0)]
        same = list(zip(*([*kind, kind[-1], kind[-1], kind[-1]][:4] for kind in kinds), strict=True))
        mixed = chain(same, (each for each in product(*kinds) if each not in same))
        for parts in dict.fromkeys(islice(mixed, 8)):
            each = [grid(parts, order) for order in orders]
            yield from each
            if len(sides) < 4:
                yield split(*(grid(parts, [*range(k, len(sides)), *range(k)]) for k in range(len(sides))))


def _spaced(n: int, most: int) -> list[int]:
    return list(range(n)) if n <= most else [k * n // most for k in range(most)]


def _trees(n: int, took: Apart, root: int, round_tour: list[int]) -> Iterator[Spread]:
    at = round_tour.index(root)
    ways = [[(root + k) % n for k in range(n)], round_tour[at:] + round_tour[:at]]
    for tree in (knomial(n, 2), knomial(n, 3), knomial(n, 4), knomial(n, n), heap(n, 1), heap(n, 2), heap(n, 3)):
        yield from (named(tree, ranks) for ranks in (ways if ways[0] != ways[1] else ways[:1]))
    with suppress(ValueError):  # where there is no way
        yield along(n, nearest_first(took, root))


def _two_trees(n: int, round_tour: list[int]) -> Iterator[Spread]:
    """Two trees at once, each for half of the vector, the inner ranks of one being leaves of the other."""
    for tree in (heap(n, 1), heap(n, 2), knomial(n, 2)):
        for ranks in _orders(n, round_tour):
            yield split(named(tree, ranks), named(tree, ranks[::-1]))
