"""Cores, caches, memory and clock: how fast ranks of one host can be."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..tuning.topology import cache_bytes
from .cgroups import cpu_quota
from .findings import Check, Finding, Here, none, note, ok, plural, size, warning

_CPUS = "sys/devices/system/cpu"
_THP = "sys/kernel/mm/transparent_hugepage"


class Cores(NamedTuple):
    """How many the machine has, this process may run on, and its control groups give it the time of; None: any."""

    visible: int
    allowed: int
    quota: float | None
    ranks: int


def read_cores(here: Here) -> Cores:
    """As the kernel tells."""
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", here.text("proc/self/status"), re.MULTILINE)
    visible = _count(here.text(f"{_CPUS}/online"))
    return Cores(visible, _count(allowed[1]) if allowed else visible, cpu_quota(here), here.ranks)


def _count(numbers: str) -> int:
    """How many there are in "0-3,8"."""
    pairs = [part.partition("-") for part in numbers.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in pairs)


def judge_cores(facts: Cores) -> list[Finding]:
    """Bound to one, throttled, fewer than ranks, fewer than there are; the worst alone."""
    visible, allowed, quota, ranks = facts
    if allowed == 1 < min(visible, ranks):
        return warning(
            "cores",
            f"this process may run on one of {visible} cores only, and there are {ranks} ranks",
            "a rank that may run on one core takes it for shared by all ranks, and gives it up whenever it waits",
            "mpirun --bind-to none, srun --cpu-bind=none; within a shell: taskset -pc 0-N $$",
        )
    if quota is not None and quota < min(allowed, ranks):
        return warning(
            "cores",
            f"{plural(allowed, 'core')} can be used, but only for {quota:g} cores' worth of time (cgroup)",
            "ranks that wait use it up; then all of them stand still for the rest of the period, up to 0.1 s",
            f"raise the quota (docker --cpus {ranks}, Kubernetes limits.cpu), or start no more ranks than that",
        )
    if ranks > allowed:
        return note(
            "cores",
            f"{ranks} ranks on {plural(allowed, 'core')} take turns",
            "whoever waits gives its core up: a short call takes many times as long as with a core for each rank",
            f"hocket run -n {allowed}, or more cores",
        )
    if allowed < visible:
        return note(
            "cores",
            f"{allowed} of {visible} cores may be used (affinity)",
            "all ranks that are started here share these",
            "taskset -pc shows who set it; a launcher's options, or the cpuset of a container, change it",
        )
    return ok("cores", plural(allowed, "core"))


def read_cache(here: Here) -> int:
    """The second level's, of one core, in bytes; 0 where the machine tells none."""
    return cache_bytes(here.root / _CPUS / "cpu0/cache", 2)


def judge_cache(found: int) -> list[Finding]:
    """Unknown, or not."""
    if found:
        return ok("cache", f"L2 {size(found)}")
    return note(
        "cache",
        "this machine tells nothing of its second-level cache",
        "messages are cut to lie in it; 1 MiB is taken for granted",
        "a hypervisor can pass it on to its guests (QEMU: -cpu host,host-cache-info=on)",
    )


class Nodes(NamedTuple):
    """How many NUMA nodes there are, for how many ranks."""

    nodes: int
    ranks: int


def read_nodes(here: Here) -> Nodes:
    """Those that are online; one where the kernel knows of none."""
    return Nodes(_count(here.maybe("sys/devices/system/node/online") or "0"), here.ranks)


def judge_nodes(facts: Nodes) -> list[Finding]:
    """Several."""
    if facts.nodes == 1 or facts.ranks == 1:
        return ok("NUMA", plural(facts.nodes, "NUMA node"))
    return note(
        "NUMA",
        f"{facts.nodes} NUMA nodes",
        "hocket binds no rank: one that the kernel moves leaves its memory behind, on the other node",
        "mpirun --map-by numa --bind-to numa, srun --cpu-bind=ldoms, or numactl -N for each rank",
    )


class Governor(NamedTuple):
    """What chooses the clock rate of the first core, and which driver does as it says; empty where nothing does."""

    name: str
    driver: str


def read_governor(here: Here) -> Governor:
    """As cpufreq tells; a virtual machine has none."""
    folder = f"{_CPUS}/cpu0/cpufreq"
    return Governor(here.maybe(f"{folder}/scaling_governor"), here.maybe(f"{folder}/scaling_driver"))


