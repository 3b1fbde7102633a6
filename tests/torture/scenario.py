"""One trial as plain data: drawn from the seed and the trial's number alone, so that it can be drawn again."""

from __future__ import annotations

import random
from collections.abc import Collection
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
    "no memory": 1.5,
    "killed as they meet": 3.0,  # in another init(), the one that holds the store or another one
    "handler calls": 3.0,
    "killed in recover": 20.0,  # a second one, after another was killed or has made another call
    "stopped in recover": 20.0,
    "interrupted in recover": 20.0,
    "no descriptors in recover": 20.0,
    "no memory in recover": 20.0,
    "killed at a step": 20.0,  # of the protocol, as csrc/wait/failpoint.h has them; or exit() there
    "stopped at a step": 20.0,  # as a zombie
    "late at a step": 20.0,
    "interrupted at a step": 3.0,
    "cut off": 20.0,  # the cable of the victim's host is pulled, until those that are left have gone on
    "cut off one way": 20.0,  # nothing that it sends arrives
    "cut off briefly": 20.0,
    "a bit is flipped": 20.0,  # of what comes over a link, which carries checksums
    "short writes": 20.0,  # the kernel takes a few bytes of what is sent, each time
    "short reads": 20.0,
}
LINKS = tuple(fault for fault in FAULTS if fault.startswith("cut off"))  # of ranks on several hosts
# What the victim's connections do, where they are TCP's in clear: the step, at a visit or from then on.
LINES = {"a bit is flipped": "flipped", "short writes": "short_send", "short reads": "short_receive"}
SCARCE = ("no descriptors", "no memory")  # while the ranks form another group
LEAVE = ("exit", "mismatch", "a bit is flipped")  # of messages only those hear that wait for who leaves
# Within these seconds all others know of it, whatever the deadline of their calls.
PROMISED = {
    "killed": 0.5,
    "two killed": 0.5,
    "exit": 0.5,
    "zombie": 2.5,
    "killed at a step": 0.5,
    "stopped at a step": 2.5,
    "cut off": 2.5,
    "cut off one way": 2.5,
    "a bit is flipped": 2.5,
}
SIGNALS = ("killed", "two killed", "stopped long", "stopped briefly", "zombie", "interrupted", "handler calls")
HARMLESS = (
    "none",
    "stopped briefly",
    "late at a step",
    "cut off briefly",
    "short writes",
    "short reads",
)  # in which no call may fail

# The steps of a call,
IN_CALLS = (
    *("entered", "staged", "published", "viewed", "put", "collected", "folded", "released", "fetched"),
    *("moved", "met"),
    *("completed", "giving_back", "before_mail", "mail_read"),
    *("frame_composed", "frame_half_sent", "frame_received", "frame_heard", "kept"),
)
# of the end of a group,
IN_ENDS = (
    *("half_fenced", "fencing", "page_fenced", "ending", "ended", "said"),
    *("half_found", "found", "before_verdict", "after_verdict", "half_shut"),
    *("begun", "half_written", "shown", "adopted", "decided", "settled"),
)
# and of the way into another one.
IN_SETTLEMENTS = IN_ENDS[6:]  # of which recover() has two more
IN_RECOVER = ("before_note", "noted", "before_round", "after_round", "made", "leaving", "left", "parting")
STEPS = IN_CALLS + IN_ENDS + IN_RECOVER

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
    later: float  # seconds after the first
    step: str  # of the protocol, where it happens there; "": at any moment,
    visit: int  # and at which visit
    timeout: float  # of each call
    algorithm: int  # of those that its collective has
    count: int  # elements
    dtype: str
    place: str
    out: str
    root: int
    seed: int  # for all else

    def forgives(self, rank: int, kind: str) -> bool:
        """Whether that rank may leave something behind: interrupted between any two instructions, also before what it
        has opened has a name."""
        return kind == "LEAK" and rank == self.second and self.fault == "interrupted in recover" and not self.step

    @property
    def first(self) -> str:
        """The fault that ends the group, where another one comes later."""
        if self.fault == "two killed":
            return "killed"
        if not self.fault.endswith("in recover") and self.step not in IN_ENDS:
            return self.fault
        return "killed" if self.size > 2 and self.seed % 2 else "mismatch"

    @property
    def struck(self) -> int:
        """Who is at the step."""
        return self.victim if self.first == self.fault else self.second

    @property
    def few(self) -> bool:
        """Whether who is left goes on where the others may do so, too."""
        return self.seed // 4 % 2 == 1

    def __str__(self) -> str:
        where = f"at visit {self.visit} of {self.step}" if self.step else f"+ {self.later * 1000:.1f} ms"
        second = f", {self.first}, then rank {self.second}"
        return (
            f"{self.workload} over {self.size} ranks, {self.count} x {self.dtype} ({self.place}, {self.out}), root "
            f"{self.root}; {self.fault}: rank {self.victim} in round {self.at} + {self.delay * 1000:.1f} ms"
            f"{second if self.first != self.fault else ''}, {where}"
        )


