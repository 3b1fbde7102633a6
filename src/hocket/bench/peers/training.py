"""Steps of training by their names in a task, to be timed for what they communicate. See with_torch.py."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .loop import Run


@cache
def step(name: str) -> Run:
    """One step, of a network that is made once: "ddp", "fsdp2", or what is bare of either (`BARE`)."""
    torch.manual_seed(0)
    if name in ("fsdp2", "transformer"):
        layers = [nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True) for _ in range(4)]
        network = nn.Sequential(*layers)
        return _step(_sharded(network) if name == "fsdp2" else network, 4, 16, 128)
    network = nn.Sequential(*(nn.Linear(32, 32) for _ in range(20)))
    return _step(DistributedDataParallel(network) if name == "ddp" else network, 8, 32)


def _step(network: Any, *shape: int) -> Run:
    optimizer, data = torch.optim.SGD(network.parameters(), lr=1e-3), torch.randn(*shape)

    def run() -> None:
        optimizer.zero_grad()
        network(data).square().mean().backward()
        optimizer.step()

    for _ in range(3):  # which import modules, and lay out DDP's buckets anew
        run()
    return run


def _sharded(network: nn.Sequential) -> Any:
    """Each layer of it spread over all ranks."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    for layer in network:
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return network
