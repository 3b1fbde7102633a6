"""Data-parallel training: the gradients' mean over all ranks, by hand and by DistributedDataParallel.

    python examples/lessons/with_torch/data_parallel.py 4

The mean over a batch is the mean of the means over its parts, if these are equally large: all ranks take the step that
one process would take with the whole batch. By hand it is an all_reduce of each gradient between `backward` and `step`;
DDP does the same, in buckets. examples/train_ddp.py trains a network with it.
"""

import numpy as np
import torch
import torch.distributed as dist
from start import everyone, say, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, RATE = 60, 0.2


def model():
    """y = a x0 + b x1 + c; as all ranks begin with the same, nothing need be broadcast. DDP broadcasts all the same."""
    line = nn.Linear(2, 1, dtype=torch.float64)
    for parameter in line.parameters():
        nn.init.zeros_(parameter)
    return line


def data(step, size):
    """The batch of a step, the same wherever it is asked for: y = 3 a - 2 b + 1, and noise."""
    random = np.random.default_rng(step)
    x = random.normal(size=(size, 2))
    y = x @ [3, -2] + 1 + random.normal(scale=0.1, size=size)
    return torch.from_numpy(x), torch.from_numpy(y)


def loss_of(network, x, y):
    return (network(x).squeeze(1) - y).square().mean()


def step_of(network, x, y, between=lambda: None):
    """A step of gradient descent; `between` is done before weights change."""
    network.zero_grad()
    loss_of(network, x, y).backward()
    between()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter -= RATE * parameter.grad


def weights(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def main():
    n, rank = dist.get_world_size(), dist.get_rank()
    by_hand, by_ddp, alone = model(), DistributedDataParallel(model()), model()

    def average():
        for parameter in by_hand.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= n

    batch = -(-24 // n) * n  # as many for each rank
    for step in range(STEPS):
        x, y = data(step, batch)
        mine = slice(rank, None, n)
        step_of(by_hand, x[mine], y[mine], between=average)
        step_of(by_ddp, x[mine], y[mine])
        step_of(alone, x, y)  # what one process would do, only to compare
        if step in (0, 1, 3, 9, STEPS - 1):
            a, b, c = weights(by_hand)
            say(f"step {step + 1:3}   weights {a:8.4f} {b:8.4f} {c:8.4f}   {loss_of(by_hand, x, y):8.4f}")

    hand, ddp = (everyone(weights(network).view(torch.int64)) for network in (by_hand, by_ddp))  # bits, not numbers
    same = bool((hand == hand[0]).all() and (ddp == ddp[0]).all())
    near = torch.allclose(weights(by_hand), weights(by_ddp), rtol=0, atol=1e-12)
    say(f"by hand and by DDP are as near as rounding: {near}")
    say(f"the weights have the same bits on all ranks: {same}")
    near = torch.allclose(weights(by_hand), weights(alone), rtol=0, atol=1e-12)
    say(f"one process alone comes as near as rounding: {near}")


if __name__ == "__main__":
    start(main)
