"""Cores that share a cache, and the memory near to them: read from a /sys that is made up, told, gone by, and bound."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from pathlib import Path

import pytest
from launching import Hocket

from hocket._core import prefer_node
from hocket.cores import Cores, cores, domain_here, node_here
from hocket.rendezvous.cards import Card, domains
from hocket.run.native import create_outbox

PREFERRED = 1  # linux/mempolicy.h
GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}


def made_up(
    folder: Path, caches: dict[int, dict[int, str]], nodes: dict[int, str] | None = None, online: str = ""
) -> Path:
    """A folder like /sys/devices/system: for each core which ones share its cache of each level, and the nodes."""
    for core, levels in caches.items():
        for index, (level, shared) in enumerate([(1, str(core)), *levels.items()]):
            place = folder / "cpu" / f"cpu{core}" / "cache" / f"index{index}"
            place.mkdir(parents=True)
            (place / "level").write_text(f"{level}\n")
            (place / "shared_cpu_list").write_text(f"{shared}\n")
    for number, listed in (nodes or {}).items():
        (folder / "node" / f"node{number}").mkdir(parents=True)
        (folder / "node" / f"node{number}" / "cpulist").write_text(f"{listed}\n")
    (folder / "cpu").mkdir(exist_ok=True)
    (folder / "cpu" / "online").write_text(f"{online or f'0-{max(caches)}'}\n")
    return folder


def two_sockets(folder: Path) -> Path:
    """Two NUMA nodes of two third-level caches of two cores with two threads each, numbered as Linux does."""
    share = {
        core: f"{core % 8 // 2 * 2}-{core % 8 // 2 * 2 + 1},{core % 8 // 2 * 2 + 8}-{core % 8 // 2 * 2 + 9}"
        for core in range(16)
    }
    return made_up(
        folder,
        {core: {2: f"{core % 8},{core % 8 + 8}", 3: share[core]} for core in share},
        {0: "0-3,8-11", 10: "4-7,12-15", 2: ""},
    )


def test_domains_and_nodes_are_read(tmp_path: Path) -> None:
    found = cores(two_sockets(tmp_path))
    assert found.domains == ({0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15})
    assert found.nodes == {0: {0, 1, 2, 3, 8, 9, 10, 11}, 10: {4, 5, 6, 7, 12, 13, 14, 15}}
    assert [found.domain(allowed) for allowed in ({10}, {2, 11}, {2, 4}, {0, 99}, set())] == [1, 1, -1, -1, -1]
    assert [found.node(allowed) for allowed in ({4}, {4, 15}, {3, 4}, set())] == [10, 10, -1, -1]


def test_without_third_level_caches_nodes_are_the_domains(tmp_path: Path) -> None:
    found = cores(made_up(tmp_path / "a", {core: {2: str(core)} for core in range(4)}, {1: "0-1", 0: "2-3"}))
    assert found.domains == ({0, 1}, {2, 3})
    assert cores(made_up(tmp_path / "b", {0: {3: "0-1"}, 1: {3: "0-1"}, 2: {}}, {0: "0-2"})).domains == ({0, 1, 2},)


@pytest.mark.parametrize("text", ["", "0-", "x", "1-3-", "0-3\0"])
def test_what_cannot_be_read_is_not_told(tmp_path: Path, text: str) -> None:
    assert cores(made_up(tmp_path / "a", {0: {3: text}}, {0: text})) == Cores((), {})
    assert cores(tmp_path / "nothing") == Cores((), {})


def test_cores_that_are_off_are_in_no_domain(tmp_path: Path) -> None:
    found = cores(made_up(tmp_path, {core: {3: "2-3"} for core in (2, 3)}, online="2-3"))
    assert found.domains == ({2, 3},)


def test_this_process_is_where_it_may_run(tmp_path: Path) -> None:
    mine = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    system = made_up(
        tmp_path / "a", {core: {3: mine} for core in os.sched_getaffinity(0)}, {3: mine, 4: "4000-4001"}, online=mine
    )
    assert (domain_here(system), node_here(system)) == (0, 3)
    assert node_here(made_up(tmp_path / "b", {0: {}}, {0: mine})) == -1  # one node: memory is near anyway


def test_the_cards_of_ranks_make_domains() -> None:
    card = Card(0, "host", 4711, "boot", "net", "@a")
    cards = [card._replace(domain=domain) for domain in (3, 3, 0, 0, 3, 3)]
    assert domains(cards, [0] * 6) == [0, 0, 1, 1, 0, 0]
    assert domains(cards, [0, 0, 0, 1, 1, 1]) == [0, 0, 1, 2, 3, 3]
    cards[0] = card._replace(domain=-1)
    assert domains(cards, [0, 0, 0, 1, 1, 1]) == [0, 0, 0, 1, 2, 2]  # one that may be anywhere: its host is not divided
    assert Card.unpack(cards[1].pack()) == cards[1]


def policy(fd: int) -> tuple[int, int]:
    """The memory policy of a file, as a mapping of one's own shows it: its mode, and the nodes as bits."""
    with mmap.mmap(fd, mmap.PAGESIZE) as memory:
        mode, nodes, first = ctypes.c_int(-1), (ctypes.c_ulong * 16)(), ctypes.c_char.from_buffer(memory)
        number, here = GET_MEMPOLICY[platform.machine()], ctypes.c_void_p(ctypes.addressof(first))
        of_address = 2
        failed = ctypes.CDLL(None).syscall(number, ctypes.byref(mode), nodes, ctypes.c_ulong(1024), here, of_address)
        del first
    assert not failed
    return mode.value, nodes[0]


