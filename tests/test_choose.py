"""What `algorithm=None` means never shows in the bits: docs/decisions/0004."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.check import check
from hocket.plans.collectives import find
from hocket.tuning.choose import choose, segment_bytes, slots_bytes
from hocket.tuning.topology import Host, Topology, cache_bytes

COLLECTIVES = sorted({collective for collective, _ in ALGORITHMS})


@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_choice_keeps_the_order_of_ranks_for_every_size(collective: str, hosts: int) -> None:
    for size in (1, 2, 3, 4, 5, 8, 16, 33):
        topology = Topology.of([rank % hosts for rank in range(size)])
        for name in {
            choose(collective, nbytes, size, topology).algorithm
            for nbytes in (0, 1, *(1 << bit for bit in range(1, 36)))
        }:
            facts = check(plan(collective, name, size))
            assert facts.same_everywhere, (name, size)
            assert facts.rank_order or not find(collective).reduces, (name, size)
            assert facts.size_invariant or not find(collective).reduces, (name, size)


def test_caches_are_read_as_sysfs_writes_them(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "1024K"), (3, "Unified", "32M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert [cache_bytes(tmp_path, level) for level in (1, 2, 3, 4)] == [48 << 10, 1 << 20, 32 << 20, 0]
    assert cache_bytes(tmp_path / "nowhere", 2) == 0


def test_messages_fit_into_the_slots_of_any_host() -> None:
    for l2 in (0, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 64 << 20):
        host = Host(cores=4, l2=l2, memory=1 << 30)
        assert 0 < segment_bytes(host) <= slots_bytes(host) // 2
        assert segment_bytes(host) % 64 == 0  # so that no element is cut


def test_the_choice_says_why() -> None:
    for collective in COLLECTIVES:
        assert choose(collective, 1 << 20, 4).reason
