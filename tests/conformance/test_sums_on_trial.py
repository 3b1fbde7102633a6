"""Long sums are right in every call of the first two hundred, in which calls find out how their messages go: staged, or
past the caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from worlds import World

CALLS = 200  # as many as three ways are tried in, and some more
COUNT = 4 * (40 << 10) // 8 + 5  # elements, of which a quarter is more than the shortest message that is tried
KINDS = [  # collective, algorithm, in place
    ("all_reduce", "one_shot", False),
    ("all_reduce", "two_shot", True),
    ("all_reduce", "two_shot", False),
    ("all_reduce", "ring", True),
    ("reduce", None, False),
    ("reduce_scatter", None, False),
]


@pytest.fixture(scope="module")
def transport() -> str:
    """Nothing is tried over another one."""
    return "shm"


def given(rank: int, call: int, count: int) -> Any:
    """Tells ranks, calls and places apart; small enough to be summed exactly."""
    return (np.arange(count, dtype=np.int64) * (2 * rank + 3) + 7919 * call) % 100003


def wrong_calls(group: Any, name: str, algorithm: str | None, in_place: bool) -> list[int]:
    """The calls whose result was wrong on this rank."""
    options = {"algorithm": algorithm} if algorithm else {}
    wrong = []
    for call in range(CALLS):
        count = COUNT // group.size * group.size if name == "reduce_scatter" else COUNT
        parts = [given(rank, call, count) for rank in range(group.size)]
        x, total = parts[group.rank].copy(), sum(parts)
        if name == "reduce":
            root = call % 2
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


def all_wrong(group: Any) -> dict[str, list[int]]:
    return {str(kind): wrong for kind in KINDS if (wrong := wrong_calls(group, *kind))}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_long_sums_are_right_in_every_call(own: Callable[[int], World], size: int) -> None:
    assert own(size).run(all_wrong) == [{}] * size
