"""What torch.profiler sees."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks
from torch.profiler import ProfilerActivity, profile


def events() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    x, square = torch.ones(size, 2), [torch.ones(2) for _ in range(size)]
    calls = {
        "all_reduce": lambda later: dist.all_reduce(x, async_op=later),
        "broadcast": lambda later: dist.broadcast(x, 0, async_op=later),
        "reduce": lambda later: dist.reduce(x, 0, async_op=later),
        "all_gather": lambda later: dist.all_gather(square, square[0].clone(), async_op=later),
        "gather": lambda later: dist.gather(square[0].clone(), square if rank == 0 else None, async_op=later),
        "scatter": lambda later: dist.scatter(square[0].clone(), square if rank == 0 else None, async_op=later),
        "reduce_scatter": lambda later: dist.reduce_scatter(torch.ones(2), square, async_op=later),
        "all_to_all": lambda later: dist.all_to_all_single(x, x.clone(), async_op=later),
        "barrier": lambda later: dist.barrier(async_op=later),
    }
    for name, call in calls.items():
        for later in (False, True):
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
                work = call(later)
                if work is not None:
                    work.wait()
            (event,) = (event for event in seen.events() if event.name.startswith("hocket:"))
            assert event.name == f"hocket:{name}"
            if name == "all_reduce" and not later:
                assert event.input_shapes == [[size, 2]]
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        sending = dist.isend(x, (rank + 1) % size)
        dist.recv(torch.empty(size, 2), (rank - 1) % size)
        sending.wait()
    names = [event.name for event in seen.events() if event.name.startswith("hocket:")]
    assert names == ["hocket:send", "hocket:recv"]


@pytest.mark.feature("Profiling", "events of torch.profiler as gloo's: hocket:all_reduce and so on, with input shapes")
@pytest.mark.parametrize("size", SIZES)
def test_events(ranks: Ranks, size: int) -> None:
    ranks(size).run(events)
