"""A histogram of data that are spread over ranks: first agree on the bins, then add up the counts.

    hocket run -n 4 examples/lessons/histogram.py

Bins must be the same on all ranks before counts can be added, and nobody sees all the data: so the smallest and the
largest value are found first. They are one call: the largest of x and of -x.
"""

import numpy as np
from by_hand import everyone, say

import hocket

BINS = 8


def main(group):
    mine = np.random.default_rng(group.rank).normal(loc=group.rank, size=200)
    for rank, (low, high) in enumerate(everyone(group, [mine.min(), mine.max()])):
        say(group, f"before  r{rank}  {mine.size} values from {low:7.4f} to {high:7.4f}")

    low, high = group.all_reduce(np.array([-mine.min(), mine.max()]), op="max") * [-1, 1]
    counts, edges = np.histogram(mine, bins=BINS, range=(low, high))
    mine_in_all = counts.copy()
    group.all_reduce(counts, out=counts)

    say(group, f"after   {counts.sum()} values, # is one in a hundred; r0 had {mine_in_all}")
    for left, right, count in zip(edges, edges[1:], counts, strict=False):
        say(group, f"{left:8.4f} to {right:8.4f} {count:5}  {'#' * round(100 * count / counts.sum())}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
