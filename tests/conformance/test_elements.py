"""Elements that are not cut: rows of whole_rows, and records with fields."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

import hocket
from worlds import Worlds, raised

PAIR = np.dtype([("value", "f8"), ("index", "i4")])  # 12 bytes, which divide no power of two


@hocket.whole_rows
def product(a: Any, b: Any, out: Any) -> None:
    assert a.shape == b.shape == out.shape
    assert a.shape[1:] == (3, 3)
    np.matmul(a, b, out=out)


def matrices(rank: int, count: int) -> np.ndarray:
    """Products of them do not commute, and wrap without a rounding."""
    return (np.arange(count * 9, dtype=np.int32) * (rank + 3) % 17 + rank).reshape(-1, 3, 3)


def rows(group: Any) -> None:
    n, rank = group.size, group.rank
    for count in (0, 1, n + 1, 20_000):  # the last in many pieces, of 36 bytes each
        given = [matrices(r, count) for r in range(n)]
        sums = [reduce(np.matmul, given[: r + 1]) for r in range(n)]
        for algorithm in (None, "one_shot", "two_shot", "recursive_doubling"):
            for _ in range(2):
                assert (group.all_reduce(given[rank], product, algorithm=algorithm) == sums[-1]).all()
        x = given[rank].copy()
        assert group.all_reduce(x, product, out=x) is x
        assert (x == sums[-1]).all()
        for algorithm in (None, "chain", "hillis_steele"):
            assert (group.scan(given[rank], product, algorithm=algorithm) == sums[rank]).all()
        assert (group.all_reduce_init(given[rank], product)() == sums[-1]).all()
        work = group.all_reduce(np.asfortranarray(given[rank]), product, async_op=True)
        assert (work.wait() == sums[-1]).all()
    sizes = [100 * r for r in range(n)]
    given = [matrices(r, sum(sizes)) for r in range(n)]
    begin = sum(sizes[:rank])
    part = group.reduce_scatter(given[rank], product, sizes=sizes)
    assert (part == reduce(np.matmul, given)[begin : begin + sizes[rank]]).all()
    even = group.reduce_scatter(matrices(rank, 2 * n), product)
    assert (even == reduce(np.matmul, [matrices(r, 2 * n) for r in range(n)])[2 * rank : 2 * rank + 2]).all()
    huge = hocket.whole_rows(lambda a, b, out: np.add(a, b, out=out))
    if n > 1:
        assert "give smaller rows" in str(raised(ValueError, group.all_reduce, np.ones((4, 1 << 21)), huge))
    assert (group.all_reduce(np.full(5, rank), huge) == sum(range(n))).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_rows_stay_whole(world: Worlds, size: int) -> None:
    world(size).run(rows)


def later(a: Any, b: Any, out: Any) -> None:
    out[...] = b
    out["index"] = a["index"] + b["index"]


def records(group: Any) -> None:
    n, rank = group.size, group.rank
    for count in (0, 1, 7, 50_000):
        i = np.arange(count)
        given = []
        for r in range(n):
            x = np.zeros(count, PAIR)
            x["value"], x["index"] = (i * 7 + r * 5) % 11 - r % 2, r
            given.append(x)
        values = np.array([x["value"] for x in given]).reshape(n, count)
        for op, pick in (("maxloc", np.argmax), ("minloc", np.argmin)):
            for algorithm in (None, "ring" if n == 1 else "one_shot", "two_shot"):
                best = group.all_reduce(given[rank], op, algorithm=algorithm)
                assert best.dtype == PAIR
                assert (best["index"] == (pick(values, axis=0) if count else 0)).all(), (op, count)
                assert (best["value"] == np.take_along_axis(values, best["index"][None].astype(int), 0)[0]).all()
        got = group.all_reduce(given[rank], later)
        assert (got["value"] == given[-1]["value"]).all()
        assert (got["index"] == sum(range(n))).all()
    last = np.array([(np.nan if rank == n - 1 else 1.0, rank)], PAIR)
    for op in ("maxloc", "minloc"):
        assert group.all_reduce(last, op)["index"][0] == n - 1  # NaN is told, as of max and min
    for op in ("sum", np.add):
        raised(TypeError, group.all_reduce, last, op)
    assert "two fields" in str(raised(TypeError, group.all_reduce, np.ones(3), "maxloc"))
    raised(TypeError, group.all_reduce, np.zeros(3, [("a", "O")]), later)
    raised(TypeError, group.all_gather, last)
    raised(TypeError, hocket.whole_rows, 3)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_records(world: Worlds, size: int) -> None:
    world(size).run(records)


def fields(group: Any) -> str:
    names = ["at", "index"][group.rank]
    x = np.zeros(3, [("value", "f8"), (names, "i8")])
    return str(raised(hocket.MismatchError, group.all_reduce, x, "maxloc"))


def test_other_fields_are_a_mismatch(world: Worlds) -> None:
    for text in world(2).run(fields, fresh=True):
        assert "index: int64" in text
