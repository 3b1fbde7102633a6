"""A plan that is wrong never runs, however it is named: an error on every rank, before anything is sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.plans import copy, inp, out, reduce
from hocket.plans.algorithms import ALGORITHMS, ring
from hocket.plans.plan import Plan
from worlds import Worlds, raised


def to_root(n: int) -> Any:
    """No all-reduce: the others never hear of the sum."""
    yield reduce(out(0), inp(np.arange(1, n)))


def twice(n: int) -> Any:
    """Rank 1 counts double, on rank 0."""
    yield from ring.all_reduce(n)
    yield reduce(out(0), inp(1))


def endless(n: int) -> Any:
    while True:
        yield copy(out(0), inp(0))


def forgetful(n: int) -> Any:
    yield copy(out(1), inp(0))
    yield


def halves(n: int) -> Any:
    yield copy(out(1 / 2), inp(0))  # type: ignore[arg-type]


def works(group: Any) -> None:
    """Nothing was sent, so nothing is broken."""
    for algorithm in (None, "ring"):
        assert group.all_reduce(np.arange(5) + group.rank, algorithm=algorithm)[1] == sum(range(1, group.size + 1))


def replaced(group: Any, name: str) -> list[str]:
    """A name that was right, and is right again later."""
    key, x, texts = ("all_reduce", name), np.ones(5), []
    right = ALGORITHMS[key]
    assert (group.all_reduce(x, algorithm=name) == group.size).all()
    try:
        for wrong in (to_root, twice):
            ALGORITHMS[key] = wrong
            for give in (x, x.astype("f4")):  # what was remembered of the first call does not matter
                for _ in range(2):
                    texts.append(str(raised(hocket.PlanError, group.all_reduce, give, algorithm=name)))
                    work = raised(hocket.PlanError, group.all_reduce, give, algorithm=name, async_op=True)
                    assert str(work) == texts[-1]
    finally:
        ALGORITHMS[key] = right
    works(group)
    return texts


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", ["naive", "ring", "two_shot"])
def test_a_wrong_function_called_by_name_is_refused(world: Worlds, name: str, size: int) -> None:
    first, *others = world(size).run(replaced, name)
    assert all(texts == first for texts in others)
    assert len(first) == 8
    assert all(f"Plan(all_reduce, {name}, size={size}" in text and "ends wrong" in text for text in first)


def new_name(group: Any) -> None:
    assert "mine" in str(raised(ValueError, group.all_reduce, 1, algorithm="mine"))
    ALGORITHMS["all_reduce", "mine"] = ring.all_reduce
    try:
        assert group.all_reduce(1, algorithm="mine") == group.size
    finally:
        del ALGORITHMS["all_reduce", "mine"]
    raised(ValueError, group.all_reduce, 1, algorithm="mine")


def test_a_new_name_is_seen(world: Worlds) -> None:
    world(3).run(new_name)


def never_ends(group: Any, timeout: float) -> str:
    begin = time.monotonic()
    error = raised(hocket.CollectiveTimeout, group.all_reduce, np.ones(3), algorithm=endless, timeout=timeout)
    assert time.monotonic() - begin < timeout + 10
    works(group)
    return str(error)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_plan_that_never_ends_obeys_the_deadline(world: Worlds, size: int) -> None:
    for text in world(size).run(never_ends, 0.2):
        assert text.startswith(
            f"all_reduce endless over {size} ranks timed out after 0.2 s: its algorithm was still making step "
        )


def mistakes(group: Any) -> list[str]:
    plan = Plan("all_reduce", "mine", group.size, 0, 1, partial(forgetful, group.size))
    errors = [raised(hocket.PlanError, group.all_reduce, 1, algorithm=wrong) for wrong in (forgetful, plan, halves)]
    works(group)
    return [str(error) for error in errors]


def test_mistakes_are_told_with_the_line(world: Worlds) -> None:
    def line(function: Callable[[int], Any], after: int) -> str:
        return f"test_proved.py:{function.__code__.co_firstlineno + after})"

    for one, two, three in world(2).run(mistakes):
        assert one.startswith("all_reduce forgetful over 2 ranks: step 1 is None, ")
        assert two.startswith("Plan(all_reduce, mine, size=2, chunks=1): step 1 is None, ")
        assert one.endswith(line(forgetful, 2))
        assert two.endswith(line(forgetful, 2))
        assert "not a whole number" in three
        assert line(halves, 1) in three


def shifted(by: int, n: int) -> Any:
    """A ring that begins elsewhere."""
    c = np.arange(n)
    for hop in range(2 * n - 2):
        here, there = (c + hop + by) % n, (c + hop + by + 1) % n
        yield (reduce if hop < n - 1 else copy)(out(there, c), out(here, c))


def partials(group: Any, differ: bool) -> str:
    x = np.arange(7) + group.rank
    for _ in range(2):
        y = group.all_reduce(x, algorithm=partial(shifted, 1))
        assert y.tolist() == (np.arange(7) * group.size + sum(range(group.size))).tolist()
    if not differ:
        return ""
    return str(raised(hocket.MismatchError, group.all_reduce, x, algorithm=partial(shifted, group.rank)))


def test_a_partial_is_an_algorithm(world: Worlds) -> None:
    world(3).run(partials, False)
    assert all("algorithm='shifted'" in text for text in world(3).run(partials, True, fresh=True))
