"""A spread: how every chunk comes from the rank that owns it to all others. What is searched is made of these.

    hops(4, [[1], [2]])       everyone hears from the rank at distance 1, then from that at 2: an all-gather
    knomial(4, 2)             rank 0's only chunk goes to 1, then from both to 2 and 3: a broadcast

A rank gets each chunk once, from one that has it. So the same backwards, with each copy a fold, sums every chunk at its
owner, each contribution once: a reduce-scatter out of an all-gather, a reduce out of a broadcast, and both, one after
the other, are an all-reduce (`collectives.py`). Ranks lie in rows: in `grid([a, b], ...)` the last dimension is that of
neighbours. Each spread knows the text of Python that makes it (`code`), which is what a saved file holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..plans.plan import Column

Moves: TypeAlias = "tuple[Column, Column, Column]"  # from which rank, to which, which chunk: int64, equally long


@dataclass(frozen=True, eq=False)
class Spread:
    """Over `size` ranks; `owner[c]` has chunk c in the beginning. The steps one after the other."""

    size: int
    owner: Column
    steps: tuple[Moves, ...]
    title: str  # for people
    code: str  # for Python

    @property
    def chunks(self) -> int:
        """How many there are."""
        return len(self.owner)

    @property
    def is_of_blocks(self) -> bool:
        """Each rank owns equally many chunks, the first those of rank 0, and so on."""
        return self.chunks % self.size == 0 and bool(
            (self.owner == np.arange(self.chunks) // (self.chunks // self.size)).all()
        )


def hops(n: int, rounds: Sequence[Sequence[int]]) -> Spread:
    """In each round every rank r hears from ranks r + h, for each h of it, all that it lacks and they have.

    It looks the same from every rank. [[-1]] * (n - 1) is a ring, [[1], [2], [4], ...] Bruck's, [[1, 2, ..., n - 1]]
    the direct algorithm, and [[1, 2], [3, 6]] Bruck's with two messages at a time.
    """
    has, steps, r = {0}, list[Moves](), np.arange(n)  # distances at which a rank has the blocks
    for each in rounds:
        load = dict.fromkeys((h % n for h in each), 0)
        came = list[tuple[int, int]]()
        for d in sorted({(d + h) % n for d in has for h in load} - has):
            best = min((h for h in load if (d - h) % n in has), key=lambda h: load[h])
            load[best] += 1
            came.append((best, d))
        has |= {d for _, d in came}
        if came:
            hop, distance = (np.repeat(np.array(x), n) for x in zip(*came, strict=True))
            to = np.tile(r, len(came))
            steps.append(((to + hop) % n, to, (to + distance) % n))
    lists = [list(each) for each in rounds]
    return Spread(n, r, tuple(steps), _title(n, lists), f"hops({n}, {_text(lists)})")


def grid(parts: Sequence[Spread], order: Sequence[int]) -> Spread:
    """Ranks in a grid, part k among those that differ in dimension k only; dimensions one after the other, in this
    order. Of part k each rank hands on all that it has got in the dimensions before."""
    sides = [part.size for part in parts]
    n, steps, done = math.prod(sides), list[Moves](), list[int]()
    for k in order:
        rest = [i for i in range(len(sides)) if i != k]
        where = np.indices([sides[i] for i in (*rest, *done)]).reshape(len(rest) + len(done), -1)
        for src, dst, chunk in parts[k].steps:
            many = len(src)
            at = {i: np.tile(row, many) for i, row in zip(rest, where, strict=False)}
            of = {**at, **{i: np.tile(row, many) for i, row in zip(done, where[len(rest) :], strict=True)}}
            src, dst, chunk = (np.repeat(x, where.shape[1]) for x in (src, dst, chunk))
            steps.append((_flat({**at, k: src}, sides), _flat({**at, k: dst}, sides), _flat({**of, k: chunk}, sides)))
        done.append(k)
    shape = "x".join(map(str, sides))
    titles = [parts[k].title for k in order]
    inside = titles[0] if len({*titles}) == 1 else "; ".join(titles)
    code = f"grid([{', '.join(part.code for part in parts)}], {list(order)})"
    return Spread(n, np.arange(n), tuple(steps), f"grid {shape}, {_dimensions(order)} ({inside})", code)


def knomial(n: int, radix: int) -> Spread:
    """Rank 0's vector: in each round, whoever has it sends it to radix - 1 others. A binomial tree where radix is 2."""
    steps, reached = list[Moves](), 1
    while reached < n:
        to = np.arange(reached, min(n, reached * radix))
        steps.append((to % reached, to, np.zeros(len(to), np.int64)))
        reached *= radix
    return Spread(n, np.zeros(1, np.int64), tuple(steps), f"{radix}-nomial tree", f"knomial({n}, {radix})")


