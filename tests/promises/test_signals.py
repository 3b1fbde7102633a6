"""Signal handlers that use the group in which their thread waits: it works, or one sentence says that it cannot."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from moments import Signs, asleep, ours, seconds, until
from worlds import World

Own = Callable[[int], World]

# What rank 0 waits in, and what its handler does. Rank 1 makes its part of either when the handler is through.
WAITS: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "all_reduce": lambda group, x: group.all_reduce(x),
    "large": lambda group, x: group.all_reduce(np.ones(2**20)),
    "barrier": lambda group, x: group.barrier(),
    "async": lambda group, x: group.all_reduce(x, async_op=True).wait(),
    "recv": lambda group, x: group.recv(1, tag=1) if group.rank == 0 else group.send(x, 0, tag=1),
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda group: group.all_reduce(np.ones(5), timeout=4),
    "barrier": lambda group: group.barrier(timeout=4),
    "async": lambda group: group.all_reduce(np.ones(5), async_op=True, timeout=4),
    "async wait": lambda group: group.all_reduce(np.ones(5), async_op=True, timeout=4).wait(),
    "send": lambda group: group.send(np.arange(4), 1, tag=2, timeout=4),
    "recv": lambda group: group.recv(1, tag=3, timeout=4),
    "subgroup": lambda group: group.subgroup([0, 1]),
}
JOINED = ("all_reduce", "barrier", "async wait", "subgroup")  # in which rank 1 is needed before they end


def signalled(world: World, signs: Signs, number: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run `function(group, signs, *args)`, and send the signal to rank 0 when that says it waits, and sleeps."""
    world.start(function, signs, *args)
    pid = world.processes[0].pid
    signs.wait(f"waiting {pid}")
    asleep(pid, pid)
    world.signal(0, number)
    outcomes = world.finish(25)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def answer(group: Any, call: str, worked: bool) -> None:
    """Rank 1's part of what the handler did, afterwards."""
    if call == "send" and worked:
        assert group.recv(0, tag=2).tolist() == [0, 1, 2, 3]
    elif call.startswith("async") and worked:
        group.all_reduce(np.ones(5))


def interrupted(group: Any, signs: Signs, wait: str, call: str) -> tuple[str, str, float] | None:
    x = np.arange(300.0)
    group.all_reduce(x)
    if group.rank == 1:
        if call == "recv":
            group.send(np.arange(4), 0, tag=3)
        joins = wait == "recv" and call in JOINED
        if joins:  # a collective beside a recv may well work: its other half comes when the handler waits for it
            signs.wait("entered")
            end = time.monotonic() + 1
            until(lambda: signs.given("handled") or time.monotonic() > end, "the handler at rest")
            joins = not signs.given("handled")
            if joins:
                CALLS[call](group)
        signs.wait("handled")
        WAITS[wait](group, x)
        if not joins:
            answer(group, call, signs.given("worked"))
        check(group)
        return None
    outcome: list[Any] = []
    left: list[Any] = []

    def handler(number: int, frame: Any) -> None:
        signs.give("entered")
        result, took = seconds(lambda: CALLS[call](group))
        if not isinstance(result, BaseException):
            signs.give("worked")
            left.append(result)
            outcome.append(("worked", "", took))
        else:
            outcome.append((type(result).__name__ if ours(result) else f"raw {type(result)}", str(result), took))
        signs.give("handled")

    signal.signal(signal.SIGUSR2, handler)
    signs.give(f"waiting {os.getpid()}")
    WAITS[wait](group, x)
    for result in left:
        if hasattr(result, "wait"):
            result.wait()
    if call == "recv" and outcome[0][0] != "worked":
        assert group.recv(1, tag=3).tolist() == [0, 1, 2, 3]  # the message is still there
    check(group)
    return outcome[0]


def check(group: Any) -> None:
    for turn in range(5):
        assert group.all_reduce(group.rank + turn) == 2 * turn + 1
        assert (group.all_reduce(np.full(70_000, group.rank), async_op=True).wait() == 1).all()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("wait", WAITS)
def test_a_handler_that_calls(own: Own, signs: Signs, wait: str, call: str) -> None:
    (kind, text, took), _ = signalled(own(2), signs, signal.SIGUSR2, interrupted, wait, call)
    assert kind == "worked" or ("raw" not in kind and "Timeout" not in kind), (kind, text)
    assert took < 3, f"{kind} after {took} s"
    assert "\n" not in text


