"""What hosts are made of and how ranks lie on them, as far as the choice of algorithms and sizes depends on it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from .profile import Profile

KIB = 1 << 10
WIRE = 256 * KIB  # with which the sizes of `choose` were found, over veth
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class Host(NamedTuple):
    """One machine: its cores and caches. All its ranks must see the same, so nothing here depends on the process.

    `l2` is one core's second-level cache and `memory` the machine's, in bytes; 0 where hosts may differ.
    """

    cores: int
    l2: int
    memory: int


@dataclass(frozen=True)
class Topology:
    """How the ranks of a group lie on hosts: `places[r]` is the number of rank r's. The same on every rank.

    `host` is what sizes are chosen for: this machine where all ranks are on it, and else one that is like many, since
    hosts may differ and all ranks must choose alike. `wire` is what a link between hosts carries in the time of a
    round, in bytes (`hocket.tuning.wire`). `domains[r]` is the number of the set of cores that share a cache with rank
    r's; where that is empty, nothing is known of it. `profile` is that of the group, if it has one.
    """

    places: tuple[int, ...]
    host: Host
    wire: int = WIRE
    domains: tuple[int, ...] = ()
    profile: Profile | None = None

    @staticmethod
    def of(
        places: Sequence[int], wire: int = WIRE, domains: Sequence[int] = (), profile: Profile | None = None
    ) -> Topology:
        """That of a group with a rank here."""
        host = this_host() if len(set(places)) == 1 else ANY_HOST
        return Topology(tuple(places), host, wire, tuple(domains), profile)

    @cached_property
    def hosts(self) -> int:
        """How many there are."""
        return len(set(self.places))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """By what a plan in levels goes, a number for each rank: the hosts; on one host its domains, if known."""
        return self.places if self.hosts > 1 or not self.domains else self.domains

    @cached_property
    def crossing(self) -> int:
        """How often a rank of the busiest host speaks to one of another, if all speak to all."""
        return max(here * (len(self.places) - here) for here in Counter(self.places).values())

    @cached_property
    def is_in_blocks(self) -> bool:
        """Whether the ranks of each of the `parts` are neighbours."""
        return len(set(self.parts)) == 1 + sum(a != b for a, b in pairwise(self.parts))


ANY_HOST = Host(cores=8, l2=0, memory=0)


@lru_cache(maxsize=1)
def this_host() -> Host:
    """This machine, read from sysfs; 1 MiB of second-level cache where that tells none."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Host(os.cpu_count() or 1, cache_bytes(_CACHES, 2) or 1024 * KIB, memory)


def cache_bytes(folder: Path, level: int) -> int:
    """The size in bytes of the data cache of `level` that `folder` describes as sysfs does; 0 where it does not."""
    for index in sorted(folder.glob("index*")):
        try:
            if int((index / "level").read_text()) != level or (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()  # "1024K"
            return int(text.rstrip("KMG")) * {"K": KIB, "M": KIB**2, "G": KIB**3}.get(text[-1], 1)
        except (FileNotFoundError, PermissionError, ValueError):  # no others: ranks must not see different hosts
            continue
    return 0
