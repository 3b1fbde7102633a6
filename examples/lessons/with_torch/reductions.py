"""What ranks find out together by all_reduce: a mean, a softmax, where the maximum is, and what most of them want.

    python examples/lessons/with_torch/reductions.py 4

Four lessons that are one call each, or two. The same numbers as in ../distributed_mean.py, ../distributed_softmax.py,
../distributed_argmax.py and ../voting.py, which say more.
"""

import torch
import torch.distributed as dist
from start import everyone, say, start
from torch.distributed import ReduceOp

CANDIDATES = ["stop", "go on", "save"]


def reduced(x, op=ReduceOp.SUM):
    """dist.all_reduce works in place; here what went in is still wanted."""
    x = torch.as_tensor(x).clone()
    dist.all_reduce(x, op)
    return x


def mean():
    """Add up what adds up, sums and counts, and divide at the end. The mean of means is the mean only where every rank
    has equally many."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(rank**2, (rank + 1) ** 2, dtype=torch.float64) ** 2  # one number, three, five, ...
    for r, (count, of_mine) in enumerate(everyone([mine.numel(), mine.mean()])):
        say(f"before    r{r} has {count:.0f} numbers, of mean {of_mine:.4f}")

    of_means = reduced(mine.mean()) / size
    total, count = reduced(torch.stack([mine.sum(), torch.tensor(float(mine.numel()), dtype=torch.float64)]))
    squares = reduced((mine - total / count).square().sum())

    say(f"wrong     the mean of means is {of_means:.4f}")
    variance = squares / count
    say(f"after     {total:.0f} / {count:.0f}: the mean is {total / count:.4f}, and the variance {variance:.4f}")


def softmax():
    """Of a vocabulary that is split over ranks, as in tensor parallelism: the global maximum, exp, the global sum."""
    scores = 1000 + torch.sin(torch.arange(4, dtype=torch.float64) + 4 * dist.get_rank())
    for r, row in enumerate(everyone(scores)):
        say(f"scores    r{r}", *(f"{x:9.4f}" for x in row))

    careless = scores.exp() / reduced(scores.exp().sum())
    largest = reduced(scores.max(), ReduceOp.MAX)  # of *all* ranks, or pieces would be scaled differently
    powers = (scores - largest).exp()
    total = reduced(powers.sum())
    result = powers / total

    say(f"careless  r0 {careless.numpy()}: inf / inf")
    say(f"maximum   {largest:.4f}\nsum       {total:.4f}")
    for r, row in enumerate(everyone(result)):
        say(f"softmax   r{r}", *(f"{x:9.4f}" for x in row))
    say(f"together  {reduced(result.sum()):.4f}")


def argmax():
    """The largest value first; then the smallest place among the ranks that have it, so that of equals the first
    counts, as in torch.argmax of a tensor in one piece."""
    rank, size, each = dist.get_rank(), dist.get_world_size(), 5
    values = ((torch.arange(each) + each * rank) * 7 + 6) % 8
    for r, row in enumerate(everyone(values)):
        say(f"before  r{r}  {row}")

    largest = reduced(values.max(), ReduceOp.MAX)
    nowhere = each * size
    place = each * rank + values.argmax() if values.max() == largest else torch.tensor(nowhere)
    first = reduced(place, ReduceOp.MIN).item()

    say(f"after   the largest is {largest}, on r{first // each} at {first % each}: at {first} of all {nowhere}")


def voting():
    """Every rank gets the same result, which makes an `if` safe: what is asked is not "am I done?" but "are we?"."""
    rank = dist.get_rank()
    vote, done, newest, knows = (rank**2 + 1) % 3, rank != 1, 10 + rank * 3 % 4, 0b1011 | 1 << rank
    for r, (v, d, n, k) in enumerate(everyone([vote, done, newest, knows])):
        say(f"r{r}: votes {CANDIDATES[v]!r}, done {bool(d)}, has version {n}, knows {k:04b}")

    votes = reduced(torch.eye(3, dtype=torch.int64)[vote])  # a one for each rank's candidate
    won = votes.argmax()
    say(f"\nsum   votes {votes.numpy()}: {CANDIDATES[won]!r} has the most")
    say(f"land  all are done: {bool(reduced(done, ReduceOp.MIN))}")  # torch's "and" and "or" of booleans
    say(f"lor   any is done: {bool(reduced(done, ReduceOp.MAX))}")
    highest, lowest = reduced(newest, ReduceOp.MAX), reduced(newest, ReduceOp.MIN)
    agree = bool(highest == lowest)
    say(f"max   the newest version anywhere is {highest}")
    say(f"min   the newest version that all have reached is {lowest}")
    say(f"max and min agree: {agree}, so the ranks {'do' if agree else 'do not'}")
    say(f"band  what all know: {reduced(knows, ReduceOp.BAND).item():04b}")
    say(f"bor   what any knows: {reduced(knows, ReduceOp.BOR).item():04b}")


LESSONS = {"distributed_mean": mean, "distributed_softmax": softmax, "distributed_argmax": argmax, "voting": voting}


def main():
    for name, lesson in LESSONS.items():
        say(f"\n== {name}")
        lesson()


if __name__ == "__main__":
    start(main)