def test_an_outbox_is_of_the_node_that_its_rank_is_bound_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for node, wanted in ((-1, (0, 0)), (0, (PREFERRED, 1))):
        monkeypatch.setattr("hocket.run.native.node_here", lambda node=node: node)
        fd = create_outbox(2)
        try:
            assert policy(fd) == wanted
        finally:
            os.close(fd)


def test_a_node_that_is_not_there_is_refused() -> None:
    fd = os.memfd_create("test")
    try:
        os.ftruncate(fd, mmap.PAGESIZE)
        assert [prefer_node(fd, mmap.PAGESIZE, node) for node in (-1, 0, 1000, 1 << 20)] == [False, True, False, False]
        assert policy(fd) == (PREFERRED, 1)
    finally:
        os.close(fd)
    assert not prefer_node(fd, mmap.PAGESIZE, 0)


JOB = """
import os
import numpy as np
from hocket.rendezvous import doors
from hocket.tuning import choose
rank = int(os.environ["RANK"])
doors.domain_here = lambda: rank // 2
choose.ENOUGH = 2
import hocket
with hocket.init() as group:
    x = np.random.default_rng(rank).standard_normal(100_000).astype(np.float32)
    assert group.topology.places == (0, 0, 0, 0) and group.topology.parts == (0, 0, 1, 1), group.topology
    wanted = group.all_reduce(x, algorithm="two_shot")
    taken = choose.choose("all_reduce", x.nbytes, 4, group.topology)
    assert (taken.algorithm, "2 cache domains" in taken.reason) == ("hierarchical_chain", True), taken
    assert group.all_reduce(x).tobytes() == wanted.tobytes()
    assert np.allclose(group.all_reduce(x, algorithm="hierarchical", order="any"), wanted, atol=1e-5)
    for algorithm in (None, "direct", "hierarchical"):
        assert np.array_equal(group.all_gather(x, algorithm=algorithm), group.all_gather(x, algorithm="ring"))
    part = group.subgroup([1, 2, 3])
    if part:
        assert part.topology.parts == (0, 1, 1), part.topology
    print("done")
"""


def test_ranks_in_two_domains_go_by_them(hocket: Hocket, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    assert hocket.run("run", "-n", "4", str(tmp_path / "job.py")).stdout.split() == ["done"] * 4
