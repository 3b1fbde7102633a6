"""Sort what is spread over ranks: an all_to_all in which everyone sends everyone another number of rows.

    hocket run -n 4 examples/lessons/sample_sort.py

Each rank sorts its own numbers and shows some of them, at even distances. Of all the samples, N-1 cut the numbers into
N ranges, one for each rank: they go where they belong, and are sorted there. How many come to a rank depends on the
numbers; that no rank gets much more than the others is what the samples are for.
"""

import numpy as np
from by_hand import everyone, say

import hocket

EACH, SAMPLES = 1000, 20


def main(group):
    n = group.size
    mine = np.sort(np.random.default_rng(group.rank).integers(0, 10**6, EACH))
    for rank, (low, high) in enumerate(everyone(group, mine[[0, -1]])):
        say(group, f"before  r{rank} has {EACH} numbers from {low:6} to {high:6}")

    samples = np.sort(group.all_gather(mine[EACH // SAMPLES // 2 :: EACH // SAMPLES]))  # of all ranks
    cuts = samples[SAMPLES * np.arange(1, n)]
    ends = np.searchsorted(mine, cuts)
    sizes = np.diff([0, *ends, EACH])  # how many of mine go to each rank
    mine = np.sort(group.all_to_all(mine, sizes=sizes))

    for rank, row in enumerate(everyone(group, sizes)):
        say(group, f"sends   r{rank} to all:", *(f"{size:5}" for size in row))
    kept = [mine.size, mine[0], mine[-1], mine.sum()]
    for rank, (count, low, high, total) in enumerate(everyone(group, kept)):
        say(group, f"after   r{rank} has {count:4} numbers from {low:6} to {high:6}, sum {total}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
