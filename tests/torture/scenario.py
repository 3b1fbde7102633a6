"""One trial as plain data: drawn from the seed and the trial's number alone, so that it can be drawn again."""

from __future__ import annotations

import random
from typing import NamedTuple

# What happens, on one rank, at a random moment; and the seconds that calls may take then. Where nothing is to fail
# there is much time; where a deadline is what the fault is about, little.
FAULTS: dict[str, float] = {
    "none": 20.0,
    "killed": 3.0,
    "stopped long": 0.7,  # for longer than the deadline, then continued
    "stopped briefly": 20.0,
    "exit": 3.0,
    "exception": 3.0,
    "interrupted": 3.0,  # SIGINT
    "closed": 3.0,  # by another thread
    "mismatch": 3.0,
    "operator raises": 3.0,
    "operator overruns": 0.7,
    "no descriptors": 1.5,
    "handler calls": 3.0,
}
SIGNALS = ("killed", "stopped long", "stopped briefly", "interrupted", "handler calls")
HARMLESS = ("none", "stopped briefly")  # in which no call may fail

WORKLOADS = (
    "all_reduce",
    "large all_reduce",
    "reduce",
    "broadcast",
    "scatter",
    "gather",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "uneven",
    "small",
    "async",
    "persistent",
    "messages",
    "subgroups",
    "ufunc",
    "operator",
    "threads",
    "forked child",
)
ALGORITHMS: dict[str, tuple[str | None, ...]] = {
    "all_reduce": (None, "ring", "one_shot", "two_shot", "binomial_tree", "recursive_doubling", "naive"),
    "reduce": (None, "binomial_tree"),
    "broadcast": (None, "binomial_tree", "scatter_all_gather"),
    "scatter": (None, "binomial_tree"),
    "gather": (None, "binomial_tree"),
    "all_gather": (None, "ring"),
    "reduce_scatter": (None, "ring"),
    "all_to_all": (None, "pairwise"),
}


class Trial(NamedTuple):
    """What the ranks do, and what happens to which of them."""

    number: int
    size: int
    workload: str
    fault: str
    victim: int
    rounds: int  # of the workload
    at: int  # the round in which the fault happens
    delay: float  # seconds later
    timeout: float  # of each call
    algorithm: int  # of those that its collective has
    count: int  # elements
    dtype: str
    place: str
    out: str
    root: int
    seed: int  # for all else

    def __str__(self) -> str:
        return (
            f"{self.workload} over {self.size} ranks, {self.count} x {self.dtype} ({self.place}, {self.out}), root "
            f"{self.root}; {self.fault}: rank {self.victim} in round {self.at} + {self.delay * 1000:.1f} ms"
        )


def draw(seed: int, number: int) -> Trial:
    """The trial of that number: faults and workloads take turns, so that every pair comes; all else is random."""
    rng = random.Random(f"{seed} {number}")
    # The workloads are walked through once for each fault in turn, in an order that depends on the seed.
    grid = [(fault, workload) for workload in WORKLOADS for fault in FAULTS]
    random.Random(seed + number // len(grid)).shuffle(grid)
    fault, workload = grid[number % len(grid)]
    size = rng.choice((2, 2, 3, 4))
    large = workload == "large all_reduce"
    rounds = rng.randint(3, 6) if large else rng.randint(6, 20)
    return Trial(
        number=number,
        size=size,
        workload=workload,
        fault=fault,
        victim=rng.randrange(size),
        rounds=rounds,
        at=rng.randrange(rounds),
        delay=rng.choice((0.0, rng.random() * 0.0005, rng.random() * 0.005)),
        timeout=FAULTS[fault],
        algorithm=rng.randrange(1 << 16),
        count=rng.choice((2**20, 2**20 + 12)) if large else rng.choice((1, 12, 1000, 4096, 16_384, 60_000, 200_004)),
        dtype=rng.choice(("float32", "float64", "int64", "int16")),
        place=rng.choice(("plain", "arena", "arena")),
        out=rng.choice(("new", "out", "in place")),
        root=rng.randrange(size),
        seed=rng.randrange(1 << 30),
    )