def heap(n: int, children: int) -> Spread:
    """Rank 0's vector, level by level, each rank sending it to so many children. A chain where that is one."""
    level, steps = np.zeros(1, np.int64), list[Moves]()
    while len(level):
        to = (level[:, None] * children + np.arange(1, children + 1)).ravel()
        to = to[to < n]
        if len(to):
            steps.append(((to - 1) // children, to, np.zeros(len(to), np.int64)))
        level = to
    name = "chain" if children == 1 else f"tree of {children} children"
    return Spread(n, np.zeros(1, np.int64), tuple(steps), name, f"heap({n}, {children})")


def along(n: int, edges: Sequence[tuple[int, int]]) -> Spread:
    """A tree by its edges, (from, to) in the order in which they are used: each rank sends to one in a step."""
    root = edges[0][0] if edges else 0
    busy, got = dict[int, int](), {root: 0}  # the first step in which a rank may send; and has its value
    rounds = list[list[tuple[int, int]]]()
    for a, b in edges:
        t = max(busy.get(a, 0), got[a])
        while len(rounds) <= t:
            rounds.append([])
        rounds[t].append((a, b))
        busy[a], got[b] = t + 1, t + 1
    made = tuple(
        (m[:, 0], m[:, 1], np.zeros(len(m), np.int64)) for m in (np.array(each, np.int64) for each in rounds if each)
    )
    return Spread(n, np.array([root]), made, f"nearest first from {root}", f"along({n}, {list(edges)})")


def dealt(spread: Spread) -> Spread:
    """Rank 0's vector in chunks: first each goes to the rank that owns it, and from there as `spread` says."""
    others = np.flatnonzero(spread.owner != 0)
    first = (np.zeros(len(others), np.int64), spread.owner[others], others)
    kept = ((src[dst != 0], dst[dst != 0], chunk[dst != 0]) for src, dst, chunk in spread.steps)
    title, code = f"dealt out, then {spread.title}", f"dealt({spread.code})"
    return Spread(spread.size, np.zeros_like(spread.owner), (first, *kept), title, code)


def split(*lanes: Spread) -> Spread:
    """Each chunk in as many parts as there are lanes, part i as lane i has it, all lanes at the same time."""
    most, count = max(len(lane.steps) for lane in lanes), len(lanes)
    if len({(lane.size, lane.chunks) for lane in lanes}) > 1:
        raise ValueError("lanes have equally many ranks, and equally many chunks")
    owner = np.stack([lane.owner for lane in lanes], axis=1).ravel()
    steps = list[Moves]()
    for t in range(most):
        now = [(i, *lane.steps[t]) for i, lane in enumerate(lanes) if t < len(lane.steps)]
        src, dst = (np.concatenate([each[end] for each in now]) for end in (1, 2))
        chunk = np.concatenate([chunk * count + i for i, _, _, chunk in now])
        steps.append((src, dst, chunk))
    title = " | ".join(lane.title for lane in lanes)
    return Spread(lanes[0].size, owner, tuple(steps), title, f"split({', '.join(lane.code for lane in lanes)})")


def side_by_side(spread: Spread, groups: int) -> Spread:
    """The same within each group of neighbours, chunk c of every group being chunk c. Owners are those of the first."""
    at = spread.size * np.arange(groups)[:, None]
    steps = tuple(((at + src).ravel(), (at + dst).ravel(), np.tile(chunk, groups)) for src, dst, chunk in spread.steps)
    return Spread(groups * spread.size, spread.owner, steps, spread.title, spread.code)


def named(spread: Spread, ranks: Sequence[int]) -> Spread:
    """The same under other names: rank r becomes `ranks[r]`, and chunks are numbered anew, in the order of owners."""
    to = np.asarray(ranks, np.int64)
    owner = to[spread.owner]
    order = np.argsort(owner, kind="stable")
    chunks = np.empty_like(order)
    chunks[order] = np.arange(len(order))
    steps = tuple((to[src], to[dst], chunks[chunk]) for src, dst, chunk in spread.steps)
    listed = [int(x) for x in to]
    if listed == list(range(spread.size)):
        return spread
    return Spread(spread.size, owner[order], steps, spread.title + in_order(listed), f"named({spread.code}, {listed})")


def in_order(ranks: Sequence[int]) -> str:
    """The end of a title. An order of many is told by the code alone."""
    return f", ranks in {'the order ' + ' '.join(map(str, ranks)) if len(ranks) <= 16 else 'another order'}"


def steps(n: int, rounds: Sequence[Sequence[tuple[int, int, int]]]) -> Spread:
    """An all-gather that is written out: in each round, (from, to, chunk)."""
    made = tuple((m[:, 0], m[:, 1], m[:, 2]) for m in (np.array(each, np.int64).reshape(-1, 3) for each in rounds))
    listed = [[tuple(int(x) for x in move) for move in each] for each in rounds]
    return Spread(n, np.arange(n), made, f"synthesised, {len(made)} rounds", f"steps({n}, {listed})")


def _flat(at: dict[int, Column], sides: Sequence[int]) -> Column:
    index = np.zeros(1, np.int64)
    for i, side in enumerate(sides):
        index = index * side + at[i]
    return index


def _dimensions(order: Sequence[int]) -> str:
    return f"dimensions {' '.join(map(str, order))}"


def _title(n: int, rounds: list[list[int]]) -> str:
    known = {
        "ring": [[-1]] * (n - 1),
        "ring, backwards": [[1]] * (n - 1),
        "ring, both ways": [[-1, 1]] * (n // 2),
        "direct": [list(range(1, n))],
    }
    for name, its in known.items():
        if rounds == its:
            return name
    return "hops " + " ".join("&".join(map(str, each)) for each in rounds)


def _text(rounds: list[list[int]]) -> str:
    """`[[-1]] * 5` where all are the same."""
    is_one = len(rounds) > 1 and rounds.count(rounds[0]) == len(rounds)
    return f"[{rounds[0]}] * {len(rounds)}" if is_one else str(rounds)
