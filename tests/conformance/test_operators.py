"""What reductions compute: the same bits everywhere, one rounding, NaN, wrap-around, and operators of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from oracles import agree, data, fold, is_float, rows_of, swept

import hocket
from hocket.arrays.ops import BFLOAT16, DTYPES
from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.check import check
from worlds import SIZES, Worlds, raised

F32 = np.dtype("float32")

every_size = pytest.mark.parametrize("size", SIZES)


def same_bits(group: Any) -> list[tuple[str, bytes]]:
    """Digits that rounding makes depend on the order of operands."""
    results = []
    for name in ("float16", "bfloat16", "float32", "float64", "complex64"):
        for count in (1, group.size + 1, 3001):
            rng = np.random.default_rng([group.rank, count])
            x = rng.standard_normal(count).astype(name)
            for algorithm in [None, *swept("all_reduce")]:
                for op in ("sum", "mean", "product"):
                    y = group.all_reduce(x, op=op, algorithm=algorithm)
                    results.append((f"{name} {count} {algorithm} {op}", y.tobytes()))
                    again = group.all_reduce(x, op=op, algorithm=algorithm)
                    assert again.tobytes() == y.tobytes(), f"{results[-1][0]}: other bits the second time"
    return results


@every_size
def test_all_ranks_get_the_same_bits(world: Worlds, size: int) -> None:
    first, *others = world(size).run(same_bits)
    for other in others:
        for (what, mine), (_, theirs) in zip(first, other, strict=True):
            assert mine == theirs, what


def bits_by_size(group: Any) -> None:
    x = np.random.default_rng(group.rank).standard_normal(40_000).astype("f4")
    whole = group.all_reduce(x)
    for count in (1, 2, group.size, 100, 5000):
        agree(group.all_reduce(x[:count]), whole[:count].copy(), count)


@every_size
def test_the_default_gives_the_same_bits_at_every_size_of_message(world: Worlds, size: int) -> None:
    world(size).run(bits_by_size)


def accuracy(group: Any) -> None:
    """One rounding: the direct algorithms accumulate float16 and bfloat16 in float32."""
    for dtype in (np.dtype("float16"), BFLOAT16):
        inputs = [np.random.default_rng(r).standard_normal(2000).astype(dtype) for r in range(group.size)]
        total = inputs[0].astype("f4")
        for x in inputs[1:]:
            total = total + x.astype("f4")
        for algorithm in ("one_shot", "two_shot"):
            agree(group.all_reduce(inputs[group.rank], algorithm=algorithm), total.astype(dtype), dtype, algorithm)


@every_size
def test_short_floats_are_rounded_once(world: Worlds, size: int) -> None:
    world(size).run(accuracy)


def corners(group: Any) -> None:
    n, rank = group.size, group.rank
    for algorithm in [None, *swept("all_reduce")]:
        for dtype in (d for d in DTYPES if is_float(d) and d.kind != "c"):
            x = np.full(n + 2, rank, dtype)
            x[rank] = np.nan
            for op in ("min", "max"):
                y = group.all_reduce(x, op=op, algorithm=algorithm)
                assert np.isnan(y[:n]).all(), (op, dtype, algorithm, y)
                assert (y[n:] == (0 if op == "min" else n - 1)).all(), (op, dtype, algorithm, y)
        for dtype in (d for d in DTYPES if d.kind in "iu"):
            top = np.full(3, np.iinfo(dtype).max, dtype)
            agree(group.all_reduce(top, algorithm=algorithm), fold("sum", [top] * n), "wraps", dtype)
        for values, mean in ([-7] * n, -7), ([-1] + [0] * (n - 1), -1 if n == 1 else 0), ([-n - 1] + [0] * (n - 1), 0):
            expected = int(np.trunc(sum(values) / n))
            y = group.all_reduce(np.array([values[rank], -values[rank]], "i8"), op="mean", algorithm=algorithm)
            assert y.tolist() == [expected, -expected], (values, mean, algorithm)


@every_size
def test_nan_wrap_around_and_truncation(world: Worlds, size: int) -> None:
    world(size).run(corners)


def compose(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Composition of the maps x -> p x + q, written as complex p + q i: associative, and not commutative."""
    out[...] = a.real * b.real + (a.imag + a.real * b.imag) * 1j


