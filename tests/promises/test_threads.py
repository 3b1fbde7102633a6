"""Threads of one rank that use its groups at once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import run

from moments import held, threads, until
from worlds import World

Own = Callable[[int], World]
THREADS = 6


def together(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Results or errors of `work(i)`, each on a thread; all begin at one moment, and change places all the time."""
    results: list[Any] = [None] * count
    ready = threading.Barrier(count)

    def one(i: int) -> None:
        ready.wait()
        try:
            results[i] = work(i)
        except BaseException as error:
            results[i] = error

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(20)
        assert not any(worker.is_alive() for worker in workers), "a thread hangs"
    finally:
        sys.setswitchinterval(before)
    return results


def first_async(group: Any) -> None:
    """All threads make the same call, so that it does not matter which of one rank meets which of the other."""
    expected = sum(range(1, group.size + 1))
    for turn in range(20):
        part = group.subgroup(range(group.size))
        before = threads()
        count = 1000 if turn % 2 else 50_000
        x = np.full(count, group.rank + 1.0)
        works = together(lambda i, part=part, x=x: part.all_reduce(x, async_op=True))
        until(lambda before=before: threads() <= before + 1, "one engine")  # joined threads may still be leaving
        for work in works:
            assert (work.wait(20) == expected).all()
        closer = threading.Thread(target=part.close, daemon=True)
        closer.start()
        closer.join(20)
        assert not closer.is_alive(), "close() hangs"
    assert group.all_reduce(1) == group.size


@pytest.mark.parametrize("size", [1, 2])
def test_the_first_asynchronous_calls_come_at_once(own: Own, size: int) -> None:
    own(size).run(first_async, deadline=60)


def prepare_at_once(group: Any) -> None:
    """Calls that are prepared anew each time, all of the same few kinds."""

    def work(i: int) -> bool:
        turns = [np.full(1 + (turn + i) % 7, 2.0) for turn in range(600)]
        return all((group.all_reduce(x, order="any") == 2).all() for x in turns)

    assert together(work) == [True] * 6


def test_calls_are_prepared_at_once(own: Own) -> None:
    own(1).run(prepare_at_once, deadline=60)


def put_and_wait(group: Any) -> None:
    """Each thread puts many and waits for its own."""
    x = np.full(3000, group.rank + 1.0)

    def work(i: int) -> float:
        works = [group.all_reduce(x, async_op=True) for _ in range(40)]
        return sum(float(work.wait(20).sum()) for work in reversed(works))

    assert together(work, 4) == [40 * 3000.0 * sum(range(1, group.size + 1))] * 4
    assert group.all_reduce(1) == group.size


@pytest.mark.parametrize("size", [1, 2])
def test_asynchronous_calls_of_four_threads(own: Own, size: int) -> None:
    own(size).run(put_and_wait, deadline=60)


