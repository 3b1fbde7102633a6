"""An operator that makes a call of the group it works for: one sentence says that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hocket
from moments import gate, gated, ours, seconds
from worlds import World

Own = Callable[[int], World]

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "all_reduce": lambda group, again: group.all_reduce(np.ones(4), timeout=4),
    "the same": lambda group, again: group.all_reduce(np.ones(1000), op=gated, timeout=4),
    "barrier": lambda group, again: group.barrier(timeout=4),
    "scatter": lambda group, again: group.scatter(None, root=0, timeout=4),
    "async wait": lambda group, again: group.all_reduce(np.ones(4), async_op=True, timeout=4).wait(),
    "async": lambda group, again: group.all_reduce(np.ones(4), async_op=True, timeout=4),
    "subgroup": lambda group, again: group.subgroup([0, 1]),
    "persistent": lambda group, again: again(),
    "close": lambda group, again: group.close(),
}


def caught(group: Any, call: str, way: str) -> tuple[str, str, float] | None:
    """Rank 1's operator calls, and catches what comes of it: the call that it works for goes on."""
    x = np.arange(1000.0)
    again = group.all_reduce_init(x.copy())
    again()
    group.all_reduce(x, op=gated)
    found: list[Any] = []
    if group.rank == 1:
        gate(lambda: found.append(seconds(lambda: CALLS[call](group, again))))
    work = group.all_reduce(x, op=gated, async_op=way == "async")
    result = work.wait() if way == "async" else work
    assert (result == 2 * x).all()
    assert group.all_reduce(group.rank) == 1
    assert (group.all_reduce(x, async_op=True).wait() == 2 * x).all()
    if group.rank == 0:
        return None
    error, took = found[0]
    return f"{type(error).__name__}" if ours(error) else f"raw {error!r}", str(error), took


@pytest.mark.parametrize("way", ["blocking", "async"])
@pytest.mark.parametrize("call", CALLS)
def test_an_operator_that_calls_its_group_is_refused(own: Own, call: str, way: str) -> None:
    kind, text, took = own(2).run(caught, call, way, deadline=20)[1]
    assert kind in ("HocketError", "GroupBroken"), (kind, text)
    assert "operator" in text
    assert "\n" not in text
    assert took < 2


def let_through(group: Any, call: str) -> tuple[str, str, float]:
    x = np.arange(1000.0)
    again = group.all_reduce_init(x.copy())
    again()
    group.all_reduce(x, op=gated)
    if group.rank == 1:
        gate(lambda: CALLS[call](group, again))
    result, took = seconds(lambda: (group.all_reduce(x, op=gated), group.barrier()))
    assert isinstance(result, hocket.HocketError), repr(result)
    return type(result).__name__ if ours(result) else repr(result), str(result), took


@pytest.mark.parametrize("call", ["all_reduce", "async wait", "barrier"])
def test_what_it_raises_ends_the_call_everywhere(own: Own, call: str) -> None:
    outcomes = own(2).run(let_through, call, deadline=20)
    for _, text, took in outcomes:
        assert "operator" in text
        assert took < 3
    assert "rank 1" in outcomes[0][1]


def another_group(group: Any) -> None:
    """A call of another group is no harm."""
    part = group.subgroup([0, 1])
    x = np.arange(10.0)
    sums: list[float] = []
    gate(lambda: sums.append(float(part.all_reduce(3.0))))
    assert (group.all_reduce(x, op=gated, algorithm="one_shot") == 2 * x).all()  # every rank has an operator's turn
    assert sums == [6.0]


def test_an_operator_may_call_another_group(own: Own) -> None:
    own(2).run(another_group, deadline=20)
