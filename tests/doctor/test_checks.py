"""What `hocket doctor` says of machines that are made up: each finding where it is due, and where it is not."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hocket import config
from hocket.doctor import cgroups, kernel, limits, machine, network, secrets, settings, tcp, versions
from hocket.doctor.findings import Finding, Here, Level, plural, size
from hocket.doctor.report import SUBJECTS
from hocket.rendezvous.interfaces import Interface

NONE, OK, NOTE, WARNING, PROBLEM = Level
NO_LIMIT = 1 << 63
GIB = 1 << 30


class Case(NamedTuple):
    """What is to be said of facts: how bad they are, of what, and some of the words; nothing of what is well."""

    judge: Callable[[Any], list[Finding]]
    facts: Any
    level: Level
    check: str
    words: str = ""
    remedy: str = ""


def flags(*names: str) -> machine.Vectors:
    return machine.Vectors("x86_64", frozenset(names))


AVX512 = ("avx2", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl")
LO, ETH, DOCKER = Interface("lo", "127.0.0.1"), Interface("eth0", "10.0.0.5"), Interface("docker0", "172.17.0.1")
FOUND = (LO, ETH, DOCKER)
FILES = ("cert.pem", "key.pem", "ca.pem")
PLACES = {"hocket": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "torch": "2.13.0", "ucx": "1.17.0"}
TLS = dict.fromkeys(("HOCKET_TLS_CERT", "HOCKET_TLS_KEY", "HOCKET_TLS_CA"), "file.pem")


def given(**environ: str) -> settings.Settings:
    return settings.Settings(environ, 2, 4, ())


CASES = [
    # ---- machine
    Case(machine.judge_cores, (8, 8, None, 4), OK, "cores", "8 cores"),
    Case(machine.judge_cores, (1, 1, None, 1), OK, "cores", "1 core"),
    Case(machine.judge_cores, (8, 8, 4.0, 4), OK, "cores"),
    Case(
        machine.judge_cores, (8, 1, None, 4), WARNING, "cores", "one of 8 cores only, and there are 4", "bind-to none"
    ),
    Case(machine.judge_cores, (8, 8, 1.5, 2), WARNING, "cores", "only for 1.5 cores' worth", "docker --cpus 2"),
    Case(machine.judge_cores, (2, 2, None, 4), NOTE, "cores", "4 ranks on 2 cores take turns", "hocket run -n 2"),
    Case(machine.judge_cores, (8, 4, None, 4), NOTE, "cores", "4 of 8 cores may be used", "taskset"),
    Case(machine.judge_cache, 1 << 20, OK, "cache", "L2 1 MiB"),
    Case(machine.judge_cache, 0, NOTE, "cache", "tells nothing of its second-level cache", "host-cache-info"),
    Case(machine.judge_nodes, machine.Nodes(1, 8), OK, "NUMA"),
    Case(machine.judge_nodes, machine.Nodes(2, 1), OK, "NUMA"),
    Case(machine.judge_nodes, machine.Nodes(2, 8), NOTE, "NUMA", "2 NUMA nodes", "--map-by numa"),
    Case(machine.judge_governor, machine.Governor("", ""), NONE, "clock rate"),
    Case(machine.judge_governor, machine.Governor("schedutil", "acpi-cpufreq"), OK, "clock rate"),
    Case(machine.judge_governor, machine.Governor("powersave", "intel_pstate"), NOTE, "clock rate", "powersave (intel"),
    Case(
        machine.judge_governor,
        machine.Governor("powersave", "acpi-cpufreq"),
        WARNING,
        "clock rate",
        "powersave (acpi-cpufreq)",
        "performance",
    ),
    Case(machine.judge_clock, "tsc", OK, "clock", "clock tsc"),
    Case(machine.judge_clock, "hpet", WARNING, "clock", "the clock source is hpet", "tsc=reliable"),
    Case(machine.judge_vectors, flags(*AVX512), OK, "vectors", "kernels for AVX-512"),
    Case(machine.judge_vectors, flags("avx2", "f16c", "avx512f"), OK, "vectors", "kernels for AVX2"),
    Case(machine.judge_vectors, machine.Vectors("other", frozenset(["asimd"])), OK, "vectors", "kernels for NEON"),
    Case(machine.judge_vectors, machine.Vectors("other", frozenset(["rv64"])), OK, "vectors", "any processor"),
    Case(machine.judge_vectors, flags("avx2"), WARNING, "vectors", "shows no AVX2 and F16C", "-cpu host"),
    Case(machine.judge_huge_pages, ("madvise", "within_size"), OK, "huge pages", "shared within_size"),
    Case(machine.judge_huge_pages, ("always", "never"), NOTE, "huge pages", "(shmem_enabled: never)", "within_size"),
    Case(machine.judge_huge_pages, ("", ""), NOTE, "huge pages", "(shmem_enabled: not there)"),
    # ---- limits
    Case(limits.judge_descriptors, (1024, 4096, 1024), OK, "descriptors", "1024 file descriptors"),
    Case(limits.judge_descriptors, (256, 4096, 300), PROBLEM, "descriptors", "about 300", "ulimit -n 300"),
    Case(limits.judge_descriptors, (256, 256, 300), PROBLEM, "descriptors", "may open 256", "limits.conf"),
    Case(limits.judge_bounds, limits.Bounds(NO_LIMIT, NO_LIMIT, 8 * GIB, 4 * GIB), OK, "address space"),
    Case(
        limits.judge_bounds,
        limits.Bounds(6 * GIB, NO_LIMIT, 8 * GIB, 4 * GIB),
        PROBLEM,
        "address space",
        "6 GiB of address space, and ranks map 8 GiB",
        "ulimit -v",
    ),
    Case(
        limits.judge_bounds,
        limits.Bounds(NO_LIMIT, 1 << 20, 8 * GIB, 4 * GIB),
        PROBLEM,
        "file size",
        "a file may have 1 MiB, and what a rank shares is one of 4 GiB",
        "ulimit -f",
    ),
    Case(limits.judge_memory, (64 * GIB, None, 8), OK, "memory", "64 GiB of memory"),
    Case(limits.judge_memory, (64 * GIB, 2 * GIB, 8), OK, "memory", "2 GiB of memory (cgroup)"),
    Case(limits.judge_memory, (64 * GIB, GIB, 9), WARNING, "memory", "the cgroup allows 1 GiB of memory for 9 ranks"),
    Case(limits.judge_memory, (GIB, None, 9), WARNING, "memory", "the machine has 1 GiB of memory for 9 ranks"),
    Case(limits.judge_locked, limits.Locked(65536, False), OK, "locked memory", "64 KiB"),
    Case(limits.judge_locked, limits.Locked(NO_LIMIT, True), OK, "locked memory", "unlimited"),
    Case(limits.judge_locked, limits.Locked(65536, True), WARNING, "locked memory", "may lock 64 KiB", "ulimit -l"),
    Case(limits.judge_shm, limits.Shm(GIB, GIB, False), OK, "/dev/shm", "/dev/shm 1 GiB free"),
    Case(
        limits.judge_shm, limits.Shm(1 << 26, 1 << 26, False), NOTE, "/dev/shm", "64 MiB free, of 64 MiB", "--shm-size"
    ),
    Case(limits.judge_shm, limits.Shm(GIB, 0, True), WARNING, "/dev/shm", "0 bytes free, of 1 GiB"),
    # ---- kernel
    Case(kernel.judge_version, "6.1.0-18-amd64", OK, "version", "Linux 6.1.0-18-amd64"),
    Case(kernel.judge_version, "5.10.0", NOTE, "version", "Linux 5.10.0", "newer kernel"),
    Case(kernel.judge_version, "4.18.0-553.el8", PROBLEM, "version", "Linux 4.18.0-553.el8", "a newer kernel"),
    Case(kernel.judge_memfd, kernel.Memfd("", "2"), OK, "memfd"),
    Case(kernel.judge_memfd, kernel.Memfd("Permission denied", "2"), PROBLEM, "memfd", "memfd_noexec is 2", "noexec=1"),
    Case(kernel.judge_memfd, kernel.Memfd("No", "0"), PROBLEM, "memfd", "(memfd_create: No)", "seccomp"),
    Case(kernel.judge_pidfd, "", OK, "pidfd"),
    Case(kernel.judge_pidfd, "Not permitted", PROBLEM, "pidfd", "(pidfd_open: Not permitted)", "seccomp"),
    Case(kernel.judge_reading, kernel.Reading("", "", True), OK, "process_vm_readv"),
    Case(kernel.judge_reading, kernel.Reading("", "1", True, root=True), OK, "process_vm_readv"),
    Case(
        kernel.judge_reading, kernel.Reading("", "1", False), NOTE, "process_vm_readv", "scope is 1", "ptrace_scope=0"
    ),
    Case(
        kernel.judge_reading, kernel.Reading("No", "0", True), WARNING, "process_vm_readv", "forbidden (No)", "seccomp"
    ),
    # ---- network
    Case(network.judge_way, network.Way("10.0.0.5", "", "", FOUND, "", 2), OK, "interface", "come to 10.0.0.5 (eth0)"),
    Case(
        network.judge_way,
        network.Way("", "no interface fits", "", FOUND, "", 1),
        PROBLEM,
        "interface",
        "no interface fits",
        "eth0 (10.0.0.5), docker0",
    ),
    Case(network.judge_way, network.Way("", "", "", (LO,), "", 1), NOTE, "interface", "no address but", "connect it"),
    Case(network.judge_way, network.Way("", "", "", (LO,), "", 2), PROBLEM, "interface", "no address but its own"),
    Case(network.judge_way, network.Way("127.0.0.1", "", "", FOUND, "", 1), OK, "interface"),
    Case(
        network.judge_way,
        network.Way("127.0.0.1", "", "tcp://me:1", FOUND, "", 2),
        PROBLEM,
        "interface",
        "the way to tcp://me:1 goes by 127.0.0.1 (lo)",
        "HOCKET_SOCKET_IFNAME",
    ),
    Case(
        network.judge_way, network.Way("172.17.0.1", "", "", FOUND, "", 2), WARNING, "interface", "bridge of containers"
    ),
    Case(
        network.judge_way,
        network.Way("10.0.0.5", "", "", FOUND, "10.0.0.5", 2),
        WARNING,
        "interface",
        "FALLBACK_IFNAME means 10.0.0.5 (eth0), which is the first way",
        "another network",
    ),
    Case(network.judge_speed, network.Speed("eth0", 0), NONE, "speed"),
    Case(network.judge_speed, network.Speed("eth0", 10000), OK, "speed", "10000 Mbit/s"),
    Case(network.judge_speed, network.Speed("eth0", 100), WARNING, "speed", "eth0 runs at 100 Mbit/s", "ethtool eth0"),
    Case(network.judge_name, network.Name("a", ("10.0.0.5",), "", 1), OK, "host name", "a is 10.0.0.5"),
    Case(network.judge_name, network.Name("a", ("127.0.1.1",), "", 1), NOTE, "host name", "a leads to 127.0.1.1"),
    Case(network.judge_name, network.Name("a", ("::1",), "", 2), WARNING, "host name", "a leads to ::1", "/etc/hosts"),
    Case(network.judge_name, network.Name("a", (), "unknown", 2), WARNING, "host name", "to no address here: unknown"),
    Case(network.judge_meeting, network.Meeting("", ""), NONE, "meeting point"),
    Case(network.judge_meeting, network.Meeting("tcp://a:1", ""), OK, "meeting point", "meet at tcp://a:1"),
    Case(network.judge_meeting, network.Meeting("tcp://a:1", "what?"), PROBLEM, "meeting point", "nowhere: what?"),
    Case(tcp.judge_congestion, tcp.Congestion("", "", "bbr", "reno bbr cubic"), OK, "congestion control", "cubic"),
    Case(tcp.judge_congestion, tcp.Congestion("", "no", "cubic", "cubic"), OK, "congestion control"),
    Case(tcp.judge_congestion, tcp.Congestion("vegas", "", "cubic", ""), OK, "congestion control", "vegas"),
    Case(
        tcp.judge_congestion,
        tcp.Congestion("", "no", "bbr", "reno bbr"),
        WARNING,
        "congestion control",
        "cubic cannot be had, and bbr is what connections get; allowed: reno bbr",
        "modprobe tcp_cubic",
    ),
    Case(
        tcp.judge_congestion,
        tcp.Congestion("vegas", "no vegas here", "cubic", ""),
        PROBLEM,
        "congestion control",
        "no vegas here",
        "modprobe tcp_vegas",
    ),
    Case(tcp.judge_windows, tcp.Windows(6 << 20, 4 << 20, 1000), OK, "buffers", "up to 6 MiB in, 4 MiB out"),
    Case(
        tcp.judge_windows, tcp.Windows(6 << 20, 4 << 20, 100_000), NOTE, "buffers", "6 MiB in", "HOCKET_TCP_STREAMS=4"
    ),
    Case(tcp.judge_windows, tcp.Windows(6 << 20, 2 << 20, 0), NOTE, "buffers", "2 MiB out", "65536 4194304"),
    Case(tcp.judge_windows, tcp.Windows(1 << 18, 4 << 20, 0), WARNING, "buffers", "256 KiB in", "tcp_rmem"),
    # ---- secrets
    Case(secrets.judge_secret, secrets.Secret(None, False), NONE, "secret"),
    Case(secrets.judge_secret, secrets.Secret(32, True), OK, "secret"),
    Case(secrets.judge_secret, secrets.Secret(0, True), PROBLEM, "secret", "is not set here", "openssl rand"),
    Case(secrets.judge_secret, secrets.Secret(5, False), WARNING, "secret", "has 5 characters", "openssl rand"),
    Case(secrets.judge_certificates, secrets.Certificates((), "", 0, True, ()), NONE, "TLS"),
    Case(secrets.judge_certificates, secrets.Certificates(FILES, "", 0o600, True, ()), OK, "TLS", "TLS"),
    Case(secrets.judge_certificates, secrets.Certificates(FILES, "", 0o400, True, None), OK, "TLS", "no openssl here"),
    Case(secrets.judge_certificates, secrets.Certificates(FILES, "no PEM", 0, True, ()), PROBLEM, "TLS", "no PEM"),
    Case(
        secrets.judge_certificates,
        secrets.Certificates(FILES, "", 0o640, True, ()),
        WARNING,
        "key",
        "key.pem can be read or written by others (640)",
        "chmod 600 key.pem",
    ),
    Case(
        secrets.judge_certificates,
        secrets.Certificates(FILES, "", 0o600, False, ()),
        WARNING,
        "key",
        "key.pem belongs to another user",
        "chown",
    ),
    Case(
        secrets.judge_certificates,
        secrets.Certificates(FILES, "", 0o600, True, ("cert.pem has run out",)),
        PROBLEM,
        "certificate",
        "cert.pem has run out",
        "sign a new one",
    ),
    Case(
        secrets.judge_certificates,
        secrets.Certificates(FILES, "", 0o600, True, ("ca.pem runs out within 7 days",)),
        WARNING,
        "certificate",
        "within 7 days",
    ),
    Case(secrets.judge_folder, secrets.Folder("", "", 0, True), NONE, "folder"),
    Case(secrets.judge_folder, secrets.Folder("/jobs", "", 0o1777, True), OK, "folder", "meet in /jobs"),
    Case(
        secrets.judge_folder, secrets.Folder("/jobs", "", 0o777, True), WARNING, "folder", "everybody (0777)", "chmod"
    ),
    Case(secrets.judge_folder, secrets.Folder("/jobs", "", 0o755, False), PROBLEM, "folder", "cannot be written by"),
    Case(secrets.judge_folder, secrets.Folder("/jobs", "is gone", 0, False), PROBLEM, "folder", "/jobs: is gone"),
    # ---- settings
    Case(settings.judge_place, ("rank 0 of 2", ""), OK, "place", "rank 0 of 2"),
    Case(settings.judge_place, ("", "RANK is not set"), PROBLEM, "place", "RANK is not set"),
    Case(settings.judge_launchers, [], NONE, "launcher"),
    Case(settings.judge_launchers, [settings.Launched("a", (0, 2)), settings.Launched("b", (0, 2))], OK, "launcher"),
    Case(
        settings.judge_launchers,
        [settings.Launched("a", (0, 2)), settings.Launched("b", None)],
        WARNING,
        "launcher",
        "differ (a: rank 0 of 2; b: half a place)",
        "unset it",
    ),
    Case(settings.judge_unknown, (), NONE, "names"),
    Case(settings.judge_unknown, ("HOCKET_TIMOUT",), WARNING, "names", "HOCKET_TIMOUT is set", "mean HOCKET_TIMEOUT?"),
    Case(settings.judge_unknown, ("HOCKET_XYZZY",), WARNING, "names", "HOCKET_XYZZY is set", "unset this one"),
    Case(settings.judge_settings, given(HOCKET_TRANSPORT="shm,ucx", OMP_NUM_THREADS="2"), NONE, "settings"),
    Case(settings.judge_settings, given(HOCKET_TRANSPORT="shm,ucx", **TLS), PROBLEM, "UCX and TLS", "=shm,ucx and"),
    Case(settings.judge_settings, given(HOCKET_TRANSPORT="shm,ucx,tcp", **TLS), WARNING, "UCX and TLS", "CERT are set"),
    Case(
        settings.judge_settings,
        given(HOCKET_TRANSPORT="ucx", HOCKET_TCP_STREAMS="4"),
        NOTE,
        "streams",
        "only UCX is asked",
    ),
    Case(
        settings.judge_settings, given(HOCKET_INTEGRITY="1", **TLS), NOTE, "integrity", "HOCKET_INTEGRITY=1 beside TLS"
    ),
    Case(
        settings.judge_settings,
        given(HOCKET_ADDRESS="@a", HOCKET_RENDEZVOUS="tcp://a:1"),
        WARNING,
        "meeting point",
        "are both set",
        "unset it",
    ),
    Case(
        settings.judge_settings,
        given(HOCKET_MIN_RANKS="3", WORLD_SIZE="2"),
        PROBLEM,
        "fewest ranks",
        "HOCKET_MIN_RANKS is 3, and there are 2 ranks",
    ),
    Case(
        settings.judge_settings,
        settings.Settings({"HOCKET_TRACE": "/t"}, 2, 4, ("HOCKET_TRACE",)),
        WARNING,
        "folders",
        "HOCKET_TRACE is /t, where this user can make no file",
    ),
    Case(
        settings.judge_settings,
        given(OMP_NUM_THREADS="3,1"),
        WARNING,
        "threads",
        "OMP_NUM_THREADS=3 for each of 2 ranks, on 4 cores",
        "OMP_NUM_THREADS=2",
    ),
    # ---- versions
    Case(versions.judge_own, ("0.1.0", "0.1.0", "3.11.7"), OK, "hocket", "hocket 0.1.0, Python 3.11.7"),
    Case(versions.judge_own, ("0.1.0", "", "3.11.7"), OK, "hocket"),
    Case(
        versions.judge_own, ("0.1.0", "0.2.0", "3.11.7"), PROBLEM, "hocket", "core is that of hocket 0.1.0", "reinstall"
    ),
    Case(versions.judge_beside, ({"numpy": "2.0"}, {"numpy": "1.26"}, "/mpirun"), OK, "packages", "numpy 2.0, /mpirun"),
    Case(versions.judge_beside, ({"torch": "2.13.0+cpu"}, {"torch": "2.13"}, ""), OK, "packages", "torch 2.13.0+cpu"),
    Case(
        versions.judge_beside,
        ({"torch": "2.9.1"}, {"torch": "2.13"}, ""),
        WARNING,
        "torch",
        "wants 2.13",
        "torch>=2.13",
    ),
    Case(versions.judge_beside, ({}, {}, "Open MPI 5.0.11"), OK, "packages", "Open MPI 5.0.11"),
    Case(versions.judge_ucx, versions.UCX("", "no libucp", False, True, False), NONE, "UCX"),
    Case(versions.judge_ucx, versions.UCX("1.17", "", True, True, True), OK, "UCX", "UCX 1.17"),
    Case(
        versions.judge_ucx,
        versions.UCX("", "no libucp", True, True, False),
        WARNING,
        "UCX",
        "cannot be used: no libucp",
    ),
    Case(
        versions.judge_ucx,
        versions.UCX("", "no libucp", True, False, False),
        PROBLEM,
        "UCX",
        "no libucp",
        "HOCKET_UCX=",
    ),
    Case(
        versions.judge_ucx,
        versions.UCX("1.17", "", False, True, True),
        NOTE,
        "UCX",
        "not asked for",
        "HOCKET_TRANSPORT",
    ),
]
FACTS: dict[Any, Any] = {
    machine.judge_cores: machine.Cores,
    machine.judge_huge_pages: machine.HugePages,
    limits.judge_descriptors: limits.Descriptors,
    limits.judge_memory: limits.Memory,
    versions.judge_own: versions.Own,
    versions.judge_beside: versions.Beside,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.judge.__name__}-{case.level.name}")
def test_what_is_said_of_facts(case: Case) -> None:
    facts = FACTS[case.judge](*case.facts) if case.judge in FACTS else case.facts
    (found,) = case.judge(facts)
    assert (found.level, found.check) == (case.level, case.check), found
    assert case.words in found.found, found
    assert case.remedy in found.remedy, found
    assert bool(found.why) == bool(found.remedy) == (case.level > OK), found


def test_nothing_is_left_untested() -> None:
    """Each check is seen well and not well; and so is each finding, by the places in the source that make one."""
    judges = {case.judge for case in CASES}
    for _, checks in SUBJECTS:
        assert {check.judge for check in checks} <= judges
    for judge in judges:
        levels = {case.level for case in CASES if case.judge is judge}
        assert levels & {NONE, OK}, judge
        assert levels - {NONE, OK}, judge
    said = {(case.judge.__module__, case.check, case.level) for case in CASES}
    modules = (machine, limits, kernel, network, tcp, secrets, settings, versions)
    for module in modules:
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LEVELS:
                name = ast.literal_eval(node.args[0]) if isinstance(node.args[0], ast.Constant) else "torch"
                name = {"torch": "names"}.get(name, name) if module is settings else name
                assert (module.__name__, name, LEVELS[node.func.id]) in said, (module.__name__, ast.unparse(node))


def test_the_page_names_every_check() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "doctor.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    told: dict[str, list[str]] = {}
    subject = ""
    for first, *others in rows:
        subject = first or subject
        told.setdefault(subject, []).extend(others[:1])
    for name, checks in SUBJECTS:
        assert sorted(told[name]) == sorted(check.name for check in checks)


LEVELS = {"note": NOTE, "warning": WARNING, "problem": PROBLEM}


# ---- what is read ----------------------------------------------------------------------------------------------------

MACHINE = {
    "sys/devices/system/cpu/online": "0-7",
    "sys/devices/system/cpu/cpu0/cache/index0/level": "1",
    "sys/devices/system/cpu/cpu0/cache/index0/type": "Data",
    "sys/devices/system/cpu/cpu0/cache/index0/size": "48K",
    "sys/devices/system/cpu/cpu0/cache/index2/level": "2",
    "sys/devices/system/cpu/cpu0/cache/index2/type": "Unified",
    "sys/devices/system/cpu/cpu0/cache/index2/size": "2048K",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "acpi-cpufreq",
    "sys/devices/system/node/online": "0-1",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/kernel/mm/transparent_hugepage/shmem_enabled": "always within_size advise [never] deny force",
    "sys/class/net/eth0/speed": "100",
    "sys/class/net/eth1/speed": "-1",
    "proc/cpuinfo": "processor : 0\nflags\t\t: fpu avx2 f16c\n",
    "proc/meminfo": "MemFree: 1 kB\nMemTotal:       1048576 kB\n",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-1,4\n",
    "proc/self/cgroup": "0::/job/rank\n",
    "proc/sys/kernel/osrelease": "5.10.0",
    "proc/sys/kernel/yama/ptrace_scope": "1",
    "proc/sys/vm/memfd_noexec": "2",
    "proc/sys/net/ipv4/tcp_rmem": "4096 131072 262144",
    "proc/sys/net/ipv4/tcp_wmem": "4096 16384 4194304",
    "proc/sys/net/ipv4/tcp_congestion_control": "bbr",
    "proc/sys/net/ipv4/tcp_allowed_congestion_control": "reno bbr",
    "sys/fs/cgroup/job/cpu.max": "150000 100000",
    "sys/fs/cgroup/job/memory.max": "max",
    "sys/fs/cgroup/job/rank/cpu.max": "max 100000",
    "sys/fs/cgroup/job/rank/memory.max": "536870912",
}


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Here]:
    """A machine out of files: those of MACHINE, others in their place, and without some."""

    def made(files: dict[str, str | None] | None = None, **options: Any) -> Here:
        for name, text in (MACHINE | (files or {})).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                path.write_text(text + "\n")
        return Here(root=tmp_path, **options)

    return made


def test_what_is_read_of_a_machine(fake: Callable[..., Here]) -> None:
    here = fake(ranks=4)
    assert machine.read_cores(here) == (8, 3, 1.5, 4)
    assert machine.read_cache(here) == 2 << 20
    assert machine.read_nodes(here) == (2, 4)
    assert machine.read_governor(here) == ("powersave", "acpi-cpufreq")
    assert machine.read_clock(here) == "hpet"
    assert machine.read_vectors(here) == ("x86_64", {"fpu", "avx2", "f16c"})
    assert machine.read_huge_pages(here) == ("madvise", "never")
    assert limits.read_memory(here) == (GIB, 512 << 20, 4)
    assert kernel.read_version(here) == "5.10.0"
    assert kernel.read_memfd(here) == ("", "2")
    assert kernel.read_reading(here)[1:3] == ("1", False)
    assert kernel.read_reading(Here({"HOCKET_TRANSPORT": "shm,ucx"}, root=here.root)).ucx
    assert tcp.read_windows(here)[:2] == (262144, 4194304)
    assert tcp.read_congestion(here)[2:] == ("bbr", "reno bbr")
    assert [network.speed_of(here, name) for name in ("eth0", "eth1", "eth2", "")] == [100, 0, 0, 0]


def test_control_groups_of_version_1(fake: Callable[..., Here]) -> None:
    """As a container has them: its own group is what it sees as the root, whatever it is called outside."""
    files = {
        "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824",
    }
    assert (cgroups.cpu_quota(fake(files)), cgroups.memory_limit(fake(files))) == (2.5, GIB)
    none = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1"}
    none |= {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}
    assert (cgroups.cpu_quota(fake(files | none)), cgroups.memory_limit(fake(files | none))) == (None, None)


def test_a_group_that_is_seen_from_without_its_root(fake: Callable[..., Here]) -> None:
    here = fake({"proc/self/cgroup": "0::/../../other\n", "sys/fs/cgroup/cpu.max": "50000 100000"})
    assert cgroups.cpu_quota(here) == 0.5


def test_what_cannot_be_looked_at(tmp_path: Path) -> None:
    """Nothing is there, and nothing breaks: each check says something."""
    for _, checks in SUBJECTS:
        for check in checks:
            for found in check.made(Here(root=tmp_path)):
                assert found.found
    (found,) = {check.name: check for check in machine.CHECKS}["clock"].made(Here(root=tmp_path))
    assert (found.level, found.found.startswith("could not look: ")) == (NOTE, True)
    assert found.found.endswith("current_clocksource: No such file or directory")


@pytest.mark.parametrize(
    "noise", ["", "9" * 30, "0 0 0", "\0", "x", "-1", "0-", "a:b", "max max max", "\xff" * 99, "1 " * 99], ids=repr
)
def test_files_that_hold_something_else(fake: Callable[..., Here], noise: str) -> None:
    here = fake(dict.fromkeys(MACHINE, noise), ranks=3, nodes=2)
    for _, checks in SUBJECTS:
        for check in checks:
            assert check.made(here)


def test_descriptors_grow_with_ranks_hosts_and_connections() -> None:
    one = limits.descriptors(1, 1, 1)
    assert limits.descriptors(8, 1, 4) - one == 6 * 7
    assert limits.descriptors(1, 64, 4) - one == 2 * 63 * 4
    here = Here({"HOCKET_TCP_STREAMS": "4"}, 2, 3)
    assert limits.read_descriptors(here).needed == limits.descriptors(2, 3, 4)
    assert limits.read_descriptors(Here({"HOCKET_TCP_STREAMS": "many"}, 2, 3)).needed == limits.descriptors(2, 3, 1)


def test_settings_are_read_as_hocket_does(tmp_path: Path) -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2", "PMI_RANK": "0", "PMI_SIZE": "4", "HOCKET_TIMOUT": "3"}
    here = Here({**environ, "HOCKET_FLIGHT": "/dev/null/x", "HOCKET_TRACE": str(tmp_path / "new" / "one")})
    assert settings.read_launchers(here) == [("torchrun", (1, 2)), ("mpirun (MPICH)", (0, 4))]
    assert settings.read_unknown(here) == ("HOCKET_TIMOUT",)
    assert settings.read_settings(here).shut == ("HOCKET_FLIGHT",)
    assert settings.read_place(here)[1].startswith("MASTER_ADDR is not set")
    assert settings.read_place(Here())[0] == "rank 0 of 1, started by: none"
    assert settings.read_launchers(Here({"RANK": "1"})) == [("torchrun", None)]
    srun = {"SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "6"}  # which tells no local size
    assert settings.ranks_here({**environ, "LOCAL_WORLD_SIZE": "2"}) == 2
    assert settings.ranks_here(srun) == 7
    assert settings.ranks_here({"RANK": "1"}) == settings.ranks_here({}) == len(os.sched_getaffinity(0))


def test_no_variable_of_ours_is_unknown() -> None:
    sources = Path(str(config.__file__)).parent.glob("*.py")
    read = {name for source in sources for name in re.findall(r'"(HOCKET_[A-Z_]+)"', source.read_text())}
    assert read == {name for name in config.names() if name.startswith("HOCKET_")}


def test_secrets_are_read(tmp_path: Path) -> None:
    from certificates import certified

    files = certified(tmp_path)
    key = Path(files["HOCKET_TLS_KEY"])
    for mode in (0o600, 0o644):
        key.chmod(mode)
        found = secrets.read_certificates(Here(files))
        assert (found.error, found.mode, found.is_own, found.ends) == ("", mode, True, ())
    key.write_text("no key")
    assert "rank-key.pem" in secrets.read_certificates(Here(files)).error
    key.unlink()
    assert "rank-key.pem, which TLS needs, cannot be read" in secrets.read_certificates(Here(files)).error
    assert secrets.read_secret(Here({"HOCKET_SECRET": "12345"})) == (5, False)
    assert secrets.read_secret(Here({"HOCKET_RENDEZVOUS": "tcp://a:1"})) == (None, True)
    tmp_path.chmod(0o777)
    folder = secrets.read_folder(Here({"HOCKET_RENDEZVOUS": f"file://{tmp_path}/new/one"}))
    assert folder == (str(tmp_path), "", 0o777, True)
    assert secrets.read_folder(Here({"HOCKET_RENDEZVOUS": "file:///dev/null/x"})).error


def test_the_network_is_read() -> None:
    way = network.read_way(Here({"HOCKET_RENDEZVOUS": "tcp://127.0.0.1:1", "HOCKET_FALLBACK_IFNAME": "=lo"}))
    assert (way.address, way.fallback, way.error, way.towards) == ("127.0.0.1", "127.0.0.1", "", "tcp://127.0.0.1:1")
    wrong = Here({"HOCKET_SOCKET_IFNAME": "=nothing"})
    assert 'HOCKET_SOCKET_IFNAME is "=nothing"' in network.read_way(wrong).error
    assert network.read_meeting(Here({"HOCKET_RENDEZVOUS": f"tcp://{'a' * 70}:1"})).error
    assert network.read_meeting(Here({"HOCKET_RENDEZVOUS": "tcp://127.0.0.1:1"})) == ("tcp://127.0.0.1:1", "")
    assert 'congestion control "nothing"' in tcp.read_congestion(Here({"HOCKET_TCP_CONGESTION": "nothing"})).refused


def test_versions_are_read() -> None:
    own, beside = versions.read_own(Here()), versions.read_beside(Here())
    assert own.core == own.package
    assert {"numpy", "torch", "mpi4py", "ray", "ml-dtypes"} <= set(beside.wanted)
    assert "pytest" not in beside.wanted
    found = versions.read_ucx(Here({"HOCKET_TRANSPORT": "shm,ucx", "HOCKET_UCX": "/no.so"}))
    assert "/no.so" in found.lacks
    assert (found.version, found.is_asked, found.falls_back, found.is_named) == ("", True, False, True)


def test_words() -> None:
    sizes = [size(count) for count in (0, 1023, 1024, 1 << 20, 1023 << 20, 3 << 29, 1 << 40, 1 << 60)]
    assert sizes == ["0 bytes", "1023 bytes", "1 KiB", "1 MiB", "1023 MiB", "1.5 GiB", "1 TiB", "1.049e+06 TiB"]
    assert [plural(count, "core") for count in (0, 1, 2)] == ["0 cores", "1 core", "2 cores"]
    assert os.uname().release in versions.facts(Here())["kernel"]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n", "Open MPI 5.0.11"),
        ("HYDRA build details:\n    Version:            5.0.2\n    Release Date: Fri Sep 25\n", "MPICH 5.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260912\n", "Intel MPI 2021.18"),
        ("", ""),
    ],
)
def test_which_mpi_it_is(said: str, name: str) -> None:
    assert versions.mpi_of(said) == name
