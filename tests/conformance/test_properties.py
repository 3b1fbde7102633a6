"""Random sequences of calls on living worlds against NumPy: collectives, messages and subgroups, blocking or not.

Hypothesis draws a program: a list of steps as plain data. All ranks run it; each computes what it must get from what
the others were told to give. A failure prints the smallest program that fails and a blob to reproduce it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import EVEN_ONLY, JOINING, PAIRS, REDUCING, ROOTED, SCANS, SPLITTING, agree, cuts, data, expect

from hocket.arrays.ops import NAMES
from hocket.plans.algorithms import ALGORITHMS
from worlds import SIZES, Worlds

COLLECTIVES = (
    *("all_reduce", "reduce", "reduce_scatter", "scan", "exscan"),
    *("broadcast", "scatter", "gather", "all_gather", "all_to_all"),
)
Check = Callable[[], None]


class Collective(NamedTuple):
    """One collective call. `rows` are a rank's rows: of its input, or of its part; `weights` deal them out unevenly."""

    name: str
    algorithm: str | None
    dtype: str
    op: str
    rows: tuple[int, ...]  # one number for each rank, all the same unless uneven
    uneven: bool
    root: int
    columns: int  # 0: one-dimensional
    out: str
    async_op: bool

    def run(self, group: Any) -> Check:
        """Make the call; the result is checked by calling what comes back."""
        n, rank = group.size, group.rank
        inputs, sizes = self.arrays(n)
        expected = expect(self.name, inputs, op=self.op, root=self.root, sizes=sizes)[rank]
        x = None if self.name == "scatter" and rank != self.root else inputs[rank].copy()
        options: dict[str, Any] = {"algorithm": self.algorithm, "async_op": self.async_op}
        if self.name in REDUCING:
            options["op"] = self.op
        if self.name in ROOTED:
            options["root"] = self.root
        if self.uneven and sizes is not None:
            options["sizes"] = sizes[rank] if self.name == "all_to_all" else sizes
        out = None
        if self.out == "in place" and x is not None and expected is not None and x.shape == expected.shape:
            out = x
        elif self.out != "new" and expected is not None:
            out = np.zeros((2, *expected.shape), expected.dtype)[1]
        result = getattr(group, self.name)(x, out=out, **options)

        def check() -> None:
            got = result.wait() if self.async_op else result
            assert out is None or got is out
            agree(got, expected, *self, f"rank {rank} of {n}")
            if x is not None and out is not x:
                agree(x, inputs[rank], *self, "input")

        return check

    def arrays(self, n: int) -> tuple[list[np.ndarray], Any]:
        rows = list(self.rows[:n]) if self.uneven else [self.rows[0]] * n
        dtype = np.dtype(self.dtype)
        width = max(1, self.columns)
        if self.name in JOINING:
            totals, sizes = rows, rows
        elif self.name in SPLITTING:
            totals, sizes = (
                [sum(rows)] * n,
                [rows[r:] + rows[:r] for r in range(n)] if self.name == "all_to_all" else rows,
            )
        else:
            totals, sizes = [rows[0]] * n, None
        inputs = [data(dtype, self.op, rank, total * width) for rank, total in enumerate(totals)]
        return ([x.reshape(-1, width) for x in inputs] if self.columns else inputs), sizes


class Messages(NamedTuple):
    """Messages between ranks, all in flight at once, received in another order than sent."""

    letters: tuple[tuple[int, int, int, str, int], ...]  # from, to, tag, dtype, count
    shuffle: int
    into_out: bool

    def run(self, group: Any) -> Check:
        n, rank = group.size, group.rank
        letters = [(src % n, dst % n, tag, np.dtype(dtype), count) for src, dst, tag, dtype, count in self.letters]
        works = [
            group.send(data(dtype, "sum", i, count), dst, tag=tag, async_op=True)
            for i, (src, dst, tag, dtype, count) in enumerate(letters)
            if src == rank
        ]
        mine = [(i, letter) for i, letter in enumerate(letters) if letter[1] == rank]
        order = np.random.default_rng(self.shuffle).permutation(len(mine))
        taken: dict[tuple[int, int], int] = {}
        for i in order:  # of one sender and one tag, messages come in the order in which they were sent
            src, _, tag, *_ = mine[i][1]
            same = [entry for entry in mine if (entry[1][0], entry[1][2]) == (src, tag)]
            number, (_, _, _, dtype, count) = same[taken.setdefault((src, tag), 0)]
            taken[src, tag] += 1
            out = np.zeros(count, dtype) if self.into_out else None
            agree(group.recv(src, tag=tag, out=out), data(dtype, "sum", number, count), *self, f"letter {number}")

        def check() -> None:
            for work in works:
                work.wait()

        return check


