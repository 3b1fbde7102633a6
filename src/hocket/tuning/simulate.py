"""How long a plan takes for a vector of S bytes on a cluster, by a model that is simple enough to be written twice.

**A message** is all that one rank sends to one other in one step: b bytes, a chunk having S / chunks. Ranks go through
their steps in order: rank r is done with all before a step at ready[r], which is 0 in the beginning. In a step

    posts     a rank sends its messages one after the other, first to its right neighbour and then on round the circle:
              the k-th leaves at ready[s] + k send
    arrives   after latency + transfer, where latency is that of the path, and transfer the longest that one of its
              links takes: alone(b) min(c, B / b) for the c messages and B bytes that the link carries in this step
    is taken  a rank that has posted all takes what arrived first first, each for receive + reduce (the bytes of it that
              are folded); of two at once that of the lower rank
    ready     when all is taken, and all that it sends is out (the transfers are over), and then what it folds of its
              own is folded, too

`send`, `receive` and `reduce` take as many times as long as a rank is slow or shares cores. Copies within a rank are
free: the engine makes them as it reads. Every one of these durations is a whole number of ticks of 2^-42 s, so that
sums are exact up to 2048 s, and do not depend on the order in which they are taken.

What is **exploited**: adding a number to all of `ready` adds it to the next `ready`, since a step only takes maxima and
sums. So where steps look the same (turns of one front, `plans/turn.py`, that is the same from every rank), and
`_lasting` knows that each rank will wait for the same message in k of them, these are gone through in log k. Such
systems are the subject of Baccelli, Cohen, Olsder & Quadrat, "Synchronization and linearity", 1992. The costs are
those of LogP (Culler et al., PPoPP 1993) with the bytes of LogGP (Alexandrov et al., SPAA 1995), and shared links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..errors import PlanError
from ..plans.plan import Front, Plan
from .cluster import Cluster
from .costed import Costed, Tariff
from .links import Column, Links, Times

PARTS = ("latency", "bandwidth", "processor", "reduction")
MOST_KEPT = 1 << 24  # numbers of what was waited for, over all ranks and steps: 64 MiB


class Hop(NamedTuple):
    """A message of the critical path: in which step, between which ranks, and the link that took longest."""

    step: int
    src: int
    dst: int
    link: str


@dataclass(frozen=True)
class Simulated:
    """What a plan takes. `parts` are seconds of the critical path, in the order of PARTS, and make up `seconds`."""

    seconds: float
    parts: tuple[float, ...]
    messages: int  # on the critical path
    rounds: int  # the longest chain of messages, each of which waits for the one before
    ports: int  # the most messages that a rank sends, or gets, in one step
    bytes_per_rank: float  # sent by the rank that sends most
    steps: int
    last: int  # the rank that is ready last
    path: tuple[Hop, ...]  # the critical path, from its first message on that is still known


def simulate(plan: Plan, nbytes: int, cluster: Cluster, segments: int = 1) -> Simulated:
    """What `plan` takes for a vector of `nbytes` on `cluster`. In `segments`, the vector goes in so many pieces, one a
    step behind the other: what a rank does with the first in step 5 it does at the same time with the second in 4.

    Raises ValueError where the cluster has another number of ranks, or no way between two that speak to each other.
    """
    if cluster.ranks != plan.size:
        raise ValueError(f"{plan!r} is for {plan.size} ranks, and the cluster has {cluster.ranks}")
    if nbytes < 0 or segments < 1:
        raise ValueError(f"a vector has 0 bytes or more and 1 segment or more, not {nbytes} and {segments}")
    tariff = Tariff.of(Links(cluster), nbytes / (plan.chunks * segments))
    ranks = _Ranks(plan.size)
    held, costed, times = tuple[Front, ...](), None, 0
    for fronts in _windows(plan.fronts(lazily=True), segments):
        if costed is not None and _look_the_same(held, fronts, costed.is_round):
            times += 1
            continue
        if costed is not None:
            ranks.go(costed, times)
        _look(plan, fronts)
        held, costed, times = fronts, Costed.of(fronts, plan.size, tariff), 1
    if costed is not None:
        ranks.go(costed, times)
    return ranks.told(tariff)


def _look(plan: Plan, fronts: tuple[Front, ...]) -> None:
    """Raise PlanError for a rank that is none."""
    for front in fronts:
        for rank in (front.src_rank, front.dst_rank):
            if rank.min() < 0 or rank.max() >= plan.size or front.count.min() < 1:
                raise PlanError(f"{plan!r}: a move names a rank that is none of 0 to {plan.size - 1}, or no chunk")


def _windows(fronts: Iterator[Front], segments: int) -> Iterator[tuple[Front, ...]]:
    """What happens at the same time: a step of the first segment, the one before it of the second, and so on; the
    earliest step first."""
    window = deque[Front | None](maxlen=segments)
    for front in chain(fronts, [None] * (segments - 1)):
        window.append(front)
        if together := tuple(front for front in window if front is not None):
            yield together


def _look_the_same(some: tuple[Front, ...], others: tuple[Front, ...], is_round: bool) -> bool:
    """Whether they are the same fronts, or turns of the same ones in which no rank can be told from another."""
    return len(some) == len(others) and all(
        a is b or (is_round and a.base is b.base) for a, b in zip(some, others, strict=True)
    )


class _Ranks:
    """When each rank is ready, of what that is made up, and what it waited for."""

    def __init__(self, size: int) -> None:
        self.state = np.zeros((2 + len(PARTS), size))  # ready, then the parts of that, then messages
        self.sent_clock, self.got_clock = np.zeros((2, size), np.int64)  # rounds, as in plans/count.py
        self.sent = np.zeros(size)  # chunks
        self.ports = self.steps = self.kept = 0
        self.log = deque[_Logged]()

    def go(self, costed: Costed, times: int) -> None:
        """So many equal steps."""
        self.sent += times * np.bincount(costed.src, costed.chunks, len(self.sent))
        if len(costed.src):
            self.ports = max(self.ports, int(np.bincount(costed.src).max()), int(np.bincount(costed.dst).max()))
        while times:
            ready, clocks = self.state[0], (self.sent_clock, self.got_clock)
            waited, came, added = self._step(costed)
            self._count(costed)
            rounds = [new - old for new, old in zip((self.sent_clock, self.got_clock), clocks, strict=True)]
            times, leap = times - 1, 0
            if times and all((x == x[0]).all() for x in rounds):
                leap = _lasting(self.state[0] - ready, waited, came, costed, times)
                self.state = _repeated(self.state, came, added, leap)
                self.sent_clock, self.got_clock = (
                    x + leap * y[0] for x, y in zip((self.sent_clock, self.got_clock), rounds, strict=True)
                )
            self._keep(_Logged(self.steps, 1 + leap, costed, waited))
            self.steps, times = self.steps + 1 + leap, times - leap

    def _step(self, costed: Costed) -> tuple[Column, Column, Times]:
        """One step. The message that each rank waited for, or -1; whose time it goes on from; what comes to that."""
        ready, n = self.state[0], self.state.shape[1]
        arrives, (to, first) = ready[costed.src] + costed.flight, costed.groups
        order, left, left_receive = costed.order(arrives)
        ends = arrives[order] + left
        waited, came, added = np.full(n, -1), np.arange(n), costed.alone.copy()
        if len(to):
            latest = np.maximum.reduceat(ends, first)
            (waits,) = np.nonzero(latest + costed.own[to] > ready[to] + costed.alone[0, to])
            at = waits
            if not costed.is_single:
                at = np.flatnonzero(ends == np.repeat(latest, np.diff(first, append=len(ends))))
                at = at[np.searchsorted(at, first[waits])]  # the first of those that are the latest
            message, rank = order[at], to[waits]
            waited[rank], came[rank] = message, costed.src[message]
            own, rest = costed.own[rank], costed.latency[message] + costed.transfer[message]
            added[:, rank] = (
                costed.posting[message] + rest + left[at] + own,
                costed.latency[message],
                costed.transfer[message],
                costed.posting[message] + left_receive[at],
                left[at] - left_receive[at] + own,
                np.ones(len(message)),
            )
        self.state = self.state[:, came] + added
        return waited, came, added

    def _count(self, costed: Costed) -> None:
        """Rounds: a message waits for those that either end sent, or got, before it."""
        src, dst = costed.src, costed.dst
        number = 1 + np.maximum(np.maximum(self.sent_clock[src], self.got_clock[src]), self.got_clock[dst])
        self.sent_clock, self.got_clock = self.sent_clock.copy(), self.got_clock.copy()
        np.maximum.at(self.sent_clock, src, number)
        np.maximum.at(self.got_clock, dst, number)

    def _keep(self, logged: _Logged) -> None:
        self.log.append(logged)
        self.kept += logged.weight
        while self.kept > MOST_KEPT and len(self.log) > 1:
            self.kept -= self.log.popleft().weight

    def told(self, tariff: Tariff) -> Simulated:
        """All that there is to say."""
        last = int(np.argmax(self.state[0]))
        seconds, *parts, messages = (float(x) for x in self.state[:, last])
        return Simulated(
            seconds,
            tuple(parts),
            int(messages),
            int(max(self.sent_clock.max(), self.got_clock.max())),
            self.ports,
            float(self.sent.max() * tariff.chunk),
            self.steps,
            last,
            tuple(self._path(last, tariff))[::-1],
        )

    def _path(self, rank: int, tariff: Tariff) -> Iterator[Hop]:
        """Backwards from the last message that `rank` waited for."""
        for logged in reversed(self.log):
            for step in reversed(range(logged.step, logged.step + logged.times)):
                message = int(logged.waited[rank])
                if message >= 0:
                    rank, dst = int(logged.costed.src[message]), rank
                    yield Hop(step, rank, dst, tariff.links.name(int(logged.costed.slowest[message])))


class _Logged(NamedTuple):
    """Equal steps from `step` on: what was sent, and for which message each rank waited."""

    step: int
    times: int
    costed: Costed
    waited: Column

    @property
    def weight(self) -> int:
        """Numbers that are kept for it."""
        return len(self.waited) + 12 * len(self.costed.src)


def _lasting(later: Times, waited: Column, came: Column, costed: Costed, times: int) -> int:
    """For how many further equal steps, of `times`, each rank is known to wait as in one that made ranks `later` by so
    much, `came` being those whose time they went on from.

    If all became later by the same time, for all of them. Else where no rank gets more than one message: a rank that
    waits becomes later by what its sender became later by in the step before, so that delays travel with the messages,
    and one that waits for nobody by what it takes alone. The first goes on waiting as long as what travels to it is
    more than it takes alone, and the other need not begin to as long as it is no more.
    """
    if (later == later[0]).all():
        return times
    if not costed.is_single:
        return 0
    source, alone = np.arange(len(later)), costed.alone[0]
    source[costed.dst] = costed.src
    waits, gets = waited >= 0, source != np.arange(len(later))
    frees = gets & ~waits
    if later.min() > alone[waits].max(initial=0) and later.max() <= alone[frees].min(initial=np.inf):
        return times
    least, most, lasts = later, later, 0  # of what comes to a rank from so many before it
    while max(1, 2 * lasts) <= times:
        if (least[source] <= alone)[waits].any() or (most[source] > alone)[frees].any():
            break
        lasts = max(1, 2 * lasts)
        least, most, came = np.minimum(least, least[came]), np.maximum(most, most[came]), came[came]
    return lasts


def _repeated(state: Times, came: Column, added: Times, times: int) -> Times:
    """`state[:, came] + added`, so many times, by doubling."""
    while times:
        if times & 1:
            state = state[:, came] + added
        came, added, times = came[came], added[:, came] + added, times >> 1
    return state
