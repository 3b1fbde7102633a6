"""A parameter server: rank 0 keeps the weights, the others fetch them and send gradients, each at its own pace.

    python examples/lessons/with_torch/parameter_server.py 4

`dist.recv` without a source takes from *any* rank and returns which one it was. Nobody waits for the slowest, but a
gradient may be of weights that have moved on meanwhile, and all that is sent goes through one rank.
"""

import numpy as np
import torch
import torch.distributed as dist
from start import everyone, say, start

STEPS, RATE = 300, 0.05
TRUE = torch.tensor([3.0, -2.0, 1.0], dtype=torch.float64)
GRADIENT, WEIGHTS = 1, 2  # tags


def serve():
    """Until all have had enough: the weights, how many gradients came from each rank, and how old the oldest was."""
    size = dist.get_world_size()
    weights, gradient = torch.zeros_like(TRUE), torch.empty_like(TRUE)
    pushes, seen, oldest = [0] * size, [0] * size, 0
    for version in range(STEPS * (size - 1)):
        worker = dist.recv(gradient, tag=GRADIENT)
        oldest = max(oldest, version - seen[worker])  # steps since that worker was last told the weights
        weights -= RATE * gradient
        pushes[worker] += 1
        dist.send(weights, worker, tag=WEIGHTS)
        seen[worker] = version + 1
    return weights, np.array(pushes), oldest


def work():
    """Gradients of random points of y = x · TRUE, of which each worker has its own. Bytes there and back."""
    random = np.random.default_rng(dist.get_rank())
    weights, moved = torch.zeros_like(TRUE), 0
    for _ in range(STEPS):
        x = torch.from_numpy(random.normal(size=(8, 3)))
        w = weights.clone().requires_grad_()
        (x @ w - x @ TRUE).square().mean().backward()
        dist.send(w.grad, 0, tag=GRADIENT)
        dist.recv(weights, 0, tag=WEIGHTS)
        moved += w.grad.nbytes + weights.nbytes
    return moved


def main():
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        say("a server alone has nothing to do: give it workers")
        return
    weights, pushes, oldest = serve() if rank == 0 else (torch.zeros_like(TRUE), np.zeros(size, int), 0)
    moved = work() if rank else int(pushes.sum()) * 2 * weights.nbytes
    say(f"before   weights {np.zeros(3)}")
    say(f"after    weights {weights.numpy().round(4)} from {pushes.sum()} gradients, {pushes[1:]} of each worker")
    say(f"oldest   a gradient was of weights that were up to {oldest} steps old")
    say(f"bytes    moved by r0 r1 ...: {everyone(moved)}")


if __name__ == "__main__":
    start(main)
