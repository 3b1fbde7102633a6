"""Calls that are prepared once: the same as those of the same name, of what the arrays hold at each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from worlds import Worlds, raised

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
OTHERS = ("broadcast", "gather", "all_gather", "all_to_all")


def same(got: Any, wanted: Any) -> bool:
    if wanted is None:
        return got is None
    return got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes()


def again_and_again(group: Any) -> None:
    n, rank = group.size, group.rank
    for name in (*REDUCTIONS, *OTHERS):
        for dtype, step in (("i8", 1), ("f4", 2)):
            memory = np.arange(12 * n * step, dtype=dtype).reshape(-1, step)
            x = memory[:, 0]  # a view that needs a copy, and one that does not
            options: dict[str, Any] = {"op": "max"} if name in REDUCTIONS and dtype == "f4" else {}
            if name in ("reduce", "broadcast", "gather"):
                options["root"] = n - 1
            call, method = getattr(group, f"{name}_init")(x, **options), getattr(group, name)
            results = []
            for turn in range(4):
                memory += rank * 3 + turn
                results.append(call())
                assert same(results[-1], method(x, **options)), (name, dtype, turn)
                if turn == 1:
                    group.barrier()
            assert all(result is results[0] for result in results), name
    x, out = np.full(5, rank), np.zeros(5, int)
    assert group.all_reduce_init(x, out=out)() is out
    call = group.all_reduce_init(x, out=x)
    assert call() is x
    assert call()[0] == n * sum(range(n))
    assert group.barrier_init()() is None
    assert group.all_reduce_init(rank)() == sum(range(n))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_same_as_the_calls_of_that_name(world: Worlds, size: int) -> None:
    world(size).run(again_and_again)


def uneven(group: Any) -> None:
    n, rank = group.size, group.rank
    sizes = [2 * r for r in range(n)]
    x = np.arange(sizes[rank]) + rank
    for _ in range(2):
        joined = group.all_gather_init(x, sizes=sizes)()
        assert same(joined, group.all_gather(x, sizes=sizes))
        whole = np.arange(sum(sizes)) * 1.5
        for root in range(n):
            part = np.zeros(sizes[rank])
            given = whole if rank == root else None
            call = group.scatter_init(given, root=root, sizes=sizes, out=part)
            assert call() is part
            assert same(part, group.scatter(given, root=root, sizes=sizes))
            even = group.scatter_init(np.arange(3 * n) if rank == root else None, root=root, out=np.zeros(3, int))
            assert even().tolist() == list(range(3 * rank, 3 * rank + 3))
        assert same(group.reduce_scatter_init(whole, sizes=sizes)(), group.reduce_scatter(whole, sizes=sizes))
    got = group.broadcast_init(np.ones(3) if rank == 0 else None, out=np.zeros(3))()
    assert got.tolist() == [1, 1, 1]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_uneven_parts_and_roots(world: Worlds, size: int) -> None:
    world(size).run(uneven)


def refused(group: Any) -> None:
    root = 1 - group.rank
    assert "x or out" in str(raised(TypeError, group.broadcast_init, root=root))
    assert "off the root give out" in str(raised(TypeError, group.scatter_init, root=root))
    assert "must give the array" in str(raised(TypeError, group.scatter_init, root=group.rank))
    raised(ValueError, group.all_to_all_init, np.ones(3))
    raised(ValueError, group.scan_init, np.ones(3), op="mean")
    raised(ValueError, group.reduce_init, np.ones(3), root=2)
    assert group.all_reduce(1) == 2  # nothing was sent


def test_what_is_wrong_is_refused_at_once(world: Worlds) -> None:
    world(2).run(refused)
