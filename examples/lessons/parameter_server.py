"""A parameter server: rank 0 keeps the weights, the others fetch them and send gradients, each at its own pace.

    hocket run -n 4 examples/lessons/parameter_server.py

The server receives from *any* rank, takes the step and answers that one. Nobody waits for the slowest, but a gradient
may be of weights that have moved on meanwhile, and all that is sent goes through one rank: with N ranks it moves N-1
times what a worker does. An all_reduce has neither; data_parallel.py is the same task with it.
"""

import numpy as np
from by_hand import everyone, say

import hocket

STEPS, RATE = 300, 0.05
TRUE = np.array([3.0, -2.0, 1.0])
GRADIENT, WEIGHTS = 1, 2  # tags


def serve(group):
    """Until all have had enough: the weights, how many gradients came from each rank, and how old the oldest was."""
    weights, pushes = np.zeros(3), np.zeros(group.size, int)
    version, seen, oldest = 0, np.zeros(group.size, int), 0
    while pushes.sum() < STEPS * (group.size - 1):
        work = group.recv(None, tag=GRADIENT, async_op=True)
        gradient = work.wait()
        worker = work.source  # who it was
        weights -= RATE * gradient
        version += 1
        pushes[worker] += 1
        oldest = max(oldest, version - 1 - seen[worker])  # steps since that worker was last told the weights
        group.send(weights, worker, tag=WEIGHTS)
        seen[worker] = version
    return weights, pushes, oldest


def work(group):
    """Gradients of random points of y = x · TRUE, of which each worker has its own. Bytes there and back."""
    random = np.random.default_rng(group.rank)
    weights, moved = np.zeros(3), 0
    for _ in range(STEPS):
        x = random.normal(size=(8, 3))
        gradient = 2 * x.T @ (x @ weights - x @ TRUE) / 8
        group.send(gradient, 0, tag=GRADIENT)
        group.recv(0, out=weights, tag=WEIGHTS)
        moved += gradient.nbytes + weights.nbytes
    return moved


def main(group):
    if group.size == 1:
        raise SystemExit("a server alone has nothing to do: hocket run -n 4 examples/lessons/parameter_server.py")
    weights, pushes, oldest = serve(group) if group.rank == 0 else (np.zeros(3), np.zeros(group.size, int), 0)
    moved = work(group) if group.rank else int(pushes.sum()) * 2 * weights.nbytes
    say(group, f"before   weights {np.zeros(3)}")
    say(group, f"after    weights {np.round(weights, 4)} from {pushes.sum()} gradients, {pushes[1:]} of each worker")
    say(group, f"oldest   a gradient was of weights that were up to {oldest} steps old")
    say(group, f"bytes    moved by r0 r1 ...: {everyone(group, moved)}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
