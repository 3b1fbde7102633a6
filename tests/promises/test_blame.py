"""Errors name who did it: the rank that stands still, and not a victim of it; who closed; and nothing that is raw."""

from __future__ import annotations

import re
import resource
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hocket
from moments import Signs, asleep, descriptors, ours, seconds, stopped, until
from worlds import World

Own = Callable[[int], World]


def blamed(text: str) -> set[str]:
    """The ranks that an error says were waited for, in its sentence: the lines under it are of all ranks."""
    sentence = text.split("\n")[0]
    return set(re.findall(r"rank (\d+)", re.split(r"in vain for|waited for|waiting for|waits for", sentence)[-1]))


def stuck(group: Any, signs: Signs, call: str, timeouts: list[float]) -> str:
    x = np.ones(2**21)
    calls: dict[str, Callable[[float], Any]] = {
        "all_gather ring": lambda timeout: group.all_gather(x, algorithm="ring", timeout=timeout),
        "reduce_scatter ring": lambda timeout: group.reduce_scatter(x, algorithm="ring", timeout=timeout),
        "barrier": lambda timeout: (group.all_reduce(x), group.barrier(timeout=timeout)),
        "dissemination": lambda timeout: group.barrier(algorithm="dissemination", timeout=timeout),
    }
    usual = lambda timeout: group.all_reduce(x, out=x, op="max", algorithm=call, timeout=timeout)  # noqa: E731
    go = calls.get(call, usual)
    go(60)
    group.barrier()
    signs.give(f"begun {group.rank}")
    while True:
        result, _ = seconds(lambda: go(timeouts[group.rank]))
        if isinstance(result, BaseException):
            assert isinstance(result, hocket.CollectiveTimeout), repr(result)
            return str(result)


TIMEOUTS = {"equal": [0.8] * 4, "rising": [0.8, 0.85, 0.9, 0.95], "falling": [0.95, 0.9, 0.85, 0.8]}
ALGORITHMS = ["ring", "two_shot", "one_shot", "binomial_tree", "recursive_doubling", "naive"]


@pytest.mark.parametrize("timeouts", TIMEOUTS)
@pytest.mark.parametrize("call", [*ALGORITHMS, "all_gather ring", "reduce_scatter ring"])
def test_the_rank_that_stands_still_is_named_and_no_other(own: Own, signs: Signs, call: str, timeouts: str) -> None:
    """Three survivors, of which only some wait for rank 2 itself: the others wait for those."""
    world = own(4)
    world.start(stuck, signs, call, TIMEOUTS[timeouts])
    for rank in range(4):
        signs.wait(f"begun {rank}")
    world.signal(2, signal.SIGSTOP)
    stopped(world.processes[2].pid)
    outcomes = world.finish(30, without=2)
    for rank in (0, 1, 3):
        if isinstance(outcomes[rank], BaseException):
            raise outcomes[rank]
        assert blamed(outcomes[rank]) == {"2"}, f"rank {rank}: {outcomes[rank]}"


# ---- closed by another thread --------------------------------------------------------------------------------------

# Not what was begun: for asynchronous calls, and for what is being sent, close() waits.
WAITS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda group: group.all_reduce(np.ones(100)),
    "large": lambda group: group.all_reduce(np.ones(2**20)),
    "barrier": lambda group: group.barrier(),
    "scatter": lambda group: group.scatter(root=1),
    "broadcast": lambda group: group.broadcast(None, root=1),
    "recv": lambda group: group.recv(1),
    "recv any": lambda group: group.recv(),
    "recv async": lambda group: group.recv(1, out=np.ones(3), async_op=True).wait(),
    "subgroup": lambda group: group.subgroup([0, 1]),
}


def closed_meanwhile(group: Any, signs: Signs, wait: str) -> str:
    group.all_reduce(1)
    if group.rank == 1:
        signs.wait("closed")
        result, _ = seconds(lambda: (group.all_reduce(np.ones(4)), group.barrier()))
        assert isinstance(result, hocket.PeerLost), repr(result)
        return str(result)
    tids: list[int] = []
    results: list[Any] = []

    def work() -> None:
        tids.append(threading.get_native_id())
        results.append(seconds(lambda: WAITS[wait](group))[0])

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: tids, "a thread")
    asleep(tids[0])
    result, took = seconds(group.close)
    assert not isinstance(result, BaseException), repr(result)
    signs.give("closed")
    assert took < 5, f"close() took {took:.1f} s"
    worker.join(5)
    assert not worker.is_alive(), "the call goes on after close()"
    assert ours(results[0]), repr(results[0])
    return str(results[0])


@pytest.mark.parametrize("wait", WAITS)
def test_a_call_whose_group_is_closed_meanwhile_says_so(own: Own, signs: Signs, wait: str) -> None:
    world = own(2)
    world.start(closed_meanwhile, signs, wait)
    outcomes = world.finish(30)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    mine, peers = outcomes
    assert "closed" in mine
    assert "died" not in mine
    assert "rank 0" in peers
    assert "left" in peers
    assert "died" not in peers


def used_after_close(group: Any) -> list[str]:
    """Everything that a group has given, and the group itself, when it is closed."""
    x = group.empty(10, "float64")
    x[:] = 1
    again = group.all_reduce_init(x)
    again()
    work = group.all_reduce(x, async_op=True)
    work.wait()
    never = group.recv(1 - group.rank, tag=5, async_op=True)
    part = group.subgroup([0, 1])
    group.barrier()
    group.close()
    assert work.wait().tolist() == [2.0] * 10
    assert part.all_reduce(1) == 2
    part.close()
    calls = [
        lambda: group.all_reduce(x),
        lambda: group.all_reduce(x, async_op=True).wait(),
        lambda: group.barrier(),
        lambda: group.scatter(None, root=1 - group.rank),
        lambda: group.send(x, 1 - group.rank),
        lambda: group.recv(1 - group.rank),
        lambda: group.subgroup([0, 1]),
        lambda: group.split(0),
        lambda: group.all_reduce_init(x),
        lambda: again(),
        lambda: never.wait(2),
    ]
    return [f"{number}: {error!r}" for number, call in enumerate(calls) if not ours(error := seconds(call)[0])]


@pytest.mark.parametrize("size", [2])
def test_after_close_everything_says_so(own: Own, size: int) -> None:
    for raw in own(size).run(used_after_close, deadline=30):
        assert raw == []


# ---- descriptors used up -------------------------------------------------------------------------------------------


def without_descriptors(group: Any, use: str, spare: int) -> str:
    """Rank 1 cannot open a file more; the others can."""
    group.all_reduce(1)
    uses: dict[str, Callable[[], Any]] = {
        "split": lambda: group.split(0),
        "subgroup": lambda: group.subgroup([1, 0]),
        "async": lambda: group.all_reduce(np.ones(5), async_op=True).wait(),
        "empty": lambda: group.all_reduce(group.empty(100_000)),
    }
    group.timeout = 5.0
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if group.rank == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() - 1 + spare, before[1]))
    result, took = seconds(uses[use])
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert took < 8
    if not isinstance(result, BaseException):
        return "worked"
    return "ours" if ours(result) else repr(result)


@pytest.mark.parametrize("spare", [0, 1, 2, 3])
@pytest.mark.parametrize("use", ["split", "subgroup", "async", "empty"])
def test_descriptors_used_up(own: Own, use: str, spare: int) -> None:
    outcomes = own(2).run(without_descriptors, use, spare, deadline=30)
    assert set(outcomes) <= {"worked", "ours"}, outcomes
    if use in ("async", "empty"):
        assert set(outcomes) == {"worked"}
