"""HOCKET_PROTECT=1, through torch.distributed: a call in place that fails leaves its tensor as it was."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

import hocket
from worlds import raised


def left(path: str, protect: str) -> tuple[bool, bool]:
    """Whether the tensor of rank 1 is as it was, and what the error says, where rank 2 makes no call: what comes from
    rank 0 is there when it gives up."""
    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ["HOCKET_PROTECT"] = protect
    options = hocket.torch.ProcessGroup(dist.FileStore(path, size), rank, size, 30.0)
    os.environ["HOCKET_PROTECT"] = ""
    options.set_timeout(timedelta(seconds=1))  # not that of the formation, which others may slow down
    tensor = torch.full((1 << 12,), float(rank))
    answer = True, False
    if rank < 2:
        how = dist.BroadcastOptions()
        how.rootRank, how.asyncOp = 0, False
        error = raised(hocket.HocketError, options.broadcast, [tensor], how)
        answer = bool((tensor == rank).all()), error.out_touched
    dist.barrier()
    options.abort()
    return answer


@pytest.mark.parametrize("protect", ["0", "1"])
def test_a_failed_call_leaves_its_tensor(ranks: Ranks, tmp_path: Path, protect: str) -> None:
    assert ranks(3).run(left, str(tmp_path / "store"), protect)[1] == (
        (True, False) if protect == "1" else (False, True)
    )
