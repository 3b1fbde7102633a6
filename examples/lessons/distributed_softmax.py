"""A softmax over scores that are spread over ranks: the global maximum, exp, the global sum.

    hocket run -n 4 examples/lessons/distributed_softmax.py

This is how the last layer of a model is computed whose vocabulary is split over processes. exp(1000) is more than a
float can hold, so the largest score is taken off all of them first, and it must be the largest of *all* ranks: with
each its own, the pieces would be scaled differently.
"""

import numpy as np
from by_hand import everyone, say

import hocket


def main(group):
    scores = 1000 + np.sin(np.arange(4.0) + 4 * group.rank)  # four of the scores on each rank
    for rank, row in enumerate(everyone(group, scores)):
        say(group, f"scores    r{rank}", *(f"{x:9.4f}" for x in row))

    with np.errstate(over="ignore", invalid="ignore"):
        careless = np.exp(scores) / group.all_reduce(np.array(np.exp(scores).sum()))

    largest = group.all_reduce(np.array(scores.max()), op="max")
    powers = np.exp(scores - largest)
    total = group.all_reduce(np.array(powers.sum()))
    softmax = powers / total

    say(group, f"careless  r0 {careless}: inf / inf")
    say(group, f"maximum   {largest:.4f}\nsum       {total:.4f}")
    for rank, row in enumerate(everyone(group, softmax)):
        say(group, f"softmax   r{rank}", *(f"{x:9.4f}" for x in row))
    one = group.all_reduce(np.array(softmax.sum()))
    say(group, f"together  {one:.4f}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
