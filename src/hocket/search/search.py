"""The search: all that is written down first, then what is synthesised, pairs, segments, and other orders of ranks.

What is looked at, and in which order, depends on the seed alone; the time only says how much of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..deadline import Deadline
from ..errors import PlanError
from ..plans.algorithms import names, plan
from ..plans.check import Facts, check
from ..plans.plan import Plan
from ..tuning.cluster import Cluster
from ..tuning.expected import too_large
from ..tuning.simulate import Simulated, simulate
from .candidates import COLLECTIVES, ROOTED, Candidate, betweens, exchanges, of, renamed, spreads
from .distances import Apart, apart
from .spreads import Spread
from .synthesis import GREEDY, SYMMETRIC, greedy, symmetric

MOST = 256  # ranks
SEGMENTS = (2, 4, 8, 16, 32, 64)
SMALLEST = 64  # bytes of a chunk that may still be cut
WIDE = 1 << 18  # moves of a plan that may still be cut
KEPT = 8  # that go on to the next stage
WORTH = 0.999  # of the time it took, that another order is to take
TRIALS = 150  # orders of ranks that are tried for each, without one that is better
STAGES = {"shapes": 0.4, "synthesis": 0.55, "pairs": 0.7, "segments": 0.85, "ranks": 1.0}  # shares of the time

Report = Callable[[str, int, float], None]  # a stage, how many plans were looked at, and the least seconds


@dataclass(frozen=True, eq=False)
class Entry:
    """A plan, what it takes, and what is proved of it. `code` is the Python that makes a found one."""

    title: str
    plan: Plan
    took: Simulated
    facts: Facts
    segments: int = 1  # of a shipped one, in which it takes least
    code: str = ""


@dataclass(frozen=True, eq=False)
class Searched:
    """The best that were found and those that are shipped, the fastest first."""

    found: list[Entry]
    shipped: list[Entry]
    looked_at: int
    cut_short: tuple[str, ...]  # stages that the time did not suffice for

    @property
    def gain(self) -> float:
        """How many times as fast as the best that is shipped the best that was found is."""
        if not self.found or not self.found[0].took.seconds:
            return 1.0
        best = min((entry.took.seconds for entry in self.shipped), default=math.inf)
        return best / self.found[0].took.seconds


def search(
    collective: str,
    nbytes: int,
    cluster: Cluster,
    *,
    seconds: float = 10.0,
    seed: int = 0,
    shown: int = 5,
    report: Report = lambda stage, looked_at, best: None,
) -> Searched:
    """The best plans for a vector of `nbytes` on `cluster`, each proved. A root is rank 0.

    After `seconds` nothing more is looked at; to simulate what is shipped, and to prove what is told, comes to that.
    Raises ValueError for what is none of COLLECTIVES, and for fewer than 2 ranks or more than MOST.
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"plans are searched for {', '.join(COLLECTIVES)}, not for {collective!r}")
    if not 2 <= cluster.ranks <= MOST:
        raise ValueError(f"plans are searched for 2 to {MOST} ranks, not for {cluster.ranks}")
    if nbytes < 1 or not seconds > 0:
        raise ValueError("a search takes a vector of at least one byte, and more than 0 seconds")
    found = _Search(collective, nbytes, cluster, Deadline(seconds), random.Random(seed), report)
    found.run()
    entries = [Entry(c.title, p, took, check(p), code=c.code) for c, p, took in found.best(shown)]
    return Searched(entries, shipped(collective, nbytes, cluster), found.looked_at, tuple(found.cut_short))


def shipped(collective: str, nbytes: int, cluster: Cluster) -> list[Entry]:
    """What hocket has, each in as many segments as are best for it, the fastest first."""
    entries = list[Entry]()
    for name in names(collective):
        if too_large(collective, name, cluster):
            continue
        made = plan(collective, name, cluster.ranks, places=cluster.places).keep()
        try:
            took = [(simulate(made, nbytes, cluster, k), k) for k in (1, *SEGMENTS) if _may_be_cut(made, nbytes, k)]
        except ValueError:  # it speaks where there is no way
            continue
        best, segments = min(took, key=lambda each: each[0].seconds)
        title = name if segments == 1 else f"{name}, {segments} segments"
        entries.append(Entry(title, made, best, check(made), segments))
    return sorted(entries, key=lambda entry: entry.took.seconds)


def _may_be_cut(made: Plan, nbytes: int, segments: int) -> bool:
    if segments == 1:
        return True
    moves = sum(int(front.count.sum()) for front in made.fronts())
    return nbytes / made.chunks / segments >= SMALLEST and moves * segments <= WIDE


class _Over(Exception):
    """The time of a stage is."""


def _ends(stage: Callable[[], None]) -> bool:
    """Whether it gets to its end in its share of the time."""
    try:
        stage()
    except _Over:
        return False
    return True


