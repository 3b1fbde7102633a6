"""What `async_op=True` gives back: waiting, futures, callbacks, errors, and the order of calls."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks

import hocket
from worlds import raised

pytestmark = pytest.mark.parametrize("size", SIZES)


def waits() -> None:
    size = dist.get_world_size()
    tensor = torch.ones(5)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.result()[0] is tensor
    assert tensor[0] == size
    for timeout in (timedelta(seconds=20), timedelta(0)):
        dist.all_reduce(tensor, async_op=True).wait(timeout)
    work = dist.barrier(async_op=True)
    while not work.is_completed():  # becomes true without anyone waiting
        pass
    output = [torch.empty(2) for _ in range(size)]
    assert len(dist.all_gather(output, torch.ones(2), async_op=True).get_future().wait()) == size


def orders() -> None:
    """Many calls in flight, then one that is not: all are made in the order of the program."""
    size = dist.get_world_size()
    tensor = torch.ones(3, dtype=torch.float64)  # the powers of 2, 3 and 4 below are exact
    works = []
    for i in range(20):
        works.append(dist.all_reduce(tensor, async_op=True))
        if i % 7 == 6:
            dist.all_reduce(tensor)
    for work in reversed(works):
        work.wait()
    assert tensor[0] == size ** (20 + 2)
    dist.broadcast(tensor, 0)


def futures() -> None:
    size = dist.get_world_size()
    tensor = torch.ones(4)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.wait()[0] is future.value()[0]
    assert torch.equal(future.value()[0], torch.full((4,), float(size)))
    work = dist.all_reduce(tensor, async_op=True)
    assert (work.get_future().then(lambda f: f.value()[0] / size)).wait()[0] == size
    work.wait()
    assert work.get_future().done()
    assert work.get_future().then(lambda f: len(f.value())).wait() == 1
    together = torch.futures.collect_all([dist.barrier(async_op=True).get_future() for _ in range(3)])
    assert len(together.wait()) == 3


def nested() -> None:
    """Callbacks that make calls make them at one place of the program on every rank, whatever else is in flight."""
    size, seen = dist.get_world_size(), []
    works = [dist.all_reduce(torch.ones(n), async_op=True) for n in (1, 2, 3)]

    def again(future: Any) -> float:
        (tensor,) = future.value()
        seen.append(len(tensor))
        return float(dist.all_reduce(tensor, async_op=True).get_future().wait()[0][0])

    futures = [work.get_future().then(again) for work in reversed(works)]
    assert [future.wait() for future in futures] == [size**2] * 3
    assert seen == [3, 2, 1]


def threads() -> None:
    """Calls of one group from several threads at once, each in the same order on every rank."""
    groups = [dist.new_group() for _ in range(3)]
    results: dict[int, torch.Tensor] = {}

    def run(number: int) -> None:
        tensor = torch.full((1000,), float(number))
        for i in range(30):
            work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=groups[number], async_op=i % 2 == 0)
            if work is not None:
                work.wait()
        results[number] = tensor

    workers = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number in range(3):
        assert torch.equal(results[number], torch.full((1000,), float(number)))
        dist.destroy_process_group(groups[number])


def overlap() -> None:
    """An asynchronous call goes on while this rank waits for something else that another rank does after it."""
    rank, tensor = dist.get_rank(), torch.ones(100_000)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        dist.recv(torch.empty(1), src=1)
        work.wait()
    else:
        dist.all_reduce(tensor)
        if rank == 1:
            dist.send(torch.ones(1), dst=0)
    assert tensor[-1] == dist.get_world_size()


@pytest.mark.feature("Work", "wait, is_completed, result, get_future; callbacks that make and wait for calls")
@pytest.mark.parametrize("function", [waits, orders, futures, nested, overlap], ids=lambda f: f.__name__)
def test_work(ranks: Ranks, size: int, function: Any) -> None:
    ranks(size).run(function)


@pytest.mark.feature("Work", "calls from any thread")
def test_threads(ranks: Ranks, size: int) -> None:
    ranks(size).run(threads)


def words(error: BaseException) -> str:
    return type(error).__name__ if isinstance(error, hocket.HocketError) else str(error)


def errors() -> list[str]:
    """The kinds of error that each way to wait shows: rank 1 reduces something else. The first call may have failed
    before the next one is put."""
    shape = (3,) if dist.get_rank() == 1 else (2,)
    put = lambda: dist.all_reduce(torch.ones(shape), async_op=True)  # noqa: E731
    works = [put()]
    with suppress(hocket.GroupBroken):
        works += [put(), put()]
    future = works[0].get_future()
    chained = future.then(lambda f: f.value())
    waits = (works[0].wait, future.wait, chained.wait, future.value, works[1].wait if works[1:] else put)
    seen = [words(raised(RuntimeError, wait)) for wait in waits]
    assert works[0].is_completed()
    assert not works[0].is_success()
    assert isinstance(works[0].exception(), hocket.MismatchError)
    return seen


@pytest.mark.feature("Errors", "an asynchronous call's error is raised by wait and by its future, and seen by DDP")
def test_errors_surface(ranks: Ranks, size: int) -> None:
    for wait, future, chained, value, later in ranks(size).run(errors):
        assert wait == "MismatchError"
        assert "MismatchError" in future
        assert "MismatchError" in chained
        assert "MismatchError" in value
        assert later == "GroupBroken"
    ranks(size).ranks.forget()


def timeouts() -> str:
    tensor = torch.ones(1)
    if dist.get_rank() == 1:
        return "absent"
    dist.group.WORLD.set_timeout(timedelta(seconds=2))  # not that of the formation, which others may slow down
    work = dist.all_reduce(tensor, async_op=True)
    with pytest.raises(hocket.CollectiveTimeout, match=r" timed out after 0.05 s.*still in flight"):
        work.wait(timedelta(milliseconds=50))
    with pytest.raises(hocket.CollectiveTimeout, match=r" timed out .*rank 1"):
        work.wait()
    return str(work.exception())


@pytest.mark.feature("Errors", "the group's timeout, and that of wait")
def test_a_deadline_names_who_did_not_come(ranks: Ranks, size: int) -> None:
    outcomes = ranks(size).run(timeouts)
    assert all("rank 1" in outcome for rank, outcome in enumerate(outcomes) if rank != 1)
    ranks(size).ranks.forget()
