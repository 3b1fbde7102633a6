"""A model small enough to be trained in every test, and data that differ by rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from ranks import Ranks
from torch import Tensor, nn

STEPS = 4


def model() -> nn.Sequential:
    """The same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def batch(step: int, rank: int | None = None) -> Tensor:
    """What a rank, by default this one, learns from in a step."""
    rank = dist.get_rank() if rank is None else rank
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(100 * step + rank))


def loss(output: Tensor) -> Tensor:
    return (output - 1).square().mean()


def train(network: nn.Module, optimizer: Any = None, steps: int = STEPS, clip: float | None = None) -> list[Tensor]:
    """The parameters after some steps."""
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss(network(batch(step))).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()
    return [parameter.detach().clone() for parameter in network.parameters()]


def alone(size: int) -> list[Tensor]:
    """What a single process learns from the data of all ranks."""
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(network(torch.cat([batch(step, rank) for rank in range(size)]))).backward()
        optimizer.step()
    return [parameter.detach() for parameter in network.parameters()]


def close(got: Any, expected: Any) -> None:
    """Equal up to the order of summation."""
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def as_gloo(ranks: Ranks, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of the ranks, which are what they are over gloo."""
    results = ranks(size).run(function, *args)
    close(results, ranks(size, "gloo").run(function, *args))
    return results