class _Search:
    def __init__(
        self, collective: str, nbytes: int, cluster: Cluster, deadline: Deadline, rng: random.Random, report: Report
    ) -> None:
        self.collective, self.nbytes, self.cluster = collective, nbytes, cluster
        self.deadline, self.rng, self.report = deadline, rng, report
        self.took: Apart = apart(cluster, nbytes / cluster.ranks)
        self.all = list[tuple[float, int, Candidate, Simulated]]()
        self.seen = dict[str, float]()  # by code
        self.stage, self.cut_short, self.looked_at, self.least = "", list[str](), 0, math.inf

    def run(self) -> None:
        """All stages, each until its share of the time is over."""
        stages = (self._shapes, self._synthesised, self._pairs, self._segments, self._ranks)
        for self.stage, stage in zip(STAGES, stages, strict=True):
            if not _ends(stage):
                self.cut_short.append(self.stage)

    def best(self, count: int) -> list[tuple[Candidate, Plan, Simulated]]:
        """Those that take least, each of another shape."""
        shapes = dict[str, tuple[Candidate, Simulated]]()
        for candidate, took in self._leading(len(self.all)):
            shapes.setdefault(candidate.shape, (candidate, took))
        return [(c, c.plan(), took) for c, took in list(shapes.values())[:count]]

    # ---- stages ----

    def _shapes(self) -> None:
        n = self.cluster.ranks
        if self.collective == "all_reduce":
            for candidate in chain(exchanges(n, self.took), betweens(n)):
                self._try(candidate)
        for spread in spreads(self.collective, n, self.took):
            self._try(of(self.collective, spread, spread))

    def _synthesised(self) -> None:
        if self.collective in ROOTED:
            return
        n = self.cluster.ranks
        circles = symmetric(n, self._cost_of_round) if n <= SYMMETRIC else iter(())
        for spread in chain(circles, self._greedy() if n <= GREEDY else ()):
            self._try(of(self.collective, spread, spread))

    def _greedy(self) -> Iterator[Spread]:
        between = np.unique(self.took[~np.eye(len(self.took), dtype=bool)])
        levels = between[np.isfinite(between)].tolist()
        for ways in sorted({levels[k * (len(levels) - 1) // 3] for k in range(4)} if levels else ()):
            for blocks in sorted({1, 2, len(self.took)}):
                for _ in range(4):
                    if (spread := greedy(self.took, ways, blocks, self.rng)) is not None:
                        yield spread

    def _pairs(self) -> None:
        """The sum as one of the best sums, and the spreading as another one spreads."""
        if self.collective != "all_reduce":
            return
        some = [candidate for candidate, _ in self._leading(4 * KEPT) if candidate.up is not None][: 2 * KEPT]
        for a in some:
            for b in some:
                if a is not b and a.up and b.down and np.array_equal(a.up.owner, b.down.owner):
                    self._try(of(self.collective, a.up, b.down))

    def _segments(self) -> None:
        for candidate in [*self._chunky(), *(candidate for candidate, _ in self._leading(2 * KEPT))]:
            best = self.seen[candidate.code]
            made = candidate.plan()
            for segments in SEGMENTS if candidate.segments == 1 else ():
                if not _may_be_cut(made, self.nbytes, segments):
                    break
                took = self._try(candidate.in_segments(segments))
                if took > 1.2 * best:
                    break
                best = min(best, took)

    def _chunky(self) -> Iterable[Candidate]:
        """Trees, which are bad until they are cut."""
        return [c for _, _, c, _ in sorted(self.all, key=_by_time) if c.down and c.down.chunks <= 2][:KEPT]

    def _ranks(self) -> None:
        """Other orders of ranks: two of them changed, or a part of them turned round, as long as that helps."""
        for candidate in [c for c, _ in self._leading(KEPT)]:
            n, least = self.cluster.ranks, self.seen[candidate.code]
            order, failed = list(range(n)), 0
            while failed < TRIALS:
                i, j = sorted(self.rng.sample(range(self.collective in ROOTED, n), 2)) if n > 2 else (0, 1)
                other = order.copy()
                if self.rng.random() < 0.5:
                    other[i], other[j] = other[j], other[i]
                else:
                    other[i : j + 1] = other[i : j + 1][::-1]
                if other[0] and self.collective in ROOTED:
                    break
                took = self._try(renamed(candidate, other))
                is_better = took < least * WORTH
                failed = 0 if is_better else failed + 1
                if is_better:
                    order, least = other, took

    # ---- one plan ----

    def _try(self, candidate: Candidate) -> float:
        """What it takes; infinite where it speaks where there is no way."""
        if candidate.code in self.seen:
            return self.seen[candidate.code]
        if self.deadline.spent() > STAGES[self.stage] * self.deadline.seconds:
            raise _Over
        self.looked_at += 1
        try:
            took = simulate(candidate.plan(), self.nbytes, self.cluster)
        except PlanError:
            raise
        except ValueError:
            self.seen[candidate.code] = math.inf
            return math.inf
        self.seen[candidate.code] = took.seconds
        self.all.append((took.seconds, len(self.all), candidate, took))
        self.least = min(self.least, took.seconds)
        self.report(self.stage, self.looked_at, self.least)
        return took.seconds

    def _cost_of_round(self, spread: Spread) -> float:
        if self.deadline.spent() > STAGES[self.stage] * self.deadline.seconds:
            raise _Over
        try:
            return simulate(of("all_gather", spread, spread).plan(), self.nbytes, self.cluster).seconds
        except ValueError:
            return math.inf

    def _leading(self, count: int) -> list[tuple[Candidate, Simulated]]:
        leading, alike = list[tuple[Candidate, Simulated]](), set[tuple[str, int, float]]()
        for seconds, _, candidate, took in sorted(self.all, key=_by_time):
            key = f"{seconds:.9e}", took.rounds, took.bytes_per_rank
            if key not in alike and len(leading) < count:
                alike.add(key)
                leading.append((candidate, took))
        return leading


def _by_time(each: tuple[float, int, Candidate, Simulated]) -> tuple[float, int]:
    return each[:2]
