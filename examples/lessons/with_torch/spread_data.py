"""Data that are spread over ranks: clusters are found, values counted and sorted, and hardly any of them travel.

    python examples/lessons/with_torch/spread_data.py 4

The same numbers as in ../kmeans.py, ../histogram.py and ../sample_sort.py. What each of these lessons moves: sums and
counts; two numbers, then counts; samples, and then each number once, to where it belongs.
"""

import numpy as np
import torch
import torch.distributed as dist
from start import everyone, say, start
from torch.distributed import ReduceOp


def kmeans(centres=3, points=120, rounds=20):
    """A centre is the mean of its points: 3 numbers for each, in one tensor, are all that a round sends."""
    random = np.random.default_rng(3)  # the same points on all ranks, of which each takes its part
    everything = np.array([[0, 0], [6, 1], [2, 7]]).repeat(points // 3, axis=0) + random.normal(size=(points, 2))
    mine = torch.from_numpy(everything)[dist.get_rank() :: dist.get_world_size()]
    at = mine[:centres].clone()
    dist.broadcast(at, src=0)  # all begin with the root's first points
    say("before  ", *(f"({x:7.3f}, {y:7.3f})" for x, y in at))

    for round in range(1, rounds + 1):
        squares, nearest = torch.cdist(mine, at).square().min(dim=1)
        sums = torch.zeros(centres, 3, dtype=mine.dtype)  # x, y and how many, for each centre
        sums.index_add_(0, nearest, torch.cat([mine, torch.ones(len(mine), 1, dtype=mine.dtype)], dim=1))
        cost = squares.sum()
        dist.all_reduce(sums)
        dist.all_reduce(cost)
        moved = sums[:, :2] / sums[:, 2:].clamp(min=1)
        say(f"round {round:2}", *(f"({x:7.3f}, {y:7.3f})" for x, y in moved), f" cost {cost:8.3f}")
        if torch.allclose(moved, at):  # the same bits on all ranks, so all stop in the same round
            break
        at = moved
    say("points  ", *(f"{count:18.0f}" for count in sums[:, 2]))


def histogram(bins=8):
    """Bins must be the same on all ranks before counts can be added: first the smallest and the largest value, in one
    call, the largest of x and of -x."""
    mine = torch.from_numpy(np.random.default_rng(dist.get_rank()).normal(loc=dist.get_rank(), size=200))
    for r, (low, high) in enumerate(everyone([mine.min(), mine.max()])):
        say(f"before  r{r}  {mine.numel()} values from {low:7.4f} to {high:7.4f}")

    ends = torch.stack([-mine.min(), mine.max()])
    dist.all_reduce(ends, ReduceOp.MAX)
    low, high = -ends[0].item(), ends[1].item()
    counts, edges = torch.histogram(mine, bins, range=(low, high))
    own = counts.clone()
    dist.all_reduce(counts)

    own, total = own.long().numpy(), int(counts.sum())
    say(f"after   {total} values, # is one in a hundred; r0 had {own}")
    for left, right, count in zip(edges, edges[1:], counts.tolist(), strict=False):
        say(f"{left:8.4f} to {right:8.4f} {count:5.0f}  {'#' * round(100 * count / total)}")


def sample_sort(each=1000, samples=20):
    """All samples together cut the numbers into one range per rank. In torch the receivers must know how much comes, so
    an all_to_all of sizes goes before that of numbers; the experts of a mixture get their tokens in the same way."""
    size = dist.get_world_size()
    mine = torch.from_numpy(np.random.default_rng(dist.get_rank()).integers(0, 10**6, each)).sort().values
    for r, (low, high) in enumerate(everyone(mine[[0, -1]])):
        say(f"before  r{r} has {each} numbers from {low:6} to {high:6}")

    step = each // samples
    shown = torch.empty(samples * size, dtype=mine.dtype)
    dist.all_gather_single(shown, mine[step // 2 :: step].contiguous())
    cuts = shown.sort().values[samples * torch.arange(1, size)]
    ends = torch.searchsorted(mine, cuts)
    going = torch.diff(ends, prepend=torch.tensor([0]), append=torch.tensor([each]))  # how many go to each rank
    coming = torch.empty_like(going)
    dist.all_to_all_single(coming, going)
    kept = torch.empty(int(coming.sum()), dtype=mine.dtype)
    dist.all_to_all_single(kept, mine, coming.tolist(), going.tolist())
    kept = kept.sort().values

    for r, row in enumerate(everyone(going)):
        say(f"sends   r{r} to all:", *(f"{count:5}" for count in row))
    for r, (count, low, high, total) in enumerate(everyone([len(kept), kept[0], kept[-1], kept.sum()])):
        say(f"after   r{r} has {count:4} numbers from {low:6} to {high:6}, sum {total}")


def main():
    for lesson in kmeans, histogram, sample_sort:
        say(f"\n== {lesson.__name__}")
        lesson()


if __name__ == "__main__":
    start(main)
