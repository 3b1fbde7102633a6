"""As many elements in another shape is another call; and no more than that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hocket
from moments import ours, seconds
from worlds import World

Own = Callable[[int], World]

PAIRS = [((2, 6), (6, 2)), ((2, 6), (4, 3)), ((12,), (4, 3)), ((2, 6), (2, 6, 1)), ((2, 0, 3), (2, 3, 0))]
METHODS = ["all_reduce", "reduce", "all_gather", "gather", "reduce_scatter", "all_to_all", "broadcast"]


def differ(group: Any, method: str, shapes: Any, way: str) -> Any:
    """A rank whose part is over before the others come (a root that only sends) hears of it in the next call."""
    x = np.ones(shapes[1] if group.rank == group.size - 1 else shapes[0])
    for _ in range(3 if way == "remembered" else 0):  # the shape of all is a remembered call on each rank
        for shape in shapes:
            getattr(group, method)(np.ones(shape))
    if way == "arena":
        x, values = group.empty(x.shape, "float64"), x
        x[:] = values

    def call() -> Any:
        result = getattr(group, method)(x, async_op=way == "async")
        result = result.wait() if way == "async" else result
        group.barrier()
        return result

    result, took = seconds(call)
    assert took < 10
    return (type(result).__name__, str(result)) if isinstance(result, BaseException) else ("none", "")


@pytest.mark.parametrize("way", ["plain", "async", "arena", "remembered"])
@pytest.mark.parametrize("method", METHODS)
def test_another_shape_is_a_mismatch(own: Own, method: str, way: str) -> None:
    world = own(2)
    for shapes in PAIRS if way == "plain" else PAIRS[:1]:
        for kind, text in world.run(differ, method, shapes, way, fresh=True, deadline=30):
            assert kind == "MismatchError", (shapes, kind, text)
            for shape in shapes:
                numbers = ", ".join(map(str, shape))
                assert re.search(rf"[\[(]{numbers},?[\])]", text), (shapes, text)


def test_another_shape_among_three(own: Own) -> None:
    for kind, text in own(3).run(differ, "all_reduce", ((2, 6), (6, 2)), "plain", fresh=True, deadline=30):
        assert kind == "MismatchError"
        assert "2, 6" in text
        assert "6, 2" in text


def alike(group: Any) -> None:
    n, rank = group.size, group.rank
    total = n * (n - 1) // 2
    assert group.all_reduce(np.array(rank)).shape == ()
    assert group.all_reduce(rank) == total
    assert group.all_gather(np.array(rank)).tolist() == list(range(n))
    assert group.all_gather(np.array([rank])).tolist() == list(range(n))
    for shape in ((0,), (n, 0), (n, 2, 1), (2 * n, 3)):
        x = np.full(shape, rank)
        assert (group.all_reduce(x) == total).all()
        assert group.all_gather(x).shape == (n * shape[0], *shape[1:])
        assert group.all_reduce(np.asfortranarray(x)).shape == shape
        assert group.broadcast(x if rank == 0 else None).shape == shape
        assert group.broadcast(x).shape == shape
        assert group.reduce_scatter(x).shape == (shape[0] // n, *shape[1:])
        assert group.all_to_all(x).shape == shape
    rows = [r + 1 for r in range(n)]
    assert group.all_gather(np.ones((rows[rank], 3)), sizes=rows).shape == (sum(rows), 3)
    assert group.reduce_scatter(np.ones((sum(rows), 3)), sizes=rows).shape == (rows[rank], 3)
    mine = [rank + r for r in range(n)]
    assert group.all_to_all(np.ones((sum(mine), 2)), sizes=mine).shape == (sum(mine), 2)
    parts = group.scatter(np.ones((2 * n, 3)) if rank == 0 else np.ones(1))  # ignored off the root
    assert parts.shape == (2, 3)
    out = np.empty((2, 3))
    assert group.all_reduce(np.ones((2, 3)), out=out) is out
    assert group.all_reduce(np.ones((3, 2)).T, out=out) is out


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_is_alike_passes(own: Own, size: int) -> None:
    own(size).run(alike, deadline=30)


def given_out(group: Any) -> None:
    """An `out` of another shape than the result is a bad argument, on the rank that gives it."""
    if group.rank == 0:
        error, _ = seconds(lambda: group.all_reduce(np.ones((2, 3)), out=np.ones((3, 2))))
        assert isinstance(error, ValueError)
        assert not ours(error)
        assert not isinstance(error, hocket.HocketError)
    assert group.all_reduce(1) == 2


def test_an_out_of_another_shape_is_refused(own: Own) -> None:
    own(2).run(given_out, deadline=30)
