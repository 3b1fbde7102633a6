"""One trial as plain data: drawn from the seed and the trial's number alone, so that it can be drawn again."""

from __future__ import annotations

import random
from typing import NamedTuple

# What happens, on one rank, at a random moment; and the seconds that calls may take then. Where nothing is to fail
# there is much time; where a deadline is what the fault is about, little.
FAULTS: dict[str, float] = {
    "none": 20.0,
    "killed": 20.0,
    "two killed": 20.0,  # the second one while the others find out about the first
    "stopped long": 0.7,  # for longer than the deadline, then continued
    "stopped briefly": 20.0,
    "zombie": 20.0,  # stopped, and continued once the others have formed a new group
    "exit": 20.0,
    "exception": 3.0,
    "interrupted": 3.0,  # SIGINT
    "closed": 3.0,  # by another thread
    "mismatch": 3.0,
    "operator raises": 3.0,
    "operator overruns": 0.7,
    "no descriptors": 1.5,
    "handler calls": 3.0,
    "killed in recover": 20.0,  # a second one, after another was killed or has made another call
    "stopped in recover": 20.0,
    "interrupted in recover": 20.0,
}
# Within these seconds all others know of it, whatever the deadline of their calls.
PROMISED = {"killed": 0.5, "two killed": 0.5, "exit": 0.5, "zombie": 2.5}
SIGNALS = ("killed", "two killed", "stopped long", "stopped briefly", "zombie", "interrupted", "handler calls")
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
APART = ("subgroups", "threads")  # whose errors may be those of another group
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
    second: int  # another victim, where there are two,
    later: float  # seconds after the first; or
    step: int  # at this step of recover()
    timeout: float  # of each call
    algorithm: int  # of those that its collective has
    count: int  # elements
    dtype: str
    place: str
    out: str
    root: int
    seed: int  # for all else

    @property
    def first(self) -> str:
        """The fault that ends the group, where another one comes later."""
        if self.fault == "two killed" or (self.fault.endswith("in recover") and self.size > 2 and self.seed % 2):
            return "killed"
        return "mismatch" if self.fault.endswith("in recover") else self.fault

    @property
    def few(self) -> bool:
        """Whether who is left goes on where the others may do so, too."""
        return self.seed // 4 % 2 == 1

    def __str__(self) -> str:
        second = f", then rank {self.second} (+ {self.later * 1000:.1f} ms, step {self.step})"
        return (
            f"{self.workload} over {self.size} ranks, {self.count} x {self.dtype} ({self.place}, {self.out}), root "
            f"{self.root}; {self.fault}: rank {self.victim} in round {self.at} + {self.delay * 1000:.1f} ms"
            f"{second if self.first != self.fault else ''}"
        )


def draw(seed: int, number: int) -> Trial:
    """The trial of that number: faults and workloads take turns, so that every pair comes; all else is random."""
    rng = random.Random(f"{seed} {number}")
    # The workloads are walked through once for each fault in turn, in an order that depends on the seed.
    grid = [(fault, workload) for workload in WORKLOADS for fault in FAULTS]
    random.Random(seed + number // len(grid)).shuffle(grid)
    fault, workload = grid[number % len(grid)]
    size = rng.choice((2, 2, 3, 3, 4, 5, 6))
    large = workload == "large all_reduce"
    rounds = rng.randint(3, 6) if large else rng.randint(6, 20)
    victim = rng.randrange(size)
    return Trial(
        number=number,
        size=size,
        workload=workload,
        fault=fault,
        victim=victim,
        rounds=rounds,
        at=rng.randrange(rounds),
        delay=rng.choice((0.0, rng.random() * 0.0005, rng.random() * 0.005)),
        second=(victim + rng.randrange(1, size)) % size,
        later=rng.choice((0.0, rng.random() * 0.0005, rng.random() * 0.005, rng.random() * 0.08)),
        step=rng.randrange(16),
        timeout=FAULTS[fault],
        algorithm=rng.randrange(1 << 16),
        count=rng.choice((2**20, 2**20 + 12)) if large else rng.choice((1, 12, 1000, 4096, 16_384, 60_000, 200_004)),
        dtype=rng.choice(("float32", "float64", "int64", "int16")),
        place=rng.choice(("plain", "arena", "arena")),
        out=rng.choice(("new", "out", "in place")),
        root=rng.randrange(size),
        seed=rng.randrange(1 << 30),
    )
