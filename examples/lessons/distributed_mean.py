"""The mean and the variance of numbers that are spread over ranks, unevenly: what is summed, and what must not be.

    hocket run -n 4 examples/lessons/distributed_mean.py

The mean of the ranks' means is the mean of all numbers only where every rank has equally many. What always works is to
add up what adds up, sums and counts, and to divide at the end.
"""

import numpy as np
from by_hand import everyone, say

import hocket


def main(group):
    r = group.rank
    mine = np.arange(r**2, (r + 1) ** 2) ** 2.0  # of 0, 1, 4, 9, ... the first, then three, then five, ...

    for rank, (count, mean) in enumerate(everyone(group, [mine.size, mine.mean()])):
        say(group, f"before    r{rank} has {count:.0f} numbers, of mean {mean:.4f}")

    of_means = group.all_reduce(np.array(mine.mean()), op="mean")
    total, count = group.all_reduce(np.array([mine.sum(), mine.size]))
    mean = total / count
    squares = group.all_reduce(np.array(((mine - mean) ** 2).sum()))  # a second pass, when the mean is known

    say(group, f"wrong     the mean of means is {of_means:.4f}")
    say(group, f"after     {total:.0f} / {count:.0f}: the mean is {mean:.4f}, and the variance {squares / count:.4f}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
