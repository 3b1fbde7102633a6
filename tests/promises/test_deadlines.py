"""A deadline begins when the user makes the call, and whatever holds the call up, it ends by then."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import run

import hocket
from hocket.plans import copy, inp, out
from moments import Signs, gate, gated, ours, seconds
from worlds import World, raised

Own = Callable[[int], World]
SLACK = 1.0  # seconds that a call may take beyond its deadline, on a busy machine


# ---- a call that waits for another thread's ------------------------------------------------------------------------


def behind_a_long_call(group: Any, signs: Signs, way: str) -> tuple[str, float]:
    """Thread A is in a call whose operator lasts until thread B has given up, or for 6 seconds."""
    x = np.ones(1000)
    group.all_reduce(x, op=gated)
    if group.rank == 1:
        result, _ = seconds(lambda: group.all_reduce(x, op=gated))
        assert not isinstance(result, BaseException) or ours(result), repr(result)
        signs.wait("B is over")
        return "", 0.0

    def hold() -> None:
        signs.give("inside")
        end = time.monotonic() + 6
        while not signs.given("B is over") and time.monotonic() < end:
            time.sleep(0.01)

    gate(hold)
    a_result: list[Any] = []
    a = threading.Thread(target=lambda: a_result.append(seconds(lambda: group.all_reduce(x, op=gated))[0]))
    a.start()
    signs.wait("inside")
    calls: dict[str, Callable[[], Any]] = {
        "blocking": lambda: group.all_reduce(x, timeout=0.5),
        "async": lambda: group.all_reduce(x, timeout=0.5, async_op=True).wait(),
        "barrier": lambda: group.barrier(timeout=0.5),
        "scatter": lambda: group.scatter(None, root=1, timeout=0.5),
        "persistent": group.all_reduce_init(x),
        "subgroup": lambda: group.subgroup([0, 1]),
    }
    group.timeout = 0.5
    result, took = seconds(calls[way])
    signs.give("B is over")
    a.join(20)
    assert not a.is_alive()
    assert not isinstance(a_result[0], BaseException) or ours(a_result[0]), repr(a_result[0])
    return type(result).__name__, took


@pytest.mark.parametrize("way", ["blocking", "async", "barrier", "scatter", "persistent", "subgroup"])
def test_a_call_behind_a_long_one_ends_by_its_own_deadline(own: Own, signs: Signs, way: str) -> None:
    (kind, took), _ = own(2).run(behind_a_long_call, signs, way, deadline=40)
    assert kind == "CollectiveTimeout"
    assert took < 0.5 + SLACK


# ---- plans and operators that do not end -----------------------------------------------------------------------------


def endless_copies(n: int) -> Iterator[Any]:
    c = np.arange(n)
    while True:
        yield copy(out((c + 1) % n, 0), inp(c, 0))


def endless_nothing(n: int) -> Iterator[Any]:
    while True:
        yield ()


def never_planned(group: Any, algorithm: Any) -> tuple[str, float]:
    result, took = seconds(lambda: group.all_gather(np.ones(4), algorithm=algorithm, timeout=1.0))
    assert ours(result) or isinstance(result, TypeError), repr(result)
    return type(result).__name__, took


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("algorithm", [endless_copies, endless_nothing])
def test_a_plan_without_end_ends(own: Own, algorithm: Any, size: int) -> None:
    for kind, took in own(size).run(never_planned, algorithm, deadline=12):
        assert kind in ("PlanError", "CollectiveTimeout", "TypeError")
        assert took < 1.0 + 2 * SLACK


def overrun(group: Any, count: int) -> str:
    """Rank 1's operator lasts longer than its call may."""
    x = np.ones(count)
    group.all_reduce(x, op=gated)
    if group.rank == 0:
        result, _ = seconds(lambda: group.all_reduce(x, op=gated, timeout=30))
        group_is_over = raised(hocket.HocketError, group.barrier, timeout=10)
        assert ours(group_is_over)
        return type(result).__name__

    def hold() -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            time.sleep(0.01)

    gate(hold)
    result, _ = seconds(lambda: group.all_reduce(x, op=gated, timeout=0.4))
    return type(result).__name__


@pytest.mark.parametrize("count", [10, 2**19])
def test_an_operator_that_overruns_is_a_timeout(own: Own, count: int) -> None:
    zero, one = own(2).run(overrun, count, deadline=40)
    assert one == "CollectiveTimeout"
    assert zero != "PeerLost"


def waited_for(group: Any) -> tuple[str, bool]:
    """An asynchronous call that overruns its deadline is waited for with more patience than that."""
    x = np.ones(10)
    group.all_reduce(x, op=gated)

    def hold() -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            time.sleep(0.01)

    gate(hold)
    work = group.all_reduce(x, op=gated, timeout=0.4, async_op=True)
    error = raised(hocket.HocketError, work.wait, 30.0)
    return str(error), work.done()


