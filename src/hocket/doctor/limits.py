"""What this user may have of memory, descriptors and space, against what a job's ranks need."""

from __future__ import annotations

import os
import re
import resource
from typing import NamedTuple

from ..config import job_sockets
from ..errors import RendezvousError
from ..tuning.topology import this_host
from .cgroups import memory_limit
from .findings import Check, Finding, Here, note, ok, plural, problem, size, warning

_FEW = 64 << 20  # bytes: Docker's /dev/shm
_RANK = 128 << 20  # bytes that a rank with NumPy takes before it has arrays of its own


class Descriptors(NamedTuple):
    """How many one process may have open, as it is and at most, and what a rank needs of them."""

    soft: int
    hard: int
    needed: int


def read_descriptors(here: Here) -> Descriptors:
    """The limit of this process, which ranks inherit."""
    try:
        streams = job_sockets(here.variables).streams
    except RendezvousError:  # which `settings` tells
        streams = 1
    soft, hard = (_known(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    return Descriptors(soft, hard, descriptors(here.ranks, here.nodes, streams))


def descriptors(ranks: int, nodes: int, streams: int) -> int:
    """About what a rank has open at most, with one subgroup of all ranks: of each other one of its host a socket and a
    pidfd, twice, and two more while the subgroup forms; of each one elsewhere its connections, twice; and Python's."""
    near, far = ranks - 1, ranks * (nodes - 1)
    return 32 + 6 * near + 2 * streams * far


def judge_descriptors(facts: Descriptors) -> list[Finding]:
    """Too few."""
    soft, hard, needed = facts
    if soft >= needed:
        return ok("descriptors", f"{soft} file descriptors")
    remedy = f"ulimit -n {needed}" if hard >= needed else f"as root: a nofile of {needed} in /etc/security/limits.conf"
    return problem(
        "descriptors",
        f"a process may open {soft} file descriptors, and a rank of such a job needs about {needed}",
        "a rank holds a socket to each other one; with too few, init raises a RendezvousError",
        f"{remedy} (docker --ulimit nofile={needed})",
    )


class Bounds(NamedTuple):
    """Of a process, in bytes: its address space, and a file; and what all ranks of this host share, and one of them."""

    space: int
    file: int
    mapped: int
    one: int


def read_bounds(here: Here) -> Bounds:
    """Each rank's memory file is as large as the machine's memory, nearly all of it never touched."""
    one = this_host().memory
    space, file = (_known(resource.getrlimit(kind)[0]) for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE))
    return Bounds(space, file, one * here.ranks, one)


def judge_bounds(facts: Bounds) -> list[Finding]:
    """Too small for the files that ranks share."""
    found = []
    if facts.space < facts.mapped:
        found += problem(
            "address space",
            f"a process may have {size(facts.space)} of address space, and ranks map {size(facts.mapped)}",
            "each rank maps a memory file of each rank of its host, as large as the machine's memory, mostly empty",
            "ulimit -v unlimited; to limit what is used, a cgroup's memory.max",
        )
    if facts.file < facts.one:
        found += problem(
            "file size",
            f"a file may have {size(facts.file)}, and what a rank shares is one of {size(facts.one)}",
            "it lies in memory, and is mostly empty, but the limit holds for it",
            "ulimit -f unlimited",
        )
    return found or ok("address space", "address space and files of any size")


class Memory(NamedTuple):
    """In bytes: the machine's, and what the control groups allow; None: all of it."""

    machine: int
    limit: int | None
    ranks: int


def read_memory(here: Here) -> Memory:
    """MemTotal, and the least of the groups' limits."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", here.text("proc/meminfo"), re.MULTILINE)
    if total is None:
        raise ValueError("/proc/meminfo has no MemTotal")
    return Memory(int(total[1]) << 10, memory_limit(here), here.ranks)


def judge_memory(facts: Memory) -> list[Finding]:
    """Less than ranks take before they have done anything."""
    had = facts.machine if facts.limit is None else min(facts.machine, facts.limit)
    whose = "the cgroup allows" if had < facts.machine else "the machine has"
    if had < facts.ranks * _RANK:
        return warning(
            "memory",
            f"{whose} {size(had)} of memory for {plural(facts.ranks, 'rank')}",
            f"a rank with NumPy takes about {size(_RANK)}; shared memory counts, too, and who takes too much is killed",
            "fewer ranks, or more memory (docker --memory, Kubernetes limits.memory, sbatch --mem)",
        )
    return ok("memory", f"{size(had)} of memory{' (cgroup)' if had < facts.machine else ''}")


class Locked(NamedTuple):
    """How many bytes a process may lock into memory, and whether UCX is asked for."""

    soft: int
    ucx: bool


def read_locked(here: Here) -> Locked:
    """The limit of this process."""
    return Locked(_known(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]), asks_for_ucx(here))


def judge_locked(facts: Locked) -> list[Finding]:
    """Little, where cards are to read memory by themselves."""
    if facts.soft >= _known(-1) or not facts.ucx:
        limit = "unlimited" if facts.soft >= _known(-1) else size(facts.soft)
        return ok("locked memory", f"locked memory {limit}")
    return warning(
        "locked memory",
        f"a process may lock {size(facts.soft)} of memory, and UCX is asked for",
        "InfiniBand and RoCE cards need memory that stays where it is: UCX finds no device without it",
        "ulimit -l unlimited; a memlock in /etc/security/limits.conf; LimitMEMLOCK=infinity for slurmd",
    )


class Shm(NamedTuple):
    """Of /dev/shm, in bytes; and whether UCX is asked for."""

    size: int
    free: int
    ucx: bool


def read_shm(here: Here) -> Shm:
    """Of the file system that is mounted there."""
    found = os.statvfs(here.root / "dev/shm")
    return Shm(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, asks_for_ucx(here))


def judge_shm(facts: Shm) -> list[Finding]:
    """Small or full. hocket's own memory has no name, and lies in no such folder."""
    if facts.free > _FEW:
        return ok("/dev/shm", f"/dev/shm {size(facts.free)} free")
    made = warning if facts.ucx else note
    return made(
        "/dev/shm",
        f"/dev/shm has {size(facts.free)} free, of {size(facts.size)}",
        "hocket lays nothing there, but UCX's posix does, and so do MPIs, NCCL and torch's DataLoader",
        "docker --shm-size 1g; Kubernetes: an emptyDir of medium Memory; mount -o remount,size=1g /dev/shm",
    )


def asks_for_ucx(here: Here) -> bool:
    """Whether HOCKET_TRANSPORT does."""
    return "ucx" in here.variables.get("HOCKET_TRANSPORT", "")


def _known(limit: int) -> int:
    """A limit that is none, as a number above all others."""
    return 1 << 63 if limit == resource.RLIM_INFINITY else limit


CHECKS = (
    Check("descriptors", read_descriptors, judge_descriptors),
    Check("address space", read_bounds, judge_bounds),
    Check("memory", read_memory, judge_memory),
    Check("locked memory", read_locked, judge_locked),
    Check("/dev/shm", read_shm, judge_shm),
)
