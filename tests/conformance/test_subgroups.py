"""Groups within groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import agree

from worlds import SIZES, Worlds


def total(group: Any, value: Any) -> list[int]:
    return group.all_reduce(np.array([value, 1], "i8")).tolist()  # type: ignore[no-any-return]


def some(group: Any, ranks: list[int]) -> None:
    sub = group.subgroup(ranks)
    if group.rank not in ranks:
        assert sub is None
    else:
        assert (sub.rank, sub.size) == (ranks.index(group.rank), len(ranks))
        assert total(sub, group.rank) == [sum(ranks), len(ranks)]
        agree(sub.all_gather(group.rank), np.array(ranks, "i8"))
        assert sub.broadcast(group.rank, root=len(ranks) - 1) == ranks[-1]
        sub.barrier()
    assert total(group, group.rank) == [sum(range(group.size)), group.size]
    if sub is not None:
        assert total(sub, 2) == [2 * len(ranks), len(ranks)]
        sub.close()
    assert total(group, 1) == [group.size, group.size]


@pytest.mark.parametrize(
    ("size", "ranks"),
    [(1, [0]), (2, [1]), (2, [1, 0]), (3, [0, 2]), (4, [3, 1]), (5, [4, 2, 0]), (8, [7, 0, 3, 5]), (4, [0, 1, 2, 3])],
)
def test_a_subgroup_has_the_order_of_the_list_and_is_none_for_the_others(
    world: Worlds, size: int, ranks: list[int]
) -> None:
    world(size).run(some, ranks)


def halves(group: Any) -> None:
    color, key = group.rank % 2, -group.rank
    sub = group.split(color, key)
    ranks = [rank for rank in range(group.size) if rank % 2 == color][::-1]
    assert (sub.rank, sub.size) == (ranks.index(group.rank), len(ranks))
    agree(sub.all_gather(group.rank), np.array(ranks, "i8"))
    by_rank = group.split(color, 0)  # equal keys: the order of ranks in the parent
    agree(by_rank.all_gather(group.rank), np.array(ranks[::-1], "i8"))
    alone = group.split(group.rank, 0)
    assert alone.size == 1
    assert total(alone, 5) == [5, 1]
    nobody = group.split(None if group.rank == 0 else 7, group.rank)
    assert (nobody is None) == (group.rank == 0)
    if nobody is not None:
        agree(nobody.all_gather(group.rank), np.arange(1, group.size))
    assert total(group, 1) == [group.size, group.size]


@pytest.mark.parametrize("size", SIZES)
def test_split_by_color_and_key(world: Worlds, size: int) -> None:
    world(size).run(halves)


def nested(group: Any) -> None:
    """Down to one, each half of the half before."""
    here, ranks = group, list(range(group.size))
    while here.size > 1:
        half = here.rank * 2 // here.size
        ranks = [rank for i, rank in enumerate(ranks) if i * 2 // here.size == half]
        here = here.split(half, here.rank)
        agree(here.all_gather(group.rank), np.array(ranks, "i8"))
    assert total(group, 1) == [group.size, group.size]
    inner = group.subgroup(range(group.size)).subgroup([group.size - 1])
    assert (inner is None) == (group.rank != group.size - 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_subgroup_of_a_subgroup(world: Worlds, size: int) -> None:
    world(size).run(nested)


def at_once(group: Any) -> None:
    """Rows, columns and the whole grid, all in flight at the same time."""
    row, column = group.split(group.rank // 2, group.rank), group.split(group.rank % 2, group.rank)
    for turn in range(30):
        count = (1, 5000)[turn % 2]
        x = np.full(count, group.rank + turn, "i8")
        works = [g.all_reduce(x, async_op=True) for g in (row, group, column)[:: 1 if group.rank % 3 else -1]]
        sums = [int(work.wait()[-1]) for work in works][:: 1 if group.rank % 3 else -1]
        mine = [group.rank // 2 * 2 + i for i in range(row.size)], list(range(group.size))
        others = [r for r in range(group.size) if r % 2 == group.rank % 2]
        assert sums == [sum(r + turn for r in ranks) for ranks in (*mine, others)]


@pytest.mark.parametrize("size", [4, 8])
def test_two_subgroups_and_the_parent_at_once(world: Worlds, size: int) -> None:
    world(size).run(at_once)


def independent(group: Any) -> None:
    """Halves make different numbers of calls, and messages of one group do not reach another."""
    sub = group.split(group.rank % 2, group.rank)
    for turn in range(1 + 10 * (group.rank % 2)):
        assert total(sub, turn) == [turn * sub.size, sub.size]
    if sub.size > 1 and sub.rank < 2:
        other = 1 - sub.rank
        to = group.rank % 2 + 2 * other
        group.send(np.array([1]), to, tag=5)
        sub.send(np.array([2]), other, tag=5)
        agree(sub.recv(other, tag=5), np.array([2]))
        agree(group.recv(to, tag=5), np.array([1]))
    assert total(group, 1) == [group.size, group.size]


@pytest.mark.parametrize("size", [2, 4, 5])
def test_groups_are_independent(world: Worlds, size: int) -> None:
    world(size).run(independent)


def bad(group: Any) -> None:
    for ranks in ([], [group.size], [-1], [0, 0]):
        with pytest.raises(ValueError):
            group.subgroup(ranks)
    with pytest.raises(TypeError):
        group.subgroup("01")
    for color, key in (("red", 0), (1.5, 0), (0, "first"), (0, 1.5)):
        with pytest.raises(TypeError):
            group.split(color, key)
    assert total(group, 1) == [group.size, group.size]


def test_bad_arguments_leave_the_group_usable(world: Worlds) -> None:
    world(2).run(bad)


def different_lists(group: Any) -> str:
    import hocket

    with pytest.raises(hocket.MismatchError) as caught:
        group.subgroup([0, 1] if group.rank == 0 else [1, 0])
    return str(caught.value)


def test_different_lists_are_a_mismatch(world: Worlds) -> None:
    for text in world(2).run(different_lists, fresh=True):
        assert "[0, 1]" in text
        assert "[1, 0]" in text
