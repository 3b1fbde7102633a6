"""Groups of several backends. No GPU is needed: torch's "meta" stands for it, with a backend that writes down what it
is asked for; and where there is to be a group for "cuda", nobody calls it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks

from worlds import raised

asked: list[str] = []
ELSEWHERE = torch.device("meta")


class Scribe(dist.ProcessGroup):
    """Writes down the names of the calls that come to it, and does nothing."""

    def getBackendName(self) -> str:
        return "scribe"

    setGroupName = setGroupDesc = lambda self, text: None
    group_name = property(lambda self: "of scribes")

    def _get_backend(self, device: torch.device) -> Any:
        return self

    def __getattribute__(self, name: str) -> Any:
        if name in ("shutdown", "abort", "barrier", "_set_default_timeout") or name.lower().startswith(CALLS):
            return lambda *args, **options: asked.append(name)
        return super().__getattribute__(name)


CALLS = ("all", "reduce", "broadcast", "gather", "scatter", "send", "recv", "_allgather", "_reduce", "_start", "_end")


def begin(backend: str, folder: str) -> None:
    if "SCRIBE" not in dist.Backend._plugins:
        make = lambda o, _: Scribe(o.group_rank, o.group_size)  # noqa: E731
        dist.Backend.register_backend("scribe", make, extended_api=True, devices=["meta"])
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    store = dist.FileStore(f"{folder}/{backend}", size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


def both(folder: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    begin("cpu:hocket,meta:scribe", folder)
    for group in (None, dist.new_group(range(size)), dist.new_group([rank], use_local_synchronization=True)):
        n = dist.get_world_size(group)
        asked.clear()
        for device in ("cpu", "meta"):
            x, y = torch.ones(n, device=device), torch.zeros(n, device=device)
            rows = list(torch.zeros(n, n, device=device))
            dist.all_reduce(x, group=group)
            dist.all_reduce_coalesced([y], group=group)
            dist.broadcast(x, group=group, group_src=0)
            dist.reduce(y, group=group, group_dst=0)
            dist.all_gather(rows, x, group=group)
            dist.all_gather_single(torch.zeros(n * n, device=device), x, group=group)
            dist.reduce_scatter(torch.zeros(n, device=device), rows, group=group)
            dist.reduce_scatter_single(torch.zeros(1, device=device), x, group=group)
            here = dist.get_rank(group) == 0
            dist.gather(y, rows if here else None, group=group, group_dst=0)
            dist.scatter(y, rows if here else None, group=group, group_src=0)
            dist.all_to_all_single(y, x, group=group)
            dist.all_to_all(list(y.split(1)), list(x.split(1)), group=group)
            if device == "cpu":
                assert asked == []
                assert x.tolist() == [float(n)] * n
        assert asked == [
            *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "all_gather_single"),
            *("reduce_scatter", "reduce_scatter_single", "gather", "scatter", "all_to_all_single", "alltoall"),
        ]
        world = group or dist.group.WORLD
        assert world._device_types == [torch.device("cpu"), ELSEWHERE]
        assert type(world._get_backend(ELSEWHERE)) is Scribe
        assert world._get_backend(torch.device("cpu")) is world
    told: list[Any] = [None] * size
    dist.all_gather_object(told, rank)
    assert told == list(range(size))
    asked.clear()
    dist.barrier()
    assert not asked
    with_tensor = raised(TypeError, dist.all_reduce, torch.eye(2).to_sparse_csr())
    assert "hocket takes" in str(with_tensor)
    dist.destroy_process_group()
    assert asked == ["shutdown"] * 3
    begin_again(folder, rank, size)


def begin_again(folder: str, rank: int, size: int) -> None:
    """Another default group, as of the tests."""
    store = dist.FileStore(f"{folder}/again", size)
    dist.init_process_group("hocket", store=store, rank=rank, world_size=size)


def beside_gloo(folder: str) -> None:
    for backend in ("cpu:hocket,cuda:gloo", "cuda:gloo,cpu:hocket"):
        begin(backend, folder)
        size = dist.get_world_size()
        x = torch.ones(3)
        dist.all_reduce(x)
        assert x.tolist() == [float(size)] * 3
        cuda = torch.device("cuda")
        assert isinstance(dist.group.WORLD._get_backend(cuda), dist.ProcessGroupGloo)
        network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
        network(x).backward()
        part = dist.new_group(range(size))
        dist.barrier()  # gloo on another rank fails where this one leaves before it has connected to all
        dist.destroy_process_group(part)
    begin("hocket", folder)


@pytest.mark.feature("Groups", '"cpu:hocket,cuda:nccl": what is not on the CPU goes to the other backend')
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", [both, beside_gloo], ids=lambda f: f.__name__)
def test_mixed(ranks: Ranks, size: int, function: Any, tmp_path: Path) -> None:
    ranks(size).run(function, str(tmp_path))
    ranks(size).ranks.forget()


def refused(folder: str) -> str:
    error = raised(ValueError, begin, "cuda:hocket", folder)
    begin_again(folder, int(os.environ["RANK"]), 2)
    return str(error)


def test_hocket_for_another_device_is_refused(ranks: Ranks, tmp_path: Path) -> None:
    for text in ranks(2).run(refused, str(tmp_path)):
        assert text.startswith('"cuda:hocket" is not possible, since hocket takes tensors on the CPU only: give cuda a')
    ranks(2).ranks.forget()
