"""All-gathers that nobody wrote: found by going through what ranks could send to each other, step by step.

`symmetric` looks at all-gathers that look the same from every rank: a state is the set of distances at which a rank has
the blocks, and a round a few hops. The cheapest ways through these states, by what each round takes alone on the
cluster, are a shortest path. `greedy` looks at any, a link at a time: in each round ranks are matched, the nearest
first and in a random order, each with one that has a block it lacks.

The first is what SCCL does with a solver (Cai et al., "Synthesizing optimal collective algorithms", PPoPP 2021), here
for all rotations alike; the second what TACOS does (Won et al., "TACOS: topology-aware collective algorithm synthesizer
for distributed machine learning", MICRO 2024).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from itertools import combinations, count

import numpy as np

from .distances import Apart
from .spreads import Spread, hops, steps

SYMMETRIC = 8  # ranks, up to which all distances are looked at
GREEDY = 16

Rounds = list[list[int]]


def symmetric(n: int, cost: Callable[[Spread], float], ports: int = 2, paths: int = 8) -> Iterator[Spread]:
    """The cheapest all-gathers over n ranks by rotation, with up to `ports` messages of a rank in a round. `cost` is
    what one round takes, as a spread of which most ranks have not got all in the end."""
    every, numbers = frozenset(range(n)), count()
    rounds = [each for k in range(1, ports + 1) for each in combinations(range(1, n), k)]
    costs: dict[tuple[frozenset[int], tuple[int, ...]], float] = {}
    found = dict[frozenset[int], int]()
    queue: list[tuple[float, int, frozenset[int], Rounds]] = [(0.0, next(numbers), frozenset({0}), [])]
    while queue and found.get(every, 0) < paths:
        spent, _, has, so_far = heapq.heappop(queue)
        if found.get(has, 0) >= paths:
            continue
        found[has] = found.get(has, 0) + 1
        if has == every:
            yield hops(n, [[h - n if 2 * h > n else h for h in each] for each in so_far])
            continue
        for each in rounds:
            then = has | {(d + h) % n for d in has for h in each}
            if then == has:
                continue
            if (has, each) not in costs:
                whole = hops(n, [*so_far, list(each)])
                last = Spread(n, whole.owner, whole.steps[-1:], "", "")
                costs[has, each] = cost(last)
            if costs[has, each] < math.inf:
                heapq.heappush(queue, (spent + costs[has, each], next(numbers), then, [*so_far, list(each)]))


def greedy(took: Apart, ways: float, blocks: int, rng: random.Random) -> Spread | None:
    """An all-gather in which messages go only between ranks that are at most `ways` seconds apart, up to so many blocks
    in each, and each rank sends one and gets one in a round. None where some rank cannot be reached so."""
    n, r = len(took), range(len(took))
    has, rounds = np.eye(n, dtype=bool), list[list[tuple[int, int, int]]]()
    near = {b: [a for a in r if a != b and took[a, b] <= ways] for b in r}
    while not has.all():
        lacking = [b for b in r if not has[b].all()]
        rng.shuffle(lacking)
        free, now = set(r), list[tuple[int, int, int]]()
        for b in lacking:
            able = [a for a in near[b] if a in free and (has[a] & ~has[b]).any()]
            if not able:
                continue
            a = min(able, key=lambda a: (took[a, b], rng.random()))
            new = np.flatnonzero(has[a] & ~has[b]).tolist()
            new.sort(key=lambda c: (has[:, c].sum(), rng.random()))  # those that fewest have first
            now += [(a, b, c) for c in sorted(new[:blocks])]
            free.remove(a)
        if not now:
            return None
        for _, b, c in now:
            has[b, c] = True
        rounds.append(sorted(now))
    return steps(n, rounds)