def judge_governor(facts: Governor) -> list[Finding]:
    """One that saves power. Intel's driver calls its usual way powersave, which is as quick as schedutil."""
    if facts.name != "powersave":
        return ok("clock rate", f"governor {facts.name}") if facts.name else none("clock rate", "no frequency governor")
    found, remedy = f"the frequency governor is powersave ({facts.driver})", "cpupower frequency-set -g performance"
    if facts.driver in ("intel_pstate", "amd-pstate-epp"):
        why = "cores need some time to be fast again after they have slept, as ranks that wait for long do"
        return note("clock rate", found, why, remedy)
    return warning("clock rate", found, "all cores run at their lowest rate, whatever they do", remedy)


_QUICK = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase", "tod"}


def read_clock(here: Here) -> str:
    """The clock source in use."""
    return here.text("sys/devices/system/clocksource/clocksource0/current_clocksource")


def judge_clock(source: str) -> list[Finding]:
    """One that only the kernel can read."""
    if source in _QUICK:
        return ok("clock", f"clock {source}")
    return warning(
        "clock",
        f"the clock source is {source}",
        "to look at the clock, as each wait with a deadline does, is a system call, or slower",
        "dmesg | grep -i tsc says why not tsc; where the machine's is sound: tsc=reliable on the kernel's command line",
    )


class Vectors(NamedTuple):
    """The processor's kind, as uname has it, and what it can do, as /proc/cpuinfo does."""

    machine: str
    flags: frozenset[str]


_AVX2 = {"avx2", "f16c"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


def read_vectors(here: Here) -> Vectors:
    """Of the first core."""
    text = here.text("proc/cpuinfo")
    flags = re.search(r"^(?:flags|Features)\s*:(.*)", text, re.MULTILINE)
    machine = "x86_64" if re.search(r"^flags\s*:", text, re.MULTILINE) else "other"
    return Vectors(machine, frozenset(flags[1].split()) if flags else frozenset())


def judge_vectors(facts: Vectors) -> list[Finding]:
    """Which kernels are used, as csrc/kernels/reduce.cpp chooses."""
    if facts.machine != "x86_64":
        return ok("vectors", f"kernels for {'NEON' if 'asimd' in facts.flags else 'any processor'}")
    if facts.flags >= _AVX512:
        return ok("vectors", "kernels for AVX-512")
    if facts.flags >= _AVX2:
        return ok("vectors", "kernels for AVX2")
    return warning(
        "vectors",
        "the processor shows no AVX2 and F16C",
        "sums take the kernels that any processor can run, and float16 is converted in many instructions",
        "on a virtual machine: let it see the host's processor (QEMU: -cpu host)",
    )


class HugePages(NamedTuple):
    """When memory comes in huge pages: a process's own, and shared memory; empty where the kernel has none."""

    own: str
    shared: str


def read_huge_pages(here: Here) -> HugePages:
    """The choices that are in brackets."""
    chosen = [re.search(r"\[(\w+)\]", here.maybe(f"{_THP}/{name}")) for name in ("enabled", "shmem_enabled")]
    own, shared = (found[1] if found else "" for found in chosen)
    return HugePages(own, shared)


def judge_huge_pages(facts: HugePages) -> list[Finding]:
    """Shared memory in small ones."""
    if facts.shared in ("always", "within_size", "force"):
        return ok("huge pages", f"huge pages: {facts.own or 'none'}, shared {facts.shared}")
    return note(
        "huge pages",
        f"shared memory comes in small pages (shmem_enabled: {facts.shared or 'not there'})",
        "what ranks share is entered into each rank's page table 4 KiB at a time, when it is first touched",
        f"for large arrays try, as root, echo within_size > /{_THP}/shmem_enabled, and time it with hocket bench",
    )


CHECKS = (
    Check("cores", read_cores, judge_cores),
    Check("cache", read_cache, judge_cache),
    Check("NUMA", read_nodes, judge_nodes),
    Check("vectors", read_vectors, judge_vectors),
    Check("clock rate", read_governor, judge_governor),
    Check("clock", read_clock, judge_clock),
    Check("huge pages", read_huge_pages, judge_huge_pages),
)
