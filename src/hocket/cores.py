"""Which cores of this machine share a cache, and which memory is near to them, as /sys tells."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

SYSTEM = Path("/sys/devices/system")


class Cores(NamedTuple):
    """`domains` are the sets of cores that share a third-level cache, by their lowest core; where the machine tells of
    none, those of one NUMA node. `nodes` are the cores of each NUMA node that has some, by its number. Both are empty
    where nothing is told."""

    domains: tuple[frozenset[int], ...]
    nodes: dict[int, frozenset[int]]

    def domain(self, allowed: Collection[int]) -> int:
        """The number of the domain in which all of the `allowed` cores are; -1 where they are in several."""
        return next((i for i, cores in enumerate(self.domains) if allowed and cores.issuperset(allowed)), -1)

    def node(self, allowed: Collection[int]) -> int:
        """The same of NUMA nodes, by their numbers."""
        return next((i for i, cores in self.nodes.items() if allowed and cores.issuperset(allowed)), -1)


@lru_cache(maxsize=4)
def cores(system: Path = SYSTEM) -> Cores:
    """Those of the machine that the folder `system` describes, as /sys/devices/system does."""
    nodes = {int(folder.name[4:]): _listed(folder / "cpulist") for folder in sorted(system.glob("node/node[0-9]*"))}
    nodes = {number: nodes[number] for number in sorted(nodes) if nodes[number]}
    return Cores(tuple(_sharing(system)) or tuple(sorted(nodes.values(), key=min)), nodes)


def domain_here(system: Path = SYSTEM) -> int:
    """The number of the domain that this process is bound to, -1 where to none."""
    return cores(system).domain(os.sched_getaffinity(0))


def node_here(system: Path = SYSTEM) -> int:
    """The number of the NUMA node that this process is bound to, of several; -1 where to none, or where there is only
    one."""
    found = cores(system)
    return found.node(os.sched_getaffinity(0)) if len(found.nodes) > 1 else -1


def _sharing(system: Path) -> Iterator[frozenset[int]]:
    """The sets of cores that share a third-level cache; of each only one core is asked. None where any has none."""
    left, found = set(_listed(system / "cpu" / "online")), []
    while left:
        first = min(left)
        shared = _third_level(system / "cpu" / f"cpu{first}" / "cache")
        if first not in shared:
            return
        left -= shared
        found.append(shared)
    yield from found


def _third_level(folder: Path) -> frozenset[int]:
    for index in sorted(folder.glob("index*")):
        if _text(index / "level") == "3":
            return _listed(index / "shared_cpu_list")
    return frozenset()


def _listed(path: Path) -> frozenset[int]:
    """Cores as the kernel lists them: "0-3,8". None where it does not."""
    try:
        parts = [part.split("-") for part in _text(path).split(",") if part]
        return frozenset(core for part in parts for core in range(int(part[0]), int(part[-1]) + 1))
    except ValueError:
        return frozenset()


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # no others: ranks must not see different machines
        return ""
