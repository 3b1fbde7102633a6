"""A cluster: hosts, ranks on them, what lies between, what everything costs, and what is slow or cut. `spec.py` reads
one from a line or a file, `links.py` says what goes over which of its links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .costs import Costs

Matrix = tuple[tuple[float, ...], ...]
Slow = tuple[str, int, float]  # "rank" or "host", which, and how many times as long all takes there
Cut = tuple[str, int, int]  # of what kind, and between which two; -1: the only one, or none


@dataclass(frozen=True)
class Cluster:
    """Hosts and what lies between them. `sizes[h]` ranks are on host h, and ranks are neighbours."""

    kind: str
    sizes: tuple[int, ...]
    costs: Costs = field(default_factory=Costs)
    cores: int = 0  # of a host; 0: as many as it has ranks
    nics: str = "host"  # a NIC for each "host", or for each "rank"
    oversubscription: float = 1.0  # fat-tree, rail: what is below a switch, by what its way up carries
    leaf: int = 16  # fat-tree: hosts under one switch
    sides: tuple[int, ...] = ()  # torus: its lengths
    sites: int = 1  # wan
    rates: Matrix = ()  # wan: seconds per byte from site to site, infinite where there is no link
    distances: Matrix = ()  # wan: seconds from site to site
    slow: tuple[Slow, ...] = ()
    cuts: tuple[Cut, ...] = ()

    @property
    def ranks(self) -> int:
        """How many there are."""
        return sum(self.sizes)

    @property
    def hosts(self) -> int:
        """How many there are."""
        return len(self.sizes)

    @cached_property
    def host_of(self) -> npt.NDArray[np.int64]:
        """The host of each rank, as int64."""
        return np.repeat(np.arange(self.hosts), self.sizes)

    @property
    def places(self) -> tuple[int, ...]:
        """The same, as algorithms are told it."""
        return tuple(self.host_of.tolist())

    @cached_property
    def effort(self) -> npt.NDArray[np.float64]:
        """How many times as long a rank's processor takes: where ranks share cores, and where they are slow."""
        sizes = np.asarray(self.sizes)
        times = np.maximum(1.0, sizes / self.cores)[self.host_of] if self.cores else np.ones(self.ranks)
        for what, which, factor in self.slow:
            if what == "rank":
                times[which] *= factor
        return times

    def slowed(self, text: str) -> Cluster:
        """The same where `rank=7:3x` takes three times as long for all it does, or the NIC of `host=2:3x`. Raises
        ValueError."""
        found = re.fullmatch(r"(rank|host)=(\d{1,9}):(\d+(?:\.\d+)?)x?", text)
        if not found or float(found[3]) <= 0:
            raise ValueError(f"slow is a rank or a host and how many times, such as rank=7:3x, not {text!r}")
        what, which = found[1], int(found[2])
        there = self.ranks if what == "rank" else self.hosts
        if which >= there:
            raise ValueError(f"{text}: there is no {what} {which}; they are 0 to {there - 1}")
        return replace(self, slow=(*self.slow, (what, which, float(found[3]))))

    def without(self, text: str) -> Cluster:
        """The same without a link: `nic=3` of the host, or the rank, that has one; `link=3-4` of two neighbours in a
        ring or torus; `site=0-1`. Raises ValueError for what is not there."""
        cut = _cut(self, text)
        return replace(self, cuts=(*self.cuts, cut))


def _cut(cluster: Cluster, text: str) -> Cut:
    found = re.fullmatch(r"(nic|link|site)=(\d{1,9})(?:-(\d{1,9}))?", text)
    if not found or (found[1] == "nic") == bool(found[3]):
        raise ValueError(f"what is cut is nic=3, link=3-4 or site=0-1, not {text!r}")
    what, first, second = found[1], int(found[2]), int(found[3] or -1)
    if what == "nic":
        if cluster.kind == "torus":
            raise ValueError(f"{text}: a ring and a torus have no NICs, but links, such as link=0-1")
        if first >= (there := cluster.ranks if cluster.nics == "rank" else cluster.hosts):
            raise ValueError(f"{text}: there is no NIC {first}; each {cluster.nics} has one, from 0 to {there - 1}")
        return what, first, -1
    if what == "link" and cluster.kind != "torus":
        raise ValueError(
            f"{text}: only in a ring and a torus have two hosts a link of their own; nic={first} is cut here"
        )
    if what == "site" and cluster.kind != "wan":
        raise ValueError(f"{text}: only a wan has sites")
    there = cluster.hosts if what == "link" else cluster.sites
    if (
        first == second
        or max(first, second) >= there
        or (what == "link" and not _are_neighbours(cluster.sides, first, second))
    ):
        raise ValueError(f"{text}: there is no such link")
    return what, min(first, second), max(first, second)


def _are_neighbours(sides: Sequence[int], first: int, second: int) -> bool:
    a, b = (np.array(np.unravel_index(host, tuple(sides))) for host in (first, second))
    apart = (a - b) % np.asarray(sides)
    return int(np.minimum(apart, np.asarray(sides) - apart).sum()) == 1
