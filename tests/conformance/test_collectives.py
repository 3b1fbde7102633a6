"""Every collective, with every algorithm, dtype, op and root, in and out of place, against NumPy, on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from oracles import (
    EVEN_ONLY,
    JOINING,
    PAIRS,
    REDUCING,
    ROOTED,
    SAMPLED,
    SCANS,
    SPLITTING,
    agree,
    data,
    expect,
    fold,
    pairs,
    rows_of,
    swept,
)

from hocket.arrays.ops import BFLOAT16, DTYPES
from hocket.plans.algorithms import ALGORITHMS, plan
from worlds import SIZES, Worlds

COLLECTIVES = (
    *("all_reduce", "reduce", "reduce_scatter", "scan", "exscan"),
    *("broadcast", "scatter", "gather", "all_gather", "all_to_all"),
)
WAYS = [(collective, name) for collective in COLLECTIVES for name in (None, *swept(collective))]
F32, I16 = np.dtype("float32"), np.dtype("int16")
LARGE = [(F32, "sum"), (np.dtype("int8"), "sum"), (BFLOAT16, "max"), (np.dtype("complex128"), "mean")]

every_size = pytest.mark.parametrize("size", SIZES)
every_way = pytest.mark.parametrize(("collective", "algorithm"), WAYS, ids=lambda part: str(part or "auto"))


def counts(n: int) -> list[int]:
    return sorted({0, 1, n - 1, n, n + 1})


class Case:
    """One call, as every rank makes it: all ranks' inputs, all ranks' expected results, this rank's share of them."""

    def __init__(
        self, group: Any, collective: str, dtype: np.dtype, op: str, count: int, root: int, even: bool
    ) -> None:
        n, self.group, self.collective, self.root = group.size, group, collective, root
        self.rank, self.options = group.rank, {}
        sizes: Any = None
        if collective in JOINING:
            sizes = [count] * n if even else rows_of(count, n)[::-1]
            inputs = [data(dtype, op, rank, k) for rank, k in enumerate(sizes)]
        elif collective in SPLITTING:
            sizes = [count] * n if even else rows_of(count, n)[::-1]
            inputs = [data(dtype, op, rank, sum(sizes)) for rank in range(n)]
            if collective == "all_to_all":  # every rank deals its rows out differently
                sizes = [sizes[rank:] + sizes[:rank] for rank in range(n)]
        else:
            inputs = [data(dtype, op, rank, count) for rank in range(n)]
        self.result = expect(collective, inputs, op=op, root=root, sizes=sizes)[self.rank]
        self.input = None if collective == "scatter" and self.rank != root else inputs[self.rank]
        if collective in REDUCING:
            self.options["op"] = op
        if collective in ROOTED:
            self.options["root"] = root
        if not even and sizes is not None:
            self.options["sizes"] = sizes[self.rank] if collective == "all_to_all" else sizes
        self.what = (collective, dtype.name, op, f"count {count}", f"root {root}", "even" if even else "uneven")

    def call(self, mode: str, algorithm: str | None) -> None:
        """Make the call in one of the ways there are to give input and output; check result and input."""
        x, out = self.prepare(mode)
        before = None if x is None else x.copy()
        got = getattr(self.group, self.collective)(x, out=out, algorithm=algorithm, **self.options)
        what = (*self.what, algorithm, mode, f"rank {self.rank} of {self.group.size}")
        agree(got, self.result, *what)
        if out is not None:
            assert got is out, f"{what}: the result is not out"
        if x is not None and mode != "in place":
            agree(x, before, *what, "input")

    def prepare(self, mode: str) -> tuple[Any, Any]:
        if mode == "in place" and self.input is not None and self.result is not None:
            if self.collective in ("all_reduce", "broadcast", "all_to_all", "reduce", *SCANS):
                x = self.input.copy()
                return x, x if x.shape == self.result.shape else None
            if self.collective == "all_gather" or (self.collective == "gather" and self.rank == self.root):
                out = np.zeros_like(self.result)
                start = sum(self.options.get("sizes", [len(self.input)] * self.group.size)[: self.rank])
                mine = out[start : start + len(self.input)]
                mine[...] = self.input
                return mine, out
        x = None if self.input is None else self.input.copy()
        if mode == "strided" and x is not None:
            x = np.repeat(x, 3)[::3]
        if mode == "read-only":
            return self.input, None
        if mode == "new" or self.result is None:
            return x, None
        out = np.zeros((len(self.result), 2), self.result.dtype)
        return x, out[:, 1] if mode == "strided" else out[:, 1].copy()


