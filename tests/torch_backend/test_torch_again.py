"""After an error, destroy_process_group and init_process_group in the same process: again and again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

import hocket
import hocket.torch
from moments import held, last

ROUNDS = 300


def again_and_again(rank: int, size: int, store: str) -> list[tuple[int, int, int]]:
    """A group, a sum, an error of one kind or another, and the end of the group. What the process holds after some."""
    if dist.is_initialized():
        dist.destroy_process_group()
    shared, after = dist.FileStore(store, size), []
    for turn in range(ROUNDS):
        prefixed = dist.PrefixStore(f"turn {turn}", shared)
        dist.init_process_group("hocket", store=prefixed, rank=rank, world_size=size, timeout=timedelta(seconds=20))
        x = torch.arange(100.0) + rank + turn
        dist.all_reduce(x)
        assert x.tolist() == [size * (i + turn) + size * (size - 1) / 2 for i in range(100)]
        odd = torch.ones(3 if rank == turn % size else 4)
        last(dist.group.WORLD._group, turn % size)  # whose error could end what others are in
        if turn % 3 == 0:
            with pytest.raises(hocket.MismatchError):
                dist.all_reduce(odd)
        elif turn % 3 == 1:
            work = dist.all_reduce(odd, async_op=True)
            with pytest.raises(hocket.MismatchError):
                work.wait()
        dist.destroy_process_group()
        if turn in (30, ROUNDS - 1):
            after.append(held())
    return after


def test_a_group_is_made_again_after_an_error(ranks: Ranks, tmp_path: Path) -> None:
    world = ranks.world
    ranks.restart()
    outcomes = world.run(alone, str(tmp_path / "store"), deadline=250)
    ranks.restart()
    for early, late in outcomes:
        assert late[:2] <= early[:2], (early, late)
        assert late[2] < ROUNDS // 2, "some errors, and with them their groups, are held for a while: not one a round"


def alone(group: hocket.Group, store: str) -> list[tuple[int, int, int]]:
    rank, size = group.rank, group.size
    return again_and_again(rank, size, store)