def let_through(group: Any, signs: Signs, wait: str) -> str:
    """The handler does not catch what its call raises: the wait that it interrupted raises it."""
    x = np.arange(300.0)
    if group.rank == 1:
        signs.wait("handled")
        result, _ = seconds(lambda: WAITS[wait](group, x))
        assert not isinstance(result, BaseException) or ours(result), repr(result)
        return ""

    def handler(number: int, frame: Any) -> None:
        try:
            group.barrier(timeout=4)
        finally:
            signs.give("handled")

    signal.signal(signal.SIGUSR2, handler)
    signs.give(f"waiting {os.getpid()}")
    result, took = seconds(lambda: WAITS[wait](group, x))
    assert took < 15
    return type(result).__name__ if ours(result) else repr(result)


@pytest.mark.parametrize("wait", ["all_reduce", "barrier", "async"])
def test_an_error_of_a_handler_goes_through(own: Own, signs: Signs, wait: str) -> None:
    outcomes = signalled(own(2), signs, signal.SIGUSR2, let_through, wait)
    assert outcomes[0] in ("HocketError", "GroupBroken"), outcomes[0]


# Who meets the interruption of an asynchronous call: the thread that makes it, which is the one that waits for it, the
# engine, or one that makes the next call.
MEETS: dict[str, Callable[[Any, Any, np.ndarray], Any]] = {
    "its wait": lambda group, work, x: work.wait(),
    "a later wait": lambda group, work, x: group.all_reduce(x, async_op=True).wait(),
    "a later call": lambda group, work, x: group.barrier(),
    "its wait for a while": lambda group, work, x: work.wait(20),
}


def ctrl_c(group: Any, signs: Signs, meets: str) -> tuple[str, str]:
    x = np.arange(300.0)
    for _ in range(10):  # so that it is known to be waited for, and left to who waits
        group.all_reduce(x, async_op=True).wait()
    if group.rank == 1:
        signs.wait("interrupted")
        result, work = None, group.all_reduce(x, async_op=True)
    else:
        work = group.all_reduce(x, async_op=True)
        signs.give(f"waiting {os.getpid()}")
        result, _ = seconds(lambda: MEETS[meets](group, work, x))
        signs.give("interrupted")
    end, _ = seconds(work.wait)
    failed = isinstance(end, BaseException)
    assert (isinstance(end, KeyboardInterrupt) or ours(end)) if failed else (end == 2 * x).all(), end
    return type(result).__name__, "error" if failed else "sum"


@pytest.mark.parametrize("meets", MEETS)
def test_ctrl_c_in_an_asynchronous_call(own: Own, signs: Signs, meets: str) -> None:
    """It ends the call where the thread that is interrupted makes it, and only the wait where the engine does."""
    (kind, end), (_, other) = signalled(own(2), signs, signal.SIGINT, ctrl_c, meets)
    assert kind == "KeyboardInterrupt"
    assert end == other


EXITS: dict[str, Callable[[Any, np.ndarray, Any], Any]] = {
    "wait": lambda group, x, op: group.all_reduce(x, op=op, async_op=True).wait(),
    "call": lambda group, x, op: (group.all_reduce(x, op=op, async_op=True), group.barrier()),
    "plain": lambda group, x, op: group.all_reduce(x, op=op),
}


def leave(group: Any, how: str, know: bool) -> tuple[str, str]:
    x = np.arange(300.0)

    def op(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        if state:
            raise SystemExit(7)
        np.add(a, b, out=out)

    state: list[int] = []
    for _ in range(10 if know else 0):
        group.all_reduce(x, op=op, async_op=True).wait()
    if group.rank == 0:
        state.append(1)
    result, _ = seconds(lambda: EXITS[how](group, x, op))
    if group.rank == 1:  # it may have had all of rank 0's part by then
        result, _ = seconds(group.barrier)
    return type(result).__name__, str(result)


@pytest.mark.parametrize("know", [False, True], ids=["engine", "waiter"])
@pytest.mark.parametrize("how", EXITS)
def test_an_operator_that_exits(own: Own, how: str, know: bool) -> None:
    """On whichever thread it runs, the error comes out, and no rank dies of it."""
    (kind, text), (other, said) = own(2).run(leave, how, know)
    assert (kind, text) == ("SystemExit", "7") or "SystemExit" in text, (kind, text)
    assert "rank 0" in said, (other, said)
