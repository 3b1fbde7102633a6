"""Work: what a call gives back with async_op=True."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from oracles import agree, data, expect, fold

import hocket
from moments import last
from worlds import SIZES, Worlds, raised

F32 = np.dtype("float32")
F64 = np.dtype("float64")


def semantics(group: Any) -> None:
    inputs = [data(F32, "sum", r, 5000) for r in range(group.size)]
    work = group.all_reduce(inputs[group.rank], async_op=True)
    assert isinstance(work, hocket.Work)
    result = work.wait(timeout=60)
    agree(result, fold("sum", inputs))
    assert work.done() is True
    assert work.exception() is None
    assert work.wait() is work.result() is result
    out = np.zeros(5000, F32)
    assert group.all_reduce(inputs[group.rank], out=out, async_op=True).wait() is out
    agree(out, result)
    assert group.barrier(async_op=True).wait() is None
    work = group.reduce(inputs[group.rank], root=group.size - 1, async_op=True)
    agree(work.wait(), expect("reduce", inputs, root=group.size - 1)[group.rank])


@pytest.mark.parametrize("size", SIZES)
def test_work(world: Worlds, size: int) -> None:
    world(size).run(semantics)


def every_collective(group: Any) -> None:
    n, rank = group.size, group.rank
    inputs = [data(F64, "sum", r, 2 * n) for r in range(n)]
    works = {
        "all_reduce": group.all_reduce(inputs[rank], async_op=True),
        "reduce": group.reduce(inputs[rank], async_op=True),
        "broadcast": group.broadcast(inputs[rank], async_op=True),
        "scatter": group.scatter(inputs[rank] if rank == 0 else None, async_op=True),
        "gather": group.gather(inputs[rank], async_op=True),
        "all_gather": group.all_gather(inputs[rank], async_op=True),
        "reduce_scatter": group.reduce_scatter(inputs[rank], async_op=True),
        "all_to_all": group.all_to_all(inputs[rank], async_op=True),
    }
    for collective in sorted(works):  # in another order than they were begun
        agree(works[collective].wait(), expect(collective, inputs)[rank], collective)


@pytest.mark.parametrize("size", SIZES)
def test_every_collective(world: Worlds, size: int) -> None:
    world(size).run(every_collective)


def outstanding(group: Any) -> None:
    """Three hundred in flight, some in place on each other's output, waited for from the last to the first."""
    n, rank = group.size, group.rank
    chain = np.array([rank + 1.0])
    works = []
    for turn in range(300):
        if turn % 10 == 0:
            works.append((group.all_reduce(chain, op="max", out=chain, async_op=True), chain))
        else:
            count = (1, 100, 20_000)[turn % 3]
            inputs = [data(F32, "sum", r + turn, count) for r in range(n)]
            works.append((group.all_reduce(inputs[rank], async_op=True), fold("sum", inputs)))
    blocking = group.all_reduce(1)  # joins the queue behind all of them
    assert blocking == n
    assert all(work.done() for work, _ in works)
    for work, expected in reversed(works):
        agree(work.wait(), expected)
    assert chain.tolist() == [n]


@pytest.mark.parametrize("size", SIZES)
def test_many_outstanding_in_order(world: Worlds, size: int) -> None:
    world(size).run(outstanding)


def in_asyncio(group: Any) -> None:
    async def main() -> list[int]:
        first = await group.all_reduce(group.rank, async_op=True)
        works = [group.all_reduce(np.full(1000, i), async_op=True) for i in range(10)]

        async def finish(work: Any) -> int:
            return int((await work)[-1])

        ticks = 0

        async def clock() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(clock())
        results = await asyncio.gather(*(finish(work) for work in works))
        ticking.cancel()
        assert ticks
        return [int(first), *results]

    n = group.size
    assert asyncio.run(main()) == [sum(range(n)), *(i * n for i in range(10))]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_work_is_awaitable(world: Worlds, size: int) -> None:
    world(size).run(in_asyncio)


def following(group: Any, x: np.ndarray) -> BaseException | None:
    """The error of a call behind one that fails: out of its Work, or at once where the first has failed already."""
    try:
        return group.all_reduce(x, async_op=True).exception()  # type: ignore[no-any-return]
    except hocket.GroupBroken as error:
        return error


