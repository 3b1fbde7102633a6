"""Train on the digits while processes are killed, stopped, and started again.

    hocket run -n 4 --max-restarts 9 examples/elastic_digits.py            # a quiet run
    hocket run -n 4 --max-restarts 9 examples/elastic_digits.py --storm    # three are lost on the way, and come again

`hocket.elastic` is all there is to it: the training is a generator that yields when a step is done. Whoever is lost
costs the step that it was lost in; whoever comes gets the weights from the others. The network is that of
train_digits.py.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
from train_digits import BATCH, RATE, SHAPES, forward, gradient, load

import hocket

STEPS = 360


def batch(step, size):
    """The images of that step: the same on all ranks, in every order of events."""
    epoch, place = divmod(step, size // BATCH)
    return np.random.default_rng(epoch).permutation(size)[place * BATCH : (place + 1) * BATCH]


def train(group, state):
    """Each rank takes its part of every batch, however many they are; a mean over images, not over ranks."""
    images, labels, *_ = load()
    print(f"rank {group.rank} of {group.size} (pid {os.getpid()}) goes on from step {state['step']}", flush=True)
    while state["step"] < STEPS:
        strike(state["step"])
        while "--storm" in sys.argv and state["step"] == STEPS - 1 and group.size + group.pending() < 4:
            time.sleep(0.02)  # the last step waits for who is missing, who may wake up when all is done
        chosen = batch(state["step"], len(labels))
        mine = np.array_split(chosen, group.size)[group.rank]
        grads = gradient(state["weights"], images[mine], labels[mine]) * (len(mine) / BATCH)
        state["weights"] -= RATE * group.all_reduce(grads)
        state["step"] += 1
        yield
    return group.rank == 0


def strike(step):
    """The storm: each of these happens once, to a process in its first life."""
    if "--storm" not in sys.argv or os.environ.get("HOCKET_RESTARTS"):
        return
    match os.environ.get("RANK"), step:
        case "1", 60:
            os.kill(os.getpid(), signal.SIGKILL)
        case "0", 140:
            raise RuntimeError("rank 0 has had enough")
        case "2", 220:  # the others go on without it; when it wakes up it joins them again
            subprocess.Popen(["sh", "-c", f"sleep 4; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)


def beginning():
    """Everybody's first weights."""
    return np.random.default_rng(1).normal(0, 0.1, sum(np.prod(shape) for shape in SHAPES))


def accuracy(weights):
    """On images not seen before."""
    _, _, images, labels = load()
    return np.mean(forward(weights, images)[1].argmax(axis=1) == labels)


def main():
    state = {"weights": beginning(), "step": 0}
    if hocket.elastic(state, train):
        images, labels, *_ = load()
        alone = beginning()
        for step in range(STEPS):
            chosen = batch(step, len(labels))
            alone -= RATE * gradient(alone, images[chosen], labels[chosen])
        difference = np.abs(state["weights"] - alone).max()
        print(f"test accuracy            {accuracy(state['weights']):.1%} on images not seen before")
        print(f"of a single process      {accuracy(alone):.1%}; no weight differs by more than {difference:.1e}")


if __name__ == "__main__":
    main()