def test_a_wait_that_may_last_does_not_end_before_its_call(own: Own) -> None:
    """So that after it the arrays of the call are the caller's."""
    for text, done in own(2).run(waited_for, deadline=40):
        assert done, text
        assert "still in flight" not in text


# ---- leaving with calls in flight ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["with", "bare"])
@pytest.mark.parametrize("calls", [1, 3])
def test_an_uncaught_error_does_not_wait_for_calls_in_flight(form: str, calls: int, tmp_path: Path) -> None:
    """The peer never joins them."""
    body = f"""
    if rank == 0:
        works = [group.all_reduce(np.ones(1000), async_op=True, timeout=30) for _ in range({calls})]
        print("at", time.monotonic(), flush=True)
        raise RuntimeError("spilled the milk")
    signal.pause()
"""
    head = "with hocket.init() as group:" if form == "with" else "group = hocket.init()\nif True:"
    ended = run(tmp_path, head + body, ranks=2, limit=45)
    found = re.search(r"at ([\d.]+)", ended.out)
    assert found
    assert ended.code == 1
    assert "RuntimeError: spilled the milk" in ended.err
    assert "line" in ended.err
    assert ended.at - float(found[1]) < 3


def test_an_uncaught_error_with_a_call_in_flight_in_a_process_of_its_own(tmp_path: Path) -> None:
    """As it is without a launcher that ends the job: the rank alone must end."""
    text = """
    context = multiprocessing.get_context("fork")
    def main(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                          MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID=f"storm.{os.getppid()}")
        group = hocket.init()
        if rank == 1:
            signal.pause()
        work = group.all_reduce(np.ones(1000), async_op=True, timeout=30)
        say("at", time.monotonic())
        raise RuntimeError("spilled the milk")
    other = os.fork()
    if other == 0:
        main(1)
    mine = os.fork()
    if mine == 0:
        main(0)
    _, status = os.waitpid(mine, 0)
    say("code", os.waitstatus_to_exitcode(status), time.monotonic())
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    """
    ended = run(tmp_path, text, limit=50)
    begin, code, end = re.findall(r"[\d.]+", ended.out)
    assert code == "1"
    assert "RuntimeError: spilled the milk" in ended.err
    assert float(end) - float(begin) < 3


# ---- what a timeout may be -------------------------------------------------------------------------------------------


def good_timeouts(group: Any) -> None:
    for number, timeout in enumerate((float("inf"), 1e10, 1e300, np.float32(5), np.float64(5), np.int64(3), 3, 0.9)):
        x = np.full(500, group.rank)
        assert (group.all_reduce(x, timeout=timeout) == 1).all()
        assert (group.all_reduce(x, timeout=timeout, async_op=True).wait(timeout) == 1).all()
        group.barrier(timeout=timeout)
        group.broadcast(None if group.rank else x, timeout=timeout)
        if group.rank:
            group.send(x, 0, tag=number, timeout=timeout)
        else:
            assert (group.recv(1, tag=number, timeout=timeout) == 1).all()
            assert group.recv(0, tag=1, timeout=0.05, async_op=True).exception(timeout) is not None
        before = group.timeout
        group.timeout = timeout
        assert (group.all_reduce(x) == 1).all()
        with group.split(0) as part:
            assert (part.all_reduce(x) == 1).all()
        group.timeout = before


def test_numbers_that_are_good_timeouts(own: Own) -> None:
    own(2).run(good_timeouts, deadline=40)


WRONG = [float("nan"), 0, 0.0, -1, float("-inf"), "x", [1], np.array([1.0, 2.0]), 1j]


def bad_timeouts(group: Any, number: int) -> list[str]:
    timeout = WRONG[number]
    x = np.full(500, group.rank)
    kinds = []
    for call in (
        lambda: group.all_reduce(x, timeout=timeout),
        lambda: group.all_reduce(x, timeout=timeout, async_op=True),
        lambda: group.barrier(timeout=timeout),
        lambda: group.broadcast(None if group.rank else x, timeout=timeout),
        lambda: group.send(x, 1 - group.rank, timeout=timeout),
        lambda: group.recv(1 - group.rank, timeout=timeout),
        lambda: setattr(group, "timeout", timeout),
    ):
        kinds.append(type(seconds(call)[0]).__name__)
        assert (group.all_reduce(x) == 1).all()
    return kinds


@pytest.mark.parametrize("number", range(len(WRONG)), ids=lambda number: repr(WRONG[number]))
def test_what_is_no_timeout_is_refused(own: Own, number: int) -> None:
    for kinds in own(2).run(bad_timeouts, number, deadline=40):
        assert set(kinds) <= {"ValueError", "TypeError"}, kinds
