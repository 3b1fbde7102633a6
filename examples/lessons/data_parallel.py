"""Data-parallel training in one line: each rank has a part of every batch, and the gradients' mean is everybody's.

    hocket run -n 4 examples/lessons/data_parallel.py

The mean over a batch is the mean of the means over its parts, if these are equally large. So all ranks take the step
that one process would take with the whole batch, and all weights stay equal without ever being sent.
examples/train_digits.py does the same with a network.
"""

import numpy as np
from by_hand import everyone, say

import hocket

STEPS, RATE = 60, 0.2


def gradient(weights, x, y):
    """Of the mean of (x w - y)²."""
    return 2 * x.T @ (x @ weights - y) / len(y)


def data(step, size):
    """The batch of a step, the same wherever it is asked for: y = 3 a - 2 b + 1, and noise."""
    random = np.random.default_rng(step)
    x = np.column_stack([random.normal(size=(size, 2)), np.ones(size)])
    return x, x @ [3, -2, 1] + random.normal(scale=0.1, size=size)


def main(group):
    weights, alone = np.zeros(3), np.zeros(3)
    batch = -(-24 // group.size) * group.size  # as many for each rank
    for step in range(STEPS):
        x, y = data(step, batch)
        mine = slice(group.rank, None, group.size)
        mean = group.all_reduce(gradient(weights, x[mine], y[mine]), op="mean")  # the one line
        weights -= RATE * mean
        alone -= RATE * gradient(alone, x, y)  # what one process would do, only to compare
        if step in (0, 1, 3, 9, STEPS - 1):
            loss = np.mean((x @ weights - y) ** 2)
            say(
                group,
                f"step {step + 1:3}   weights {weights[0]:8.4f} {weights[1]:8.4f} {weights[2]:8.4f}   {loss:8.4f}",
            )

    digests = everyone(group, weights.view(np.int64))  # bits, not numbers
    say(group, f"the weights have the same bits on all ranks: {bool((digests == digests[0]).all())}")
    say(group, f"one process alone comes as near as rounding: {np.allclose(weights, alone, rtol=0, atol=1e-12)}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