MODES = ("new", "out", "in place", "strided", "read-only")


def sweep(group: Any, collective: str, algorithm: str | None) -> int:
    """All cases for up to three ranks; of more, every second or fourth, which still has every pair, count and mode."""
    calls, step = 0, {4: 2, 5: 2, 8: 4}.get(group.size, 1)
    for cases in (every_pair(group, collective), every_mode(group, collective)):
        for case, mode in islice(cases, 0, None, step):
            case.call(mode, algorithm)
            calls += 1
    for case, mode in large(group, collective):
        case.call(mode, algorithm)
    return calls


def every_pair(group: Any, collective: str) -> Iterator[tuple[Case, str]]:
    """All dtypes and ops; modes, roots and even or not take turns."""
    turn = 0
    for dtype, op in pairs(collective):
        for count in counts(group.size):
            turn += 1
            yield Case(group, collective, dtype, op, count, turn % group.size, turn % 3 > 0), MODES[turn % len(MODES)]


def every_mode(group: Any, collective: str) -> Iterator[tuple[Case, str]]:
    """All modes, roots, and even or not, of two dtypes."""
    for dtype, op in ((F32, "sum"), (I16, "max")):
        for count in counts(group.size):
            for root in range(group.size if collective in ROOTED else 1):
                for even in (True, False) if collective in JOINING + SPLITTING else (True,):
                    for mode in MODES:
                        yield Case(group, collective, dtype, op, count, root, even), mode


def large(group: Any, collective: str) -> Iterator[tuple[Case, str]]:
    for dtype, op in (pair for pair in LARGE if pair[1] != "mean" or collective not in SCANS):
        for turn, count in enumerate((1000, 70001)):
            yield Case(group, collective, dtype, op, count, count % group.size, turn == 0), MODES[turn]


@every_size
@every_way
def test_against_numpy(world: Worlds, size: int, collective: str, algorithm: str | None) -> None:
    calls = world(size).run(sweep, collective, algorithm)
    assert len(set(calls)) == 1
    assert calls[0] > 40


def sample(group: Any) -> int:
    """A few of the cases of every algorithm that is not swept; the steps have no divisor that modes or counts have."""
    calls = 0
    for collective, algorithm in (way for way in ALGORITHMS if way[1] in SAMPLED):
        for cases, step in ((every_pair(group, collective), 97), (every_mode(group, collective), 13)):
            for case, mode in islice(cases, 0, None, step):
                if (collective, algorithm) != EVEN_ONLY or "sizes" not in case.options:
                    case.call(mode, algorithm)
                    calls += 1
        for case, mode in islice(large(group, collective), 0 if (collective, algorithm) == EVEN_ONLY else 1, None, 6):
            case.call(mode, algorithm)
    return calls


def equal_only(group: Any) -> None:
    x = np.arange(8.0) + 10 * group.rank
    for async_op in (False, True):
        with pytest.raises(ValueError, match="bruck needs blocks that are all equally large: leave out sizes"):
            group.all_to_all(x, sizes=[5, 1, 1, 1], algorithm="bruck", async_op=async_op)
    got = group.all_to_all(x, algorithm="bruck")  # nothing was sent
    agree(got, np.add.outer(10.0 * np.arange(4), [2 * group.rank, 2 * group.rank + 1]).ravel())


def test_uneven_blocks_are_refused_where_they_must_be_equal(world: Worlds) -> None:
    world(4).run(equal_only)


@pytest.mark.parametrize("size", [4, 5])
def test_by_name_against_numpy(world: Worlds, size: int) -> None:
    calls = world(size).run(sample)
    assert len(set(calls)) == 1
    assert calls[0] > 15 * len(SAMPLED)


def test_every_pair_of_dtype_and_op_is_tried() -> None:
    assert len(PAIRS) == 15 * 11 - 3 * 6 - 2 * 2 - 1  # without: bitwise of six, min and max of complex, mean of bool


