"""What is measured of the links between hosts, on a clock of our own; and what is chosen by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hocket.tuning.choose import choose
from hocket.tuning.topology import KIB, WIRE, Topology
from hocket.tuning.wire import ENOUGH, LEAST, measure


class Link:
    """A gather that takes `latency` and, for each byte that crosses a link, `per_byte`; `noise` gives what is added."""

    def __init__(self, latency: float, per_byte: float, crossing: int, noise: Iterator[float] | None = None) -> None:
        self.latency, self.per_byte, self.crossing, self.noise = latency, per_byte, crossing, noise
        self.now, self.told = 0.0, []

    def gather(self, row: Any) -> Any:
        self.now += self.latency + self.per_byte * self.crossing * row.nbytes + (next(self.noise) if self.noise else 0)
        self.told.append(row)
        return np.concatenate([row, row])

    def measured(self) -> int:
        return measure(self.gather, self.crossing, lambda: self.now)


@pytest.mark.parametrize("wire", [LEAST, 4 * KIB, 32 * KIB, WIRE])
@pytest.mark.parametrize("crossing", [1, 6])
def test_a_wire_is_what_a_link_carries_in_a_round(wire: int, crossing: int) -> None:
    assert Link(3e-5, 3e-5 / wire, crossing).measured() == wire
    assert Link(3e-5, 3e-5 / (1.3 * wire), crossing).measured() == wire  # the nearest power of two


def test_it_stays_within_what_was_tried() -> None:
    assert Link(3e-5, 0.0, 1).measured() == WIRE
    assert Link(3e-5, 1e-12, 1).measured() == WIRE
    assert Link(1e-6, 1e-6, 1).measured() == LEAST


def test_what_disturbs_some_of_the_times_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        noise = (1e-3 * (rng.random() < 0.3) for _ in range(10**6))
        assert Link(3e-5, 3e-5 / (16 * KIB), 1, noise).measured() == 16 * KIB


def test_the_slowest_rank_counts() -> None:
    """What others tell of their times is taken for one's own where it is longer."""
    link = Link(3e-5, 3e-5 / WIRE, 1)

    def gather(row: Any) -> Any:
        rows = link.gather(row)
        if row.dtype == np.float64:
            rows[1] = 3e-5 if row[0, 0] < 4e-5 else 6e-5  # 15 µs longer for 128 KiB
        return rows

    assert measure(gather, 1, lambda: link.now) == WIRE // 2


def test_a_slow_link_is_not_tried_for_long() -> None:
    """One of 1 Mbit/s: a second for 128 KiB, which are sent twice, and once to be planned."""
    link = Link(1e-3, 8e-6, 1)
    assert link.measured() == LEAST
    assert link.now < 2 * ENOUGH + 3 * 1.2


def test_fewer_bytes_are_chosen_where_a_wire_carries_less() -> None:
    def taken(nbytes: int, places: tuple[int, ...], wire: int, collective: str = "all_reduce") -> str:
        return choose(collective, nbytes, len(places), Topology.of(places, wire)).algorithm

    apart, pairs = (0, 1, 2, 3), (0, 0, 1, 1)
    assert [taken(64 * KIB, apart, wire) for wire in (WIRE, 16 * KIB)] == ["one_shot", "two_shot"]
    assert [taken(64 * KIB, pairs, wire) for wire in (WIRE, 16 * KIB)] == ["one_shot", "hierarchical_chain"]
    assert [taken(64 * KIB, (0, 1), wire) for wire in (WIRE, LEAST)] == ["one_shot"] * 2  # the same bytes in any case
    assert [taken(512 * KIB, pairs, wire, "broadcast") for wire in (WIRE, WIRE // 2)] == ["direct", "hierarchical"]


def test_one_round_is_taken_while_what_it_sends_more_is_carried_in_the_time_of_another() -> None:
    """Of n ranks in blocks, those of a host of r send r(n-r) vectors to others in one round, 2/n of that in two."""
    for places in ((0, 1, 2), (0, 1, 2, 3), (0, 0, 1, 1), (0, 0, 0, 1), tuple(range(16))):
        n, wire = len(places), 32 * KIB
        sent = max(places.count(host) * (n - places.count(host)) for host in places)
        limit = wire / (sent * (1 - 2 / n))
        for nbytes, is_one in ((limit * 0.99, True), (limit * 1.01, False)):
            name = choose("all_reduce", int(nbytes), n, Topology.of(places, wire)).algorithm
            assert (name == "one_shot") is is_one, (places, nbytes)
