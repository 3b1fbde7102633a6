"""Groups: how they come about, how they end, and what they leave behind, which is nothing."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import SIZES, Ranks

import hocket
import hocket.torch
from worlds import raised


def total(group: Any = None) -> float:
    """The sum over the group of every rank's global rank plus one."""
    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def subgroups() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([a, a + 1]) for a in range(0, size - 1)]
    for a, pair in enumerate(pairs):
        if rank in (a, a + 1):
            assert total(pair) == 2 * a + 3
            tensor = torch.tensor([float(rank)])
            dist.broadcast(tensor, src=a + 1, group=pair)  # by its rank in the world
            assert tensor.item() == a + 1
            parts = [torch.empty(1) for _ in range(2)] if rank == a else None
            dist.gather(torch.tensor([float(rank)]), parts, group=pair, group_dst=0)
            if parts:
                assert torch.cat(parts).tolist() == [a, a + 1]
    backwards = dist.new_group(list(reversed(range(size))))
    assert total(backwards) == size * (size + 1) / 2
    if size == 4:
        mine, all_ = dist.new_subgroups(2)
        assert len(all_) == 2
        assert total(mine) == (3 if rank < 2 else 7)
    alone, _ = dist.new_subgroups(1)
    assert total(alone) == rank + 1
    local = dist.new_group([rank], use_local_synchronization=True)
    assert total(local) == rank + 1
    mixed = dist.new_group(backend="gloo")
    assert total(mixed) == total()


def meshes() -> None:
    from torch.distributed.device_mesh import init_device_mesh

    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("all",))
    assert total(mesh.get_group()) == size * (size + 1) / 2
    if size == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        assert total(mesh["columns"].get_group()) == (3 if rank < 2 else 7)
        assert total(mesh["rows"].get_group()) == (4 if rank % 2 == 0 else 6)
        assert total(mesh["rows", "columns"]._flatten().get_group()) == 10
        assert mesh["rows"].get_group().name() == "hocket"


def attributes() -> None:
    group = dist.group.WORLD
    assert isinstance(group, hocket.torch.ProcessGroup)
    assert dist.get_backend() == "hocket"
    assert dist.get_process_group_ranks(group) == list(range(dist.get_world_size()))
    assert group.group_name
    assert group._get_backend(torch.device("cpu")) is group
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert dist.distributed_c10d._get_pg_default_device() == torch.device("cpu")
    group.set_timeout(timedelta(seconds=10))
    assert total() == sum(range(1, dist.get_world_size() + 1))
    group.set_timeout(timedelta(seconds=30))


def deadline() -> None:
    """What is set counts for all later calls, messages too."""
    for name in ("set_timeout", "_set_default_timeout"):
        group = dist.new_group()
        getattr(group, name)(timedelta(seconds=0.25))
        if dist.get_rank() == 0:
            with pytest.raises(hocket.CollectiveTimeout, match=r"0\.25 s"):
                dist.recv(torch.empty(1), 1, group=group)
            with pytest.raises(hocket.CollectiveTimeout, match=r"0\.25 s"):
                dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()
        dist.destroy_process_group(group)