def any_shape(group: Any) -> None:
    n, rank = group.size, group.rank
    shapes = [(), (1,), (2, 3), (3, 0, 2), (n, 2), (2, 1, 4)]
    for shape in shapes:
        inputs = [np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 + r * 10, "i4") for r in range(n)]
        agree(group.all_reduce(inputs[rank]), expect("all_reduce", inputs)[rank], shape)
        agree(group.reduce(inputs[rank], root=n - 1), expect("reduce", inputs, root=n - 1)[rank], shape)
        agree(group.broadcast(inputs[rank], root=n - 1), expect("broadcast", inputs, root=n - 1)[rank], shape)
        agree(group.all_gather(inputs[rank]), expect("all_gather", inputs)[rank], shape)
        agree(group.gather(inputs[rank]), expect("gather", inputs)[rank], shape)
    for tail in [(), (3,), (0,), (2, 2)]:
        shape = (2 * n, *tail)
        inputs = [(np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 + r * 100).astype("i4") for r in range(n)]
        for collective in ("reduce_scatter", "all_to_all"):
            agree(getattr(group, collective)(inputs[rank]), expect(collective, inputs)[rank], collective, shape)
        mine = inputs[rank] if rank == n - 1 else None
        agree(group.scatter(mine, root=n - 1), expect("scatter", inputs, root=n - 1)[rank], shape)
        sizes = rows_of(2 * n - 1, n)
        part = inputs[rank][: sizes[rank]]
        expected = np.concatenate([x[:k] for x, k in zip(inputs, sizes, strict=True)])
        agree(group.all_gather(part, sizes=sizes), expected, shape, sizes)


@every_size
def test_any_shape(world: Worlds, size: int) -> None:
    world(size).run(any_shape)


def overlapping(group: Any, algorithm: str) -> None:
    n, rank = group.size, group.rank
    for count in (1, n + 1, 5000):
        inputs = [data(F32, "sum", r, count) for r in range(n)]
        expected = fold("sum", inputs)
        for shift in (1, 3, count - 1):
            memory = np.zeros(count + shift, F32)
            x, out = memory[:count], memory[shift:]
            x[:] = inputs[rank]
            assert group.all_reduce(x, out=out, algorithm=algorithm) is out
            agree(out.copy(), expected, algorithm, count, shift)
        memory = np.array(inputs[rank])
        agree(group.all_reduce(memory, out=memory[::-1], algorithm=algorithm).copy(), expected, count, "reversed")
        agree(memory[::-1].copy(), expected, algorithm, count, "reversed")
        square = np.arange(9.0).reshape(3, 3) + rank
        both = sum(np.arange(9.0).reshape(3, 3) + r for r in range(n))
        group.all_reduce(square, out=square.T, algorithm=algorithm)
        agree(square.T.copy(), np.array(both), "transposed")


@every_size
@pytest.mark.parametrize("algorithm", [None, *swept("all_reduce")])
def test_an_out_that_overlaps_the_input(world: Worlds, size: int, algorithm: str) -> None:
    world(size).run(overlapping, algorithm)


def on_scattered_hosts(group: Any, places: tuple[int, ...]) -> None:
    """Owners get several messages of one rank in one step, beside others that come first."""
    chain = plan("all_reduce", "hierarchical_chain", group.size, places=places)
    for count in (0, 4, 13, 5000):
        inputs = [data(F32, "sum", r, count) for r in range(group.size)]
        x = inputs[group.rank].copy()
        group.all_reduce(x, out=x, algorithm=chain, order="any")
        agree(x, fold("sum", inputs), places, count)


@pytest.mark.parametrize("places", [(0, 1, 0), (0, 0, 1, 1, 0), (0, 1, 0, 1, 0), (0, 0, 1, 1, 0, 0, 1, 1)])
def test_in_place_where_hosts_hold_no_neighbours(world: Worlds, places: tuple[int, ...]) -> None:
    world(len(places)).run(on_scattered_hosts, places)