def draw(seed: int, number: int, absent: Collection[str] = ()) -> Trial:
    """The trial of that number: faults and workloads take turns, so that every pair comes, without the faults that are
    `absent`; all else is random."""
    rng = random.Random(f"{seed} {number}")
    # The workloads are walked through once for each fault in turn, in an order that depends on the seed.
    grid = [(fault, workload) for workload in WORKLOADS for fault in FAULTS if fault not in absent]
    random.Random(seed + number // len(grid)).shuffle(grid)
    fault, workload = grid[number % len(grid)]
    size = rng.choice((3, 3, 4, 5, 6) if fault in LINKS else (2, 2, 3, 3, 4, 5, 6))  # two share a host
    large = workload == "large all_reduce"
    rounds = rng.randint(3, 6) if large else rng.randint(6, 20)
    victim = rng.randrange(size)
    steps = {"late at a step": IN_CALLS}.get(fault, IN_CALLS + IN_ENDS) if fault.endswith("at a step") else ()
    if fault.endswith("in recover") and not fault.startswith(SCARCE):
        steps = rng.choice(((), IN_RECOVER, IN_RECOVER + IN_ENDS, STEPS))
    trial = Trial(
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
        step=rng.choice(steps) if steps else "",
        visit=rng.choice((1, 1, 1, 2, 2, 3, 4, 6, 10, 30)),
        timeout=FAULTS[fault],
        algorithm=rng.randrange(1 << 16),
        count=rng.choice((2**20, 2**20 + 12)) if large else rng.choice((1, 12, 1000, 4096, 16_384, 60_000, 200_004)),
        dtype=rng.choice(("float32", "float64", "int64", "int16")),
        place=rng.choice(("plain", "arena", "arena")),
        out=rng.choice(("new", "out", "in place")),
        root=rng.randrange(size),
        seed=rng.randrange(1 << 30),
    )
    if trial.first in LEAVE[1:] and workload in (*APART, "messages"):  # which only a deadline ends
        return trial._replace(timeout=min(trial.timeout, 3.0))
    return trial


# Of a step that not every call has: a workload, and where its arrays lie; and over what links it comes at all.
SPECIAL = {
    "staged": ("all_reduce", "plain"),
    "published": ("all_reduce", "plain"),
    "fetched": ("all_reduce", "plain"),  # of two
    "fencing": ("all_reduce", "arena"),
    "page_fenced": ("all_reduce", "arena"),
    "half_fenced": ("all_reduce", "arena"),
    "viewed": ("all_to_all", "arena"),
    "put": ("all_reduce", "arena"),
    "giving_back": ("large all_reduce", "plain"),
    "before_mail": ("messages", "plain"),
    "mail_read": ("messages", "plain"),
}
ONE_HOST = ("put", "before_verdict", "after_verdict", "half_shut")
OVER_LINKS = (*(step for step in STEPS if step.startswith("frame")), "kept", "parting")
BETWEEN_HOSTS = (*OVER_LINKS, "begun", "shown", "adopted", "decided", "settled")
# Where who is lost is known by one rank before another hears of it: in most grids, not in all; and always in duel.py.
BY_CHANCE = ("adopted",)
COLLECTIVES = WORKLOADS[2:9]  # and all_reduce


def grid(transport: str) -> list[Trial]:
    """A kill and a stop at each step there is over that transport, of three or four ranks; and for every collective a
    kill after the last byte and before the last agreement."""
    absent = BETWEEN_HOSTS if transport == "shm" else ONE_HOST
    once: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
        ("at a step", IN_CALLS, ("killed",)),
        ("at a step", IN_ENDS, ("killed", "mismatch")),  # by which the group is over
        ("in recover", IN_RECOVER + IN_SETTLEMENTS, ("killed",)),
    ]
    cells = [
        _cell(f"{fault} {when}", step, first, number)
        for fault in ("killed", "stopped")
        for when, steps, firsts in once
        for number, step in enumerate(steps)
        for first in firsts
        if step not in absent and (fault == "killed" or first == "killed")  # who is stopped takes two seconds
    ]
    for step in ("moved", "met"):
        cells += [_cell("killed at a step", step, "", n, name) for n, name in enumerate(("all_reduce", *COLLECTIVES))]
    return [cell._replace(number=number) for number, cell in enumerate(cells)]


def _cell(fault: str, step: str, first: str, number: int, collective: str | None = None) -> Trial:
    """Of three ranks or four: on two hosts the last one of three is alone."""
    workload, place = SPECIAL.get(step, (COLLECTIVES[number % len(COLLECTIVES)], "arena" if number % 2 else "plain"))
    size = 2 if step == "fetched" else 4 if first == "mismatch" or step == "adopted" else 3
    return Trial(
        number=number,
        size=size,
        workload=collective or workload,
        fault=fault,
        victim=(number + 2) % size,
        rounds=4,
        at=1,
        delay=0.0,
        second=(number + 3) % size,
        later=0.0,
        step=step,
        visit=1,
        timeout=FAULTS[fault],
        algorithm=3,
        count=60_000,
        dtype="float32",
        place=place,
        out="out",
        root=number // 2 % size,
        seed=3 if first == "killed" else 2,
    )
