"""Ranks that are killed, stopped or interrupted in the middle of a call: the others raise, and nothing is left behind.

The group's timeout is a minute and no deadline is near: an error that came from waiting long enough would be a
CollectiveTimeout, and fail the test.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hocket
from moments import asleep, descendants, descriptors, last, named, nothing_named_since, threads
from worlds import Died, World, Worlds, raised

LARGE = 16 * 2**20  # elements of float32: 64 MiB


def over_and_over(call: Callable[[], Any]) -> None:
    while True:
        call()


def put_and_wait(*puts: Callable[[], Any]) -> None:
    """Several calls are put, and waited for. What breaks the first may do so before the last is put."""
    works: list[Any] = []
    with suppress(hocket.GroupBroken):
        for put in puts:
            works += [put()]
    assert works
    for work in works:
        work.wait()


IN_FLIGHT: dict[str, Callable[[Any, int, Any], Any]] = {
    "all_reduce": lambda group, victim, x: group.all_reduce(x[:1000], out=x[:1000], op="max"),
    "all_reduce of 64 MiB": lambda group, victim, x: group.all_reduce(x, out=x, op="max"),
    "barrier": lambda group, victim, x: group.barrier(),
    "all_gather": lambda group, victim, x: group.all_gather(x[:1000]),
    "broadcast": lambda group, victim, x: group.broadcast(x[:1000], root=victim),
    "async": lambda group, victim, x: put_and_wait(*[lambda: group.all_reduce(x[:9], async_op=True)] * 5),
}
WAITING: dict[str, Callable[[Any, int, Any], Any]] = {
    "all_reduce": lambda group, victim, x: group.all_reduce(x),
    "barrier": lambda group, victim, x: group.barrier(),
    "recv": lambda group, victim, x: group.recv(victim),
    "async recv": lambda group, victim, x: group.recv(victim, tag=1, async_op=True).wait(),
    "async": lambda group, victim, x: put_and_wait(
        lambda: group.all_reduce(x, async_op=True), lambda: group.barrier(async_op=True)
    ),
    "scatter": lambda group, victim, x: group.scatter(root=victim),
    "all_to_all": lambda group, victim, x: group.all_to_all(x, sizes=[len(x)] + [0] * (group.size - 1)),
}


def in_flight(group: Any, what: str, victim: int, seconds: float) -> str:
    """Everyone calls on and on, until the victim dies somewhere in between."""
    x = np.ones(LARGE if "64 MiB" in what else 1000, np.float32)
    last(group, victim)
    if group.rank == victim:
        later(seconds, signal.SIGKILL)
    return lost(group, lambda: over_and_over(lambda: IN_FLIGHT[what](group, victim, x)))


def waiting(group: Any, what: str, victim: int, seconds: float) -> str:
    """Everyone waits for the victim, which makes no call but dies."""
    last(group, victim)
    if group.rank == victim:
        later(seconds, signal.SIGKILL)
        threading.Event().wait()
    return lost(group, lambda: WAITING[what](group, victim, np.ones(300)))


def later(seconds: float, number: int) -> None:
    """Send a signal to this process."""
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def lost(group: Any, call: Callable[[], Any]) -> str:
    """Whatever is tried next fails as well: as broken by this error, or, after a message, for the same reason."""
    error = raised(hocket.PeerLost, call)
    raised((hocket.GroupBroken, hocket.PeerLost), group.barrier)
    assert "PeerLost" in str(raised(hocket.GroupBroken, group.barrier))
    group.close()
    return str(error)


def check_killed(world: World, outcomes: list[Any], victim: int) -> None:
    for rank, outcome in enumerate(outcomes):
        if rank == victim:
            assert isinstance(outcome, Died)
        else:
            assert isinstance(outcome, str), outcome
            assert f"rank {victim}" in outcome
            assert f"pid {world.processes[victim].pid}" in outcome
            assert "threading.py" not in outcome  # from where an engine's calls are made


def delay(*what: object) -> float:
    """Up to 20 ms, another each time, and printed: when a rank dies decides what it dies in."""
    seconds = random.random() / 50
    print(f"{what}: the victim dies after {seconds:.6f} s")
    return seconds


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("what", IN_FLIGHT)
def test_killed_in_flight(world: Worlds, what: str, size: int) -> None:
    for victim in {0, size - 1}:
        outcomes = world(size).outcomes(in_flight, what, victim, delay(what, size), fresh=True)
        check_killed(world(size), outcomes, victim)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("what", WAITING)
def test_killed_while_others_wait(world: Worlds, what: str, size: int) -> None:
    for victim in {0, size - 1}:
        outcomes = world(size).outcomes(waiting, what, victim, delay(what, size), fresh=True)
        check_killed(world(size), outcomes, victim)


def stopped(group: Any, victim: int) -> str:
    last(group, victim)
    if group.rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    return str(raised(hocket.CollectiveTimeout, group.all_reduce, np.ones(10), timeout=1.0))  # in which all others come


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_stopped_rank_is_a_timeout_that_names_it(world: Worlds, size: int) -> None:
    for victim in {0, size - 1}:
        here = World(size, world.transport, HOCKET_HEARTBEAT_TIMEOUT="60")  # or it is given up, on a busy machine
        here.start(stopped, victim, fresh=True)
        outcomes = here.finish(without=victim)
        here.close()
        for rank, text in enumerate(outcomes):
            if rank != victim:
                assert isinstance(text, str), text
                assert f"rank {victim}" in text


def forever(group: Any, what: str) -> None:
    x = np.ones(1000)
    while True:
        if what == "wait" and group.rank == 0:
            threading.Event().wait()
        group.all_reduce(x)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("what", ["run", "wait"])
def test_killing_all_leaves_nothing_behind(world: Worlds, what: str) -> None:
    before = named()
    here = World(4, world.transport)
    here.run(ready, fresh=True)
    nothing_named_since(before)
    here.start(forever, what)
    pids = set().union(*(descendants(process.pid) for process in here.processes))
    assert len(pids) == 4  # no helper processes either
    for rank in (2, 0, 3, 1):
        here.signal(rank, signal.SIGKILL)
    outcomes = here.finish()
    assert all(isinstance(outcome, (Died, hocket.HocketError)) for outcome in outcomes), outcomes
    here.close()
    assert not {pid for pid in pids if alive(pid)}
    nothing_named_since(before)


def ready(group: Any) -> None:
    group.all_reduce(np.ones(100_000))


def files_and_threads(group: Any) -> tuple[int, int]:
    gc.collect()  # groups that earlier tests broke: an error holds the frames that it came through, and they the group
    deadline = time.monotonic() + 10
    while threads() > threading.active_count() and time.monotonic() < deadline:
        os.sched_yield()  # a thread that was joined is still on its way out of the kernel
    return descriptors(), threads()


def test_groups_that_come_and_go_leak_neither_files_nor_threads(world: Worlds) -> None:
    for _ in range(2):
        world(3).run(come_and_go, fresh=True)
    before = world(3).run(files_and_threads, fresh=True)
    for _ in range(10):
        world(3).run(come_and_go, fresh=True)
    assert world(3).run(files_and_threads, fresh=True) == before


def come_and_go(group: Any) -> None:
    sub = group.split(group.rank % 2, 0)
    sub.all_reduce(np.ones(1000), async_op=True).wait()
    sub.close()
    group.all_reduce(np.ones(1000), async_op=True).wait()
    group.close()


def interrupted(group: Any, what: str, seconds: float) -> str:
    """Rank 0 gets a Ctrl-C while it waits for rank 1, which never comes. Before it does, the garbage collector may run,
    and what a signal's handler raises while a weak reference is told of it, Python itself ignores."""
    last(group, 0)
    if group.rank == 1:
        return str(raised(hocket.PeerLost, group.recv, 0, tag=3))
    waits = threading.get_native_id()
    threading.Thread(target=lambda: (asleep(waits), later(seconds, signal.SIGINT))).start()
    with group:  # as programs end: the error goes through
        WAITING[what](group, 1, np.ones(300))
    return ""


@pytest.mark.parametrize("what", ["all_reduce", "barrier", "recv", "scatter", "async"])
def test_ctrl_c_interrupts_a_wait_and_the_others_hear_of_it(world: Worlds, what: str) -> None:
    error, text = world(2).outcomes(interrupted, what, delay(what), fresh=True)
    assert isinstance(error, KeyboardInterrupt), error
    assert isinstance(text, str), text
    assert "rank 0" in text