def second(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    out[...] = b
    return np.full_like(out, 99)  # ignored


def in_rank_order(collective: str, places: tuple[int, ...]) -> list[str | None]:
    """The algorithms that serve operators which do not commute where ranks lie so, and the default."""
    size = len(places)
    root = size - 1 if collective == "reduce" else 0
    plans = {name: plan(collective, name, size, root, places=places) for of, name in ALGORITHMS if of == collective}
    return [None, *(name for name, each in plans.items() if check(each).rank_order)]


def custom(group: Any) -> None:
    n, rank, places = group.size, group.rank, group.topology.places
    for count in (0, 1, n + 1, 9000):
        inputs = [np.array(data(F32, "sum", r, count)) for r in range(n)]
        maps = [
            data(np.dtype("i2"), "mean", r, count) % 3 + 1 + data(np.dtype("i2"), "mean", r, count + 1)[1:] * 1j
            for r in range(n)
        ]
        expected = maps[0]
        for other in maps[1:]:
            expected, left = np.empty_like(expected), expected
            compose(left, other, expected)
        for algorithm in in_rank_order("all_reduce", places):
            what = (algorithm, count, n)
            agree(group.all_reduce(inputs[rank], op=np.fmax, algorithm=algorithm), fold("max", inputs), "fmax", *what)
            agree(group.all_reduce(inputs[rank], op=second, algorithm=algorithm), inputs[-1], "second", *what)
            agree(group.all_reduce(maps[rank], op=compose, algorithm=algorithm), expected, "compose", *what)
            agree(inputs[rank], data(F32, "sum", rank, count), "input", *what)
            for op, given, wanted in ((np.fmax, inputs, fold("max", inputs)), (compose, maps, expected)):
                x = given[rank].copy()
                assert group.all_reduce(x, op=op, out=x, algorithm=algorithm) is x
                agree(x, wanted, op.__name__, "in place", *what)
        for algorithm in in_rank_order("reduce", places):
            for root in range(n):
                y = group.reduce(maps[rank], op=compose, root=root, algorithm=algorithm)
                agree(y, expected if rank == root else None, "reduce, compose", algorithm, root, count)
        sizes = rows_of(count, n)
        for algorithm in in_rank_order("reduce_scatter", places):
            y = group.reduce_scatter(maps[rank], op=compose, sizes=sizes, algorithm=algorithm)
            agree(y, expected[sum(sizes[:rank]) : sum(sizes[: rank + 1])], "reduce_scatter, compose", algorithm, count)


@every_size
def test_custom_ops_in_rank_order(world: Worlds, size: int) -> None:
    world(size).run(custom)
    assert "two_shot" in in_rank_order("all_reduce", (0,) * size)


def every_dtype(group: Any) -> None:
    """A ufunc's own loop, and what has none of that dtype; elements that are not aligned, of many and of few."""
    n, rank = group.size, group.rank
    for ufunc in (np.fmax, np.copysign, np.gcd, np.left_shift, np.floor_divide):
        for dtype in DTYPES:
            try:
                ufunc.resolve_dtypes((dtype, dtype, dtype))
            except TypeError:
                continue
            for count in (1, 50, 9000):
                inputs = [data(dtype, "sum", r, count) + np.ones((), dtype) for r in range(n)]
                expected = inputs[0]
                for x in inputs[1:]:
                    expected = ufunc(expected, x)
                agree(group.all_reduce(inputs[rank], op=ufunc), expected, ufunc, dtype, count)
                memory = np.zeros(count * dtype.itemsize + 1, "u1")
                askew = memory[1:].view(dtype)
                askew[...] = inputs[rank]
                agree(group.all_reduce(askew, op=ufunc), expected, ufunc, dtype, count, "not aligned")
                group.all_reduce(inputs[rank], op=ufunc, out=askew)
                agree(askew.copy(), expected, ufunc, dtype, count, "into what is not aligned")


@every_size
def test_ufuncs_of_every_dtype(world: Worlds, size: int) -> None:
    world(size).run(every_dtype)


def spoil(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    a += b
    out[...] = a


def by(factor: float) -> Callable[..., None]:
    def f(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        np.multiply(a + b, factor, out=out)

    return f


def elsewhere(lines: int) -> Callable[..., None]:
    """The same lambda, so many lines further down, in a module whose name is the rank's own."""
    space = {"__name__": f"module{lines}", "np": np, "factor": 2.0}
    exec(
        compile("\n" * lines + "f = lambda a, b, out: np.multiply(a, factor * b, out=out)", f"{lines}.py", "exec"),
        space,
    )
    return space["f"]  # type: ignore[no-any-return]


# What rank 0 gives and what the last rank gives: two functions of one name.
TWO_OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "code": (lambda a, b, out: np.add(a, b, out=out), lambda a, b, out: np.multiply(a, b, out=out)),
    "closed over": (by(1.0), by(2.0)),
    "arguments of a partial": (partial(np.add, casting="same_kind"), partial(np.add, casting="unsafe")),
}


def two_operators(group: Any, what: str, method: str) -> str:
    group.all_reduce(1)
    for _ in range(3):  # the same one: from its code, wherever that lies
        y = group.all_reduce(np.ones(3), op=elsewhere(1 + group.rank))
        assert y.tolist() == [2.0 ** (group.size - 1)] * 3
    op = TWO_OPERATORS[what][group.rank == group.size - 1]

    def call() -> None:
        getattr(group, method)(np.full(2 * group.size, 3.0), op=op)
        group.barrier()  # a rank whose part was over before the others came gets it here

    return str(raised(hocket.MismatchError, call))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("what", TWO_OPERATORS)
def test_two_operators_of_one_name_are_a_mismatch(world: Worlds, what: str, size: int) -> None:
    for method in ("all_reduce", "reduce", "reduce_scatter"):
        for text in world(size).run(two_operators, what, method, fresh=True, timeout=20.0):
            named = re.findall(r"called \w+\(.*?op='custom\((.*?) ([0-9a-f]{8})\)'", text)
            assert len(named) == 2, text
            (name, one), (same, other) = named
            assert name == same
            assert one != other


def operands(group: Any) -> str:
    x = np.ones(3)
    error = raised((ValueError, hocket.HocketError), group.all_reduce, x, op=spoil)
    assert x.tolist() == [1, 1, 1]
    return str(error)


def test_an_operator_cannot_write_into_its_operands(world: Worlds) -> None:
    assert any("read-only" in text for text in world(2).run(operands, fresh=True))


def loop_that_raises(group: Any) -> str:
    x = np.full(100, 2 if group.rank == 0 else -1)
    for _ in range(2):
        assert (group.all_reduce(np.full(100, 2), op=np.power) == 4).all()
    error = raised((ValueError, hocket.HocketError), group.all_reduce, x, op=np.power)
    assert raised(hocket.GroupBroken, group.barrier).__cause__ is error
    return str(error)


def test_what_a_ufunc_raises_comes_out(world: Worlds) -> None:
    assert any("negative integer powers" in text for text in world(2).run(loop_that_raises, fresh=True))


def ufunc_names(group: Any) -> None:
    for ufunc, op in ((np.add, "sum"), (np.multiply, "product"), (np.maximum, "max"), (np.bitwise_xor, "bxor")):
        inputs = [data(np.dtype("i4"), op, r, 10) for r in range(group.size)]
        agree(group.all_reduce(inputs[group.rank], op=ufunc), fold(op, inputs), ufunc)
        agree(group.reduce_scatter(inputs[0][: group.size], op=ufunc), fold(op, [inputs[0]] * group.size)[[group.rank]])


def test_ufuncs(world: Worlds) -> None:
    world(3).run(ufunc_names)


def orders(group: Any) -> None:
    x = [data(F32, "sum", r, 1000) for r in range(group.size)]
    for order in ("same", "any"):
        agree(group.all_reduce(x[group.rank], order=order), fold("sum", x), order)
        agree(group.reduce(x[group.rank], order=order), fold("sum", x) if group.rank == 0 else None, order)
        rows = group.reduce_scatter(x[0][: group.size], order=order)
        agree(rows, fold("sum", [x[0]] * group.size)[[group.rank]], order)


@every_size
def test_order(world: Worlds, size: int) -> None:
    world(size).run(orders)