def scalars(group: Any) -> None:
    n, rank = group.size, group.rank
    for x, more, dtype in ((rank, 0, "i8"), (rank + 0.5, 0.5, "f8"), (np.float32(rank), 0, "f4")):
        total = sum(type(x)(r + more) for r in range(n))
        for got in (group.all_reduce(x), group.all_reduce(x, async_op=True).wait(), group.scan(x, op="max")):
            assert type(got) is type(x)
        assert (group.all_reduce(x), group.broadcast(x), group.scan(x, op="max")) == (total, type(x)(more), x)
        agree(group.all_reduce(np.array(x)), np.array(total, dtype), x)  # an array of no axes is an array
        assert group.all_reduce(x, out=(out := np.zeros((), dtype))) is out
        agree(group.all_gather(x), np.array([r + more for r in range(n)], dtype), x)
    agree(group.all_gather([rank, -rank]), np.array([[r, -r] for r in range(n)]).reshape(-1))
    got = group.all_reduce(ml_dtypes.bfloat16(rank))
    assert (type(got), got) == (ml_dtypes.bfloat16, sum(range(n)))
    assert group.broadcast(rank == 1, root=n - 1) is (n == 2)
    assert group.all_reduce(rank - 1j) == complex(sum(range(n)), -n)
    assert group.all_reduce(True, op="land") is True


@every_size
def test_scalars_and_lists(world: Worlds, size: int) -> None:
    world(size).run(scalars)


def tensors(group: Any) -> None:
    import torch

    n, rank = group.size, group.rank
    for name in [dtype.name for dtype in DTYPES]:
        kind = getattr(torch, name)
        inputs = [torch.arange(6).reshape(2, 3).add(r).to(kind) for r in range(n)]
        x = inputs[rank]
        y = group.all_reduce(x, op="lor")
        assert (type(y), y.dtype, y.shape) == (torch.Tensor, kind, x.shape), name
        assert torch.equal(y, torch.stack([v != 0 for v in inputs]).any(0).to(kind)), name
        assert torch.equal(x, inputs[rank])
        z = group.all_gather(x)
        assert (z.dtype, z.shape) == (kind, (2 * n, 3))
        assert torch.equal(z, torch.cat(inputs))
        out = torch.zeros(3, 2 * n, dtype=kind).T  # not contiguous
        assert group.all_gather(x, out=out) is out
        assert torch.equal(out, z)
        t = x.clone()
        assert group.broadcast(t, root=n - 1, out=t) is t
        assert torch.equal(t, inputs[-1])
        part = group.scatter(torch.cat(inputs) if rank == 0 else None, out=torch.empty(2, 3, dtype=kind))
        assert torch.equal(part, x)
    x = torch.ones(3, requires_grad=True)
    assert group.all_reduce(x).tolist() == [n] * 3
    assert group.all_reduce(x.detach(), op="mean", out=x.detach()).tolist() == [1] * 3
    assert type(group.all_reduce(np.ones(3, "f4"), out=torch.empty(3))) is torch.Tensor


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tensors_come_back_as_tensors(world: Worlds, torch: Any, size: int) -> None:
    world(size).run(tensors)


def round_and_round(group: Any) -> None:
    """More kinds of calls than any cache holds, each of them again and again; off the root nothing is known of them."""
    for turn in range(500):
        x = np.full((group.size, turn % 101), turn)
        part = group.scatter(x if group.rank == 0 else None)
        agree(part, x[:1], turn)
        agree(group.broadcast(x if group.rank == 0 else None), x, turn)


@pytest.mark.parametrize("size", [2, 3])
def test_many_kinds_of_calls_over_and_over(world: Worlds, size: int) -> None:
    world(size).run(round_and_round)


def waits_for_all(group: Any) -> None:
    for _ in range(50):
        group.barrier()
    assert group.barrier() is None


@every_size
def test_barrier(world: Worlds, size: int) -> None:
    world(size).run(waits_for_all)


def empties(group: Any) -> None:
    x = group.empty((1000, 3), "float32")
    assert (x.shape, x.dtype) == ((1000, 3), F32)
    x[...] = group.rank
    y = group.empty(4, np.int8)
    assert (y.shape, y.dtype) == ((4,), np.dtype("int8"))
    assert group.all_reduce(x, out=x) is x
    assert (x == sum(range(group.size))).all()
    assert group.empty((), BFLOAT16).dtype == BFLOAT16


def test_empty(world: Worlds) -> None:
    world(2).run(empties)