class Within(NamedTuple):
    """Steps in a part of the group, while the rest goes on."""

    color: int
    reverse: bool
    steps: tuple[Any, ...]

    def run(self, group: Any) -> Check:
        color = (group.rank >> self.color) & 1
        sub = group.split(color, -group.rank if self.reverse else group.rank)
        checks = [step.run(sub) for step in self.steps]

        def check() -> None:
            for each in checks:
                each()
            sub.close()

        return check


counts = st.one_of(st.integers(0, 9), st.sampled_from([31, 1000, 20_011]))


@st.composite
def collectives(draw: st.DrawFn, size: int) -> Collective:
    name = draw(st.sampled_from(COLLECTIVES))
    algorithm = draw(st.sampled_from([None, *(way for of, way in ALGORITHMS if of == name)]))
    op = draw(st.sampled_from([op for op in NAMES if op != "mean" or name not in SCANS]))
    dtype = draw(st.sampled_from([dtype for dtype, other in PAIRS if other == op]))
    uneven = draw(st.booleans()) and name in JOINING + SPLITTING and (name, algorithm) != EVEN_ONLY
    rows = tuple(draw(counts) for _ in range(size)) if uneven else (draw(counts),)
    return Collective(
        name=name,
        algorithm=algorithm,
        dtype=dtype.name,
        op=op if name in REDUCING else "sum",
        rows=rows,
        uneven=uneven,
        root=draw(st.integers(0, size - 1)) if name in ROOTED else 0,
        columns=draw(st.sampled_from([0, 0, 1, 3])),
        out=draw(st.sampled_from(["new", "out", "in place"])),
        async_op=draw(st.booleans()),
    )


def messages(size: int) -> st.SearchStrategy[Messages]:
    ranks = st.integers(0, size - 1)
    dtype = st.sampled_from([dtype.name for dtype, _ in PAIRS])
    letter = st.tuples(ranks, ranks, st.integers(0, 3), dtype, counts)
    return st.builds(Messages, st.lists(letter, min_size=1, max_size=8).map(tuple), st.integers(0, 99), st.booleans())


def programs(size: int) -> st.SearchStrategy[list[Any]]:
    step = st.one_of(collectives(size), collectives(size), messages(size))
    # within a half, roots and rows must fit the smaller half: of 3 ranks, one
    small = collectives(1).map(lambda call: call._replace(uneven=False))
    within = st.builds(Within, st.integers(0, 2), st.booleans(), st.lists(small, min_size=1, max_size=3).map(tuple))
    return st.lists(st.one_of(step, step, step, within), min_size=1, max_size=10)


def perform(group: Any, program: list[Any]) -> None:
    checks = [step.run(group) for step in program]
    for check in reversed(checks):
        check()
    group.barrier()


@pytest.mark.parametrize("size", SIZES)
def test_any_sequence_of_calls(world: Worlds, size: int) -> None:
    @settings(
        max_examples=100 if size < 5 else 60,
        deadline=None,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(size))
    def check(program: list[Any]) -> None:
        world(size).run(perform, program)

    check()


def test_the_programs_reach_everything() -> None:
    """What the strategies can draw is what the collectives can do: a look at 600 programs."""
    seen: set[str] = set()

    @settings(max_examples=600, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(programs(4))
    def look(program: list[Any]) -> None:
        for step in program:
            seen.add(type(step).__name__)
            if isinstance(step, Collective):
                seen.update(
                    (step.name, step.dtype, step.op, step.out, f"uneven {step.uneven}", f"async {step.async_op}")
                )
                assert len(cuts(step.rows)) == len(step.rows)

    look()
    wanted = {*COLLECTIVES, *(dtype.name for dtype, _ in PAIRS), *(op for _, op in PAIRS), "Messages", "Within"}
    assert seen >= wanted | {"new", "out", "in place", "uneven True", "uneven False", "async True", "async False"}