def errors(group: Any) -> list[str]:
    x = np.ones(3)
    work = group.all_reduce(x, op="sum" if group.rank else "max", async_op=True)
    later = following(group, x)
    error = work.exception()
    assert isinstance(error, hocket.MismatchError)
    assert work.done()
    with pytest.raises(hocket.MismatchError):
        work.wait()
    with pytest.raises(hocket.MismatchError):
        work.result()

    async def wait() -> None:
        await work

    with pytest.raises(hocket.MismatchError):
        asyncio.run(wait())
    assert isinstance(later, hocket.GroupBroken)
    assert isinstance(later.__cause__, hocket.MismatchError)
    with pytest.raises(hocket.GroupBroken):
        group.barrier()
    return [str(error), str(later)]


@pytest.mark.parametrize("size", [2, 3])
def test_errors_come_out_of_wait_and_of_all_that_follow(world: Worlds, size: int) -> None:
    for first, second in world(size).run(errors, fresh=True):
        assert "op='max'" in first
        assert "op='sum'" in first
        assert "op='max'" in second


def still_in_flight(group: Any) -> str | None:
    if group.rank == 0:
        work = group.all_reduce(1, async_op=True)
        with pytest.raises(hocket.CollectiveTimeout) as caught:
            work.wait(timeout=0.05)
        with pytest.raises(hocket.CollectiveTimeout):
            work.exception(timeout=0)
        assert not work.done()
        group.send(1, 1)
        assert work.wait() == 2
        return str(caught.value)
    group.recv(0)
    assert group.all_reduce(1) == 2
    return None


def test_a_wait_that_is_too_short_leaves_the_call_in_flight(world: Worlds) -> None:
    text = world(2).run(still_in_flight)[0]
    assert "all_reduce" in text
    assert "in flight" in text


def refused(group: Any) -> None:
    """What is wrong with the arguments is said at once, not in wait."""
    with pytest.raises(TypeError):
        group.all_reduce(np.array([None]), async_op=True)
    with pytest.raises(ValueError):
        group.all_reduce(np.ones(3), op="avg", async_op=True)
    assert group.all_reduce(1, async_op=True).wait() == group.size


def test_bad_arguments_raise_at_the_call(world: Worlds) -> None:
    world(2).run(refused)


def errors_of_remembered_calls(group: Any) -> list[str]:
    """As `errors`, but of calls that look like earlier ones, and with more of them in the queue. Rank 0 puts the one
    that differs when the others have put all of theirs, and completed the one before it."""
    x, y = np.ones(3), np.ones(4)
    for array in (x, y):
        group.all_reduce(array, async_op=True).wait()
    works = [group.all_reduce(array, async_op=True) for array in ((x, y, x, y) if group.rank else (x,))]
    assert works[0].wait().tolist() == [group.size] * 3
    last(group, 0)
    if group.rank == 0:
        works.append(group.all_reduce(x, async_op=True))
        later = [following(group, array) for array in (x, y)]
        first = works[1].exception()
    else:
        first, *later = [work.exception() for work in works[1:]]
    assert isinstance(first, hocket.MismatchError)
    for error in later:
        assert isinstance(error, hocket.GroupBroken)
        assert error.__cause__ is first
    with pytest.raises(hocket.GroupBroken):
        group.all_reduce(x, async_op=True)
    return [str(first)]


@pytest.mark.parametrize("size", [2, 3])
def test_errors_of_calls_that_are_remembered(world: Worlds, size: int) -> None:
    for (text,) in world(size).run(errors_of_remembered_calls, fresh=True):
        assert "float64[3]" in text
        assert "float64[4]" in text


def named_deadline(group: Any) -> str | None:
    """Rank 1 makes every call but the last, which has a deadline of its own."""
    x = np.ones(4)
    for _ in range(2):
        group.all_reduce(x, timeout=50.0)
        group.all_reduce(x, async_op=True, timeout=50.0).wait()
    last(group, 0)
    if group.rank == 1:
        raised(hocket.HocketError, group.recv, 0, tag=77)  # ends when the other has broken the group
        return None
    return str(raised(hocket.CollectiveTimeout, group.all_reduce(x, async_op=True, timeout=0.25).wait))


def test_a_deadline_that_a_call_names_is_its_own(world: Worlds) -> None:
    text, _ = world(2).run(named_deadline, fresh=True)
    assert " timed out after 0.25 s" in text
    assert "rank 1" in text


