"""Long sums are right in every call of the first two hundred, in which calls find out how their messages go: staged, or
past the caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from worlds import Worlds

CALLS = 200  # as many as three ways are tried in, and some more
COUNT = 4 * (40 << 10) // 8 + 5  # elements, of which a quarter is more than the shortest message that is tried


def given(rank: int, call: int, count: int) -> Any:
    """Tells ranks, calls and places apart; small enough to be summed exactly."""
    return (np.arange(count, dtype=np.int64) * (2 * rank + 3) + 7919 * call) % 100003


def summed(group: Any, name: str, algorithm: str | None, in_place: bool) -> list[int]:
    """The calls whose result was wrong on this rank."""
    options = {"algorithm": algorithm} if algorithm else {}
    wrong = []
    for call in range(CALLS):
        count = COUNT // group.size * group.size if name == "reduce_scatter" else COUNT
        parts = [given(rank, call, count) for rank in range(group.size)]
        x, total = parts[group.rank].copy(), sum(parts)
        if name == "reduce":
            root = call % group.size
            got = group.reduce(x, root=root, **options)
            right = got is None if group.rank != root else np.array_equal(got, total)
        elif name == "reduce_scatter":
            right = np.array_equal(group.reduce_scatter(x, **options), np.split(total, group.size)[group.rank])
        else:
            got = group.all_reduce(x, out=x if in_place else None, **options)
            right = np.array_equal(got, total)
        if not right:
            wrong.append(call)
    return wrong


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("name", "algorithm", "in_place"),
    [
        ("all_reduce", "one_shot", False),
        ("all_reduce", "two_shot", True),
        ("all_reduce", "two_shot", False),
        ("all_reduce", "ring", True),
        ("reduce", None, False),
        ("reduce_scatter", None, False),
    ],
)
def test_long_sums_are_right_in_every_call(
    world: Worlds, size: int, name: str, algorithm: str | None, in_place: bool
) -> None:
    for wrong in world(size).run(summed, name, algorithm, in_place):
        assert wrong == []