def monitored() -> None:
    """2.13's dist.monitored_barrier asks for gloo by name; the group has it all the same."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    group.monitored_barrier(timedelta(seconds=10))
    group.monitored_barrier()
    if rank == size - 1:
        dist.barrier()
        return
    words = (
        f"Rank {size - 1} failed to pass monitoredBarrier in 2000 ms$"  # gloo's, after " timed out ", which it has too
    )
    if rank:
        words = f"Rank {rank} successfully reached monitoredBarrier, but received errors .* from rank 0: {words}"
    with pytest.raises(hocket.CollectiveTimeout, match=f"monitored_barrier timed out after 2 s: {words}"):
        group.monitored_barrier(timedelta(seconds=2), wait_all_ranks=True)  # in which all others do come
    with pytest.raises(hocket.CollectiveTimeout, match=f"Rank {rank} timed out in monitoredBarrier after 0 ms"):
        group.monitored_barrier(timedelta(0))
    dist.barrier()  # the group is still usable


def other_shapes() -> list[str]:
    """As many elements in another shape. What each kind of call says of it, in a group that it ends, and no other."""
    mine = (2, 3) if dist.get_rank() == 0 else (3, 2)
    x, said = torch.ones(mine), []
    calls = (
        lambda part: dist.all_reduce(x, group=part),
        lambda part: dist.broadcast(x, 0, group=part),
        lambda part: dist.reduce(x, 0, group=part),
        lambda part: dist.all_gather([torch.ones(mine) for _ in range(2)], x, group=part),
    )
    for call in calls:
        part = dist.new_group()
        said.append(str(raised(hocket.MismatchError, lambda call=call, part=part: (call(part), dist.barrier(part)))))
        assert total() == 3
    return said


def test_another_shape_is_another_call(ranks: Ranks) -> None:
    for said in ranks(2).run(other_shapes):
        assert all("2, 3" in text and "3, 2" in text for text in said), said


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.feature("Groups", "new_group, new_subgroups, DeviceMesh, groups beside gloo's, monitored_barrier")
@pytest.mark.parametrize("function", [subgroups, meshes, attributes, deadline, monitored], ids=lambda f: f.__name__)
def test_groups(ranks: Ranks, size: int, function: Any) -> None:
    ranks(size).run(function)


def belongings() -> tuple[set[str], int, int]:
    """Threads, descriptors, and mappings of shared memory."""
    while gc.collect():  # what is freed may have held more
        pass
    mappings = sum("memfd:hocket" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return {thread.name for thread in threading.enumerate()}, len(list(Path("/proc/self/fd").iterdir())), mappings


def comes_and_goes() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for turn in range(4):
        if turn == 1:  # what earlier tests left is gone by then
            before = belongings()
        group = dist.new_group()
        works = [dist.all_reduce(torch.ones(3), group=group, async_op=True) for _ in range(3)]
        assert works[-1].get_future().wait()[0][0] == size
        dist.irecv(torch.ones(1), (rank - 1) % size, group=group).get_future()
        dist.send(torch.ones(1), (rank + 1) % size, group=group)
        dist.barrier(group)
        dist.destroy_process_group(group)
        del group, works  # the memory is unmapped with the last of them
        dist.barrier()
    assert (after := belongings()) == before, f"{before} became {after}"


@pytest.mark.feature("Groups", "destroy_process_group leaves no thread, descriptor or memory behind")
def test_nothing_is_left_behind(ranks: Ranks) -> None:
    ranks(3).run(comes_and_goes)


def again(path: str) -> None:
    """Groups of the same names in the same store, as after a failure that a program survives."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    store = dist.FileStore(path, size)
    for _ in range(3):
        dist.init_process_group("hocket", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20))
        assert total() == size * (size + 1) / 2
        assert total(dist.new_group()) == size * (size + 1) / 2
        dist.destroy_process_group()


@pytest.mark.feature("Groups", "destroy and init again, over the same store")
def test_a_group_can_be_made_again(ranks: Ranks, tmp_path: Path) -> None:
    ranks(3).run(again, str(tmp_path / "store"))
    ranks(3).ranks.forget()


def incomplete(path: str) -> None:
    dist.destroy_process_group()
    if os.environ["RANK"] == "1":
        return
    with pytest.raises(hocket.RendezvousError, match="rank 1 did not arrive") as caught:
        dist.init_process_group(
            "hocket",
            store=dist.FileStore(path, 2),
            rank=0,
            world_size=2,
            timeout=timedelta(seconds=0.5),
        )
    assert "init()" not in str(caught.value)  # which torch's users never called


@pytest.mark.feature("Errors", "a rank that does not come to init_process_group is named")
def test_a_missing_rank_is_named(ranks: Ranks, tmp_path: Path) -> None:
    ranks(2).run(incomplete, str(tmp_path / "store"))
    ranks(2).ranks.restart()  # torch counts a group that did not come about


def far_away(path: str) -> None:
    from hocket.rendezvous import doors

    dist.destroy_process_group()
    os.environ.pop("HOCKET_SECRET", None)  # which the ranks of several hosts have, and with which they would meet
    rank = int(os.environ["RANK"])
    doors.whereabouts = lambda: (f"boot {rank}", "one network")
    with pytest.raises(
        hocket.RendezvousError, match="are on different hosts, and nothing tells how they can reach each other"
    ):
        dist.init_process_group("hocket", store=dist.FileStore(path, 2), rank=rank, world_size=2)


@pytest.mark.feature("Errors", "a rank on another host")
def test_another_host_is_one_clear_error(ranks: Ranks, tmp_path: Path) -> None:
    ranks(2).run(far_away, str(tmp_path / "store"))
    ranks(2).ranks.restart()  # the patch goes with the processes


def stores() -> None:
    from hocket.rendezvous.foreign import ForeignStore
    from hocket.rendezvous.store import Absent, Taken

    for store in (dist.HashStore(), dist.TCPStore("127.0.0.1", 0, is_master=True)):
        ours = ForeignStore(store)
        assert [ours.arrive(3), ours.arrive(3), ours.arrive(4)] == [0, 1, 0]
        ours.set("a", b"\xff\x00")
        ours.set("a", b"\xff\x00")
        assert ours.get("a", 1.0) == b"\xff\x00"
        with pytest.raises(Taken) as taken:
            ours.set("a", b"other")
        assert taken.value.value == b"\xff\x00"
        for timeout in (0.0, 0.01):
            with pytest.raises(Absent, match='nobody wrote "b"'):
                ours.get("b", timeout)


@pytest.mark.feature("Groups", "any torch store: TCPStore, FileStore, HashStore")
def test_the_store(ranks: Ranks) -> None:
    ranks(2).run(stores)