def interrupted(group: Any) -> int:
    """Ctrl-C while another thread makes the call: the wait ends, and the call goes on."""
    if group.rank == 1:
        group.recv(0)
        return int(group.all_reduce(1))
    work = group.all_reduce(1, async_op=True)
    with pytest.raises(hocket.CollectiveTimeout):
        work.wait(timeout=0.05)  # which leaves it to the engine
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    raised(KeyboardInterrupt, lambda: (timer.start(), work.wait()))
    assert not work.done()
    group.send(1, 1)
    return int(work.wait())


def test_an_interrupted_wait_leaves_the_call_in_flight(world: Worlds) -> None:
    assert world(2).run(interrupted, fresh=True) == [2, 2]


def from_many_threads(group: Any) -> None:
    """Whoever waits, and for whichever: each call is made once, in the order in which they were put."""
    works = [group.all_reduce(np.full(turn % 7, turn), async_op=True) for turn in range(200)]
    results: list[Any] = [None] * len(works)

    def wait(first: int) -> None:
        for turn in range(first, len(works), 4):
            results[turn] = works[turn].wait(None if turn % 3 else 60)

    threads = [threading.Thread(target=wait, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn, result in enumerate(results):
        agree(result, np.full(turn % 7, turn * group.size))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_many_threads_may_wait(world: Worlds, size: int) -> None:
    world(size).run(from_many_threads)


def inside(group: Any) -> str:
    def nested(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        np.add(a, b, out)
        group.all_reduce(1)

    return str(raised(hocket.HocketError, group.all_reduce, np.ones(3), op=nested))


def test_a_call_inside_of_a_call_is_an_error(world: Worlds) -> None:
    assert any("inside of another call" in text for text in world(2).run(inside, fresh=True))


def in_words(group: Any) -> None:
    other = (group.rank + 1) % group.size
    message = group.recv(other, async_op=True)
    assert repr(message) == f"<Work recv(src={other}, tag=0), in flight>"
    group.barrier()
    group.send(1, other)
    for works, text in (([message], "recv"), ([group.all_reduce(np.ones(3), async_op=True) for _ in range(2)], "all_")):
        for work in works:
            work.wait()
            assert repr(work).startswith(f"<Work {text}")
            assert repr(work).endswith(", done>")


def test_works_say_what_they_are(world: Worlds) -> None:
    world(2).run(in_words)


def inputs_live(group: Any) -> None:
    """A Work keeps its arrays alive, and a dropped Work still runs."""
    for turn in range(20):
        group.all_reduce(np.full(30_000, turn), async_op=True)
    work = group.all_reduce(np.full(30_000, 3.0), async_op=True)
    junk = [np.zeros(30_000) for _ in range(10)]
    assert (work.wait() == 3 * group.size).all()
    assert len(junk) == 10


def test_arrays_live_as_long_as_they_are_needed(world: Worlds) -> None:
    world(3).run(inputs_live)


def let_go(group: Any, fails: bool) -> bool:
    """Whether an input outlives its call, and the variables of who waited in vain."""

    def call() -> weakref.ref[np.ndarray]:
        for _ in range(3):
            x = np.ones(5 if fails and group.rank else 4)
            work = group.all_reduce(x, async_op=True)
            if fails:
                raised(hocket.MismatchError, work.wait)
                break
            work.wait()
        return weakref.ref(x)

    x = call()
    if fails:
        group.close()
        group._calls._broken = None  # which holds the error, and so the frames that it came through
    gc.collect()
    return x() is None


@pytest.mark.parametrize("fails", [False, True])
def test_arrays_live_no_longer_than_they_are_needed(world: Worlds, fails: bool) -> None:
    assert world(2).run(let_go, fails, fresh=True) == [True, True]


def dropped(group: Any) -> None:
    """A group that is dropped and not closed takes its thread along."""
    before = threading.active_count()
    sub = group.split(0)
    sub.all_reduce(np.ones(3), async_op=True).wait()
    assert threading.active_count() == before + 1
    group.barrier()
    del sub
    gc.collect()
    assert threading.active_count() == before


def test_a_dropped_group_leaves_no_thread(world: Worlds) -> None:
    world(2).run(dropped)
