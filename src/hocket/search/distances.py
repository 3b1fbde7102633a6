"""How far ranks are from each other on a cluster, and orders of them in which neighbours are near."""

from __future__ import annotations

import math
from itertools import permutations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..tuning.cluster import Cluster
from ..tuning.costed import Tariff
from ..tuning.links import Links

Apart: TypeAlias = "npt.NDArray[np.float64]"  # [from, to]: seconds, infinite where there is no way

EXACT = 7  # ranks, up to which every order is looked at
TURNED = 64  # up to which parts are turned round, so many times at the most
ROUNDS = 16


def apart(cluster: Cluster, nbytes: float) -> Apart:
    """What one message of so many bytes takes from each rank to each other, with nothing else under way: until it is
    taken and folded. Float64 of shape [ranks, ranks], 0 from a rank to itself."""
    n, links = cluster.ranks, Links(cluster)
    tariff = Tariff.of(links, max(nbytes, 1.0))
    took = np.zeros((n, n))
    for src in range(n):
        others = np.delete(np.arange(n), src)
        took[src, others] = _from(tariff, src, others)
    return took


def _from(tariff: Tariff, src: int, others: npt.NDArray[np.int64]) -> Apart:
    """From `src` to each of the others: of all at once, and of halves of them where to one there is no way."""
    try:
        return _alone(tariff, np.full(len(others), src), others)
    except ValueError:
        if len(others) == 1:
            return np.array([math.inf])
        return np.concatenate([_from(tariff, src, half) for half in np.array_split(others, 2)])


def _alone(tariff: Tariff, src: npt.NDArray[np.int64], dst: npt.NDArray[np.int64]) -> Apart:
    latency, message, link = tariff.links.paths(src, dst)
    longest, chunks = np.zeros(len(src)), np.ones(len(src))
    np.maximum.at(longest, message, tariff.alone(link, chunks[message] * tariff.chunk))
    return np.asarray(latency + longest + tariff.send[src] + tariff.receive[dst] + tariff.folds(dst, chunks))


def tour(took: Apart) -> list[int]:
    """An order of all ranks, from rank 0 on, round which a ring's longest hop is shortest, and of those the shortest
    altogether: of all where they are few, else nearest neighbour first, and then parts turned round as long as that
    helps (2-opt; Croes, Operations Research 6(6), 1958)."""
    n = len(took)
    if n <= EXACT:
        return min(([0, *rest] for rest in permutations(range(1, n))), key=lambda order: _length(took, order))
    order, left = [0], set(range(1, n))
    while left:
        order.append(min(sorted(left), key=lambda rank: took[order[-1], rank]))
        left.remove(order[-1])
    best, rounds = _length(took, order), 0
    improved = n <= TURNED
    while improved and rounds < ROUNDS:
        improved, rounds = False, rounds + 1
        for i in range(1, n - 1):
            for j in range(i + 1, n):
                turned = order[:i] + order[i : j + 1][::-1] + order[j + 1 :]
                if (length := _length(took, turned)) < best:
                    order, best, improved = turned, length, True
    return order


def _length(took: Apart, order: list[int]) -> tuple[float, float]:
    each = took[order, order[1:] + order[:1]]
    return float(each.max()), float(each.sum())


def nearest_first(took: Apart, root: int) -> list[tuple[int, int]]:
    """From whom each other rank hears of the root's, and in which order: each time whoever can be done first. (Bhat,
    Raghavendra & Prasanna, "Efficient collective communication in distributed heterogeneous systems", JPDC 63(3), 2003:
    "earliest completing edge first".) Raises ValueError where some rank cannot be reached."""
    n, edges = len(took), list[tuple[int, int]]()
    ready, reached = np.full(n, math.inf), np.arange(n) == root
    ready[root] = 0.0
    for _ in range(n - 1):
        ends = np.where(reached, math.inf, ready[:, None] + took)
        a, b = (int(x) for x in np.unravel_index(np.argmin(ends), ends.shape))
        if ends[a, b] == math.inf:
            raise ValueError(f"there is no way from rank {root} to rank {int(np.argmin(reached))}")
        edges.append((a, b))
        ready[a] = ready[b] = ends[a, b]
        reached[b] = True
    return edges
