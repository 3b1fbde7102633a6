"""k-means over points that stay where they are: what travels is a sum and a count for each centre.

    hocket run -n 4 examples/lessons/kmeans.py

A centre is the mean of its points. So each rank adds up those of its own points that are nearest to each centre, one
all_reduce adds up the sums and the counts, and all ranks compute the same new centres. However many points there are,
what is sent per round is 3 numbers for each centre, in one array: two calls would pay for two rounds.
"""

import numpy as np
from by_hand import say

import hocket

CENTRES, POINTS, ROUNDS = 3, 120, 20


def main(group):
    random = np.random.default_rng(3)  # the same points on all ranks, of which each takes its part
    points = np.array([[0, 0], [6, 1], [2, 7]]).repeat(POINTS // 3, axis=0) + random.normal(size=(POINTS, 2))
    mine = points[group.rank :: group.size]
    centres = group.broadcast(mine[:CENTRES].copy())  # the root's first points: all begin with the same
    say(group, "before  ", *(f"({x:7.3f}, {y:7.3f})" for x, y in centres))

    for round in range(1, ROUNDS + 1):
        distances = ((mine[:, None] - centres) ** 2).sum(axis=2)
        nearest = np.eye(CENTRES)[distances.argmin(axis=1)]  # [point, centre]: a one where it belongs
        sums = np.column_stack([nearest.T @ mine, nearest.sum(axis=0)])  # x, y and how many, for each centre
        sums, cost = group.all_reduce(sums), group.all_reduce(np.array(distances.min(axis=1).sum()))
        moved = sums[:, :2] / np.maximum(sums[:, 2:], 1)
        say(group, f"round {round:2}", *(f"({x:7.3f}, {y:7.3f})" for x, y in moved), f" cost {cost:8.3f}")
        if np.allclose(moved, centres):  # the same bits on all ranks, so all stop in the same round
            break
        centres = moved
    say(group, "points  ", *(f"{count:18.0f}" for count in sums[:, 2]))


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