def in_turn(group: Any) -> None:
    """Blocking calls of one group in an order that a lock makes the same on all ranks; every call is another one."""
    turn, moved = [0], threading.Condition()
    rounds = 60

    def work(i: int) -> list[float]:
        sums = []
        for k in range(i, rounds * THREADS, THREADS):
            with moved:
                moved.wait_for(lambda k=k: turn[0] == k)
                sums.append(float(group.all_reduce(np.full(k % 7 + 1, k + group.rank))[-1]))
                turn[0] += 1
                moved.notify_all()
        return sums

    n = group.size
    expected = [[float(n * k + n * (n - 1) // 2) for k in range(i, rounds * THREADS, THREADS)] for i in range(THREADS)]
    assert together(work) == expected


@pytest.mark.parametrize("size", [1, 2])
def test_blocking_calls_in_an_order_that_a_lock_keeps(own: Own, size: int) -> None:
    own(size).run(in_turn, deadline=60)


def one_group_each(group: Any) -> None:
    parts = [group.subgroup(range(group.size)) for _ in range(THREADS)]
    n = group.size

    def work(i: int) -> bool:
        for k in range(120):
            counted = np.arange(5000.0 if k % 2 else 8.0)  # these are short
            x = counted + k + i + group.rank
            got = parts[i].all_reduce(x) if k % 3 else parts[i].all_reduce(x, async_op=True).wait(20)
            if not (got == n * (counted + k + i) + n * (n - 1) // 2).all():
                return False
        return True

    assert together(work) == [True] * THREADS
    for part in parts:
        part.close()


@pytest.mark.parametrize("size", [1, 2])
def test_threads_with_a_group_each(own: Own, size: int) -> None:
    own(size).run(one_group_each, deadline=60)


def tell_from_another_thread(group: Any) -> None:
    """Rank 0 waits in a short call until its other thread has told the others to make theirs: which it can do only
    where the call gives Python's lock back, since otherwise that one is given away after hours."""
    x, sums = np.full(3, group.rank + 1.0), np.full(3, group.size * (group.size + 1) / 2)
    persistent = group.all_reduce_init(x.copy())
    calls: list[Callable[[], Any]] = [
        lambda: group.all_reduce(x),
        lambda: group.all_reduce(x),  # it is remembered now
        lambda: group.all_reduce(x, protect=True, out=np.empty(3)),
        persistent,
        lambda: group.barrier() or sums,
        lambda: group.broadcast(sums, root=group.size - 1),
        lambda: group.broadcast(sums if group.rank else None, root=1),
        lambda: group.recv(1, tag=1) if group.rank == 0 else group.rank == 1 and group.send(sums, 0, tag=1),
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e4)
    try:
        for call in calls:
            if group.rank == 0:
                begins = threading.Event()
                teller = threading.Thread(target=lambda begins=begins: begins.wait() and tell(group), daemon=True)
                teller.start()
                begins.set()
            else:
                group.recv(0)
            got = call()
            assert got is False or got is None or (got == sums).all()
            if group.rank == 0:
                teller.join(20)
    finally:
        sys.setswitchinterval(before)


def tell(group: Any) -> None:
    for other in range(1, group.size):
        group.send(1, other)


@pytest.mark.parametrize("size", [2, 4])
def test_a_short_call_that_waits_lets_other_threads_run(own: Own, size: int) -> None:
    own(size).run(tell_from_another_thread, deadline=60)


def beside_a_busy_thread(group: Any) -> None:
    """Short calls while another thread of the rank wants Python's lock all the time: each gets to run."""
    counted, over = [0], threading.Event()

    def count() -> None:
        while not over.is_set():
            counted[0] += 1

    busy = threading.Thread(target=count, daemon=True)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        busy.start()
        until(lambda: counted[0] > 0, "the other thread runs")
        begun, calls, enough = counted[0], 0, False
        while not enough:
            x = np.full(3, calls + group.rank)
            assert (group.all_reduce(x) == group.size * calls + group.size * (group.size - 1) // 2).all()
            calls += 1
            enough = bool(group.all_reduce(np.int64(calls >= 300 and counted[0] >= begun + 100), op="min"))
    finally:
        over.set()
        sys.setswitchinterval(before)
        busy.join(20)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_short_calls_beside_a_busy_thread(own: Own, size: int) -> None:
    own(size).run(beside_a_busy_thread, deadline=60)


def come_and_go(group: Any) -> None:
    """Threads that open, use and close groups of their own in a world of one leave nothing."""

    def work(i: int) -> None:
        import hocket

        for _ in range(10):
            with hocket.init() as mine:
                assert mine.all_reduce(np.ones(9), async_op=True).wait(20).sum() == 9

    import os

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    for name in ("TORCHELASTIC_RUN_ID", "HOCKET_SECRET", "HOCKET_TRANSPORT"):
        os.environ.pop(name, None)
    assert together(work) == [None] * THREADS
    before = held()
    assert together(work) == [None] * THREADS
    until(lambda: held() == before, "nothing held")  # joined threads may still be leaving


def test_groups_of_one_that_come_and_go_in_threads(own: Own) -> None:
    own(1).run(come_and_go, deadline=60)


def interpreters() -> list[str]:
    """This Python, and each without a global lock that is found and has hocket."""
    found = [shutil.which(name) for name in ("python3.13t", "python3.14t", "python3.15t")]
    ready = [
        path for path in found if path and subprocess.run([path, "-c", "import hocket"], check=False).returncode == 0
    ]
    return [sys.executable, *ready]


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: Path(path).name)
def test_a_program_with_many_threads(python: str, tmp_path: Path) -> None:
    """The same once more as a program, in every interpreter."""
    text = """
    sys.setswitchinterval(1e-6)
    sums = []
    for _ in range(30):
        with hocket.init() as group:
            ready = threading.Barrier(8)
            def work():
                ready.wait()
                sums.append(float(group.all_reduce(np.ones(100), async_op=True).wait(20).sum()))
            workers = [threading.Thread(target=work) for _ in range(8)]
            for worker in workers: worker.start()
            for worker in workers: worker.join()
    assert sums == [100.0] * 240, len(sums)
    say("good")
    """
    ended = run(tmp_path, text, limit=30, python=python)
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
