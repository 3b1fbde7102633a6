"""What `algorithm=None` means never shows in the bits: docs/decisions/0004."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial, reduce
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.check import check
from hocket.plans.collectives import find
from hocket.plans.interpret import interpret
from hocket.plans.lower import NotInPlace, breadth, lower, only_round
from hocket.plans.program import NOTHING
from hocket.tuning.choose import choose, segment_bytes, slots_bytes, writers
from hocket.tuning.topology import ANY_HOST, Host, Topology, cache_bytes

COLLECTIVES = sorted({collective for collective, _ in ALGORITHMS})


def arrangements(size: int) -> list[list[int]]:
    """On one host, on two and three in blocks and in turns, and all but one on one."""
    blocks = [[rank * hosts // size for rank in range(size)] for hosts in (1, 2, 3)]
    return [*blocks, *([rank % hosts for rank in range(size)] for hosts in (2, 3)), [0] * (size - 1) + [1]]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_choice_keeps_the_order_of_ranks_for_every_size(collective: str) -> None:
    for size in (1, 2, 3, 4, 5, 8, 16, 33):
        for places in arrangements(size):
            for name in chosen(collective, places):
                facts = check(plan(collective, name, size, places=tuple(places)))
                assert facts.same_everywhere, (name, places)
                assert facts.rank_order or not find(collective).reduces, (name, places)
                assert facts.size_invariant or not find(collective).reduces, (name, places)


def chosen(collective: str, places: list[int], domains: Sequence[int] = ()) -> set[str]:
    """What is chosen for vectors of all sizes."""
    sizes, topology = (0, 1, *(1 << bit for bit in range(1, 36))), Topology.of(places, domains=domains)
    return {choose(collective, nbytes, len(places), topology).algorithm for nbytes in sizes}


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_within_a_host_the_choice_keeps_the_order_of_ranks_too(collective: str) -> None:
    for size in (8, 9, 16):
        for domains in arrangements(size):
            for name in chosen(collective, [0] * size, domains):
                facts = check(plan(collective, name, size, places=tuple(domains)))
                assert facts.same_everywhere, (name, domains)
                assert facts.rank_order or not find(collective).reduces, (name, domains)


def test_a_host_is_divided_where_each_domain_has_enough_ranks() -> None:
    for collective in COLLECTIVES:
        alone = chosen(collective, [0] * 8)
        assert not alone & {"hierarchical", "hierarchical_chain"}
        assert chosen(collective, [0] * 8, [0] * 8) == alone
        assert chosen(collective, [0] * 8, [0] * 5 + [1] * 3) == alone
        assert chosen(collective, [0] * 8, [0, 1] * 4) == alone  # which would change the order
        divided = alone | {"hierarchical_chain"} if collective == "all_reduce" else alone
        assert chosen(collective, [0] * 8, [0] * 4 + [1] * 4) == divided
        # Between hosts the hosts are what counts, however they are divided.
        apart = [0] * 4 + [1] * 4
        assert chosen(collective, apart, range(8)) == chosen(collective, apart)
    topology = Topology.of([0] * 8, domains=[0] * 4 + [1] * 4)
    assert "over 2 cache domains" in choose("all_reduce", 1 << 30, 8, topology).reason
    assert choose("all_reduce", 1 << 30, 8, topology, one_pass=True).algorithm == "two_shot"


@pytest.mark.parametrize(("name", "moved"), [("two_shot", 8.0), ("hierarchical_chain", 2.0)])
def test_what_moves_between_domains(name: str, moved: float) -> None:
    """In vectors, of an all-reduce of four ranks in each of two: what decision 27 says."""
    domains = np.array([0] * 4 + [1] * 4)
    made = plan("all_reduce", name, 8, places=tuple(domains))
    crossing = sum(int(f.count[domains[f.src_rank] != domains[f.dst_rank]].sum()) for f in made.fronts())
    assert crossing / made.chunks == moved


def test_what_every_pass_rounds_is_folded_in_one() -> None:
    for places in arrangements(8):
        for bit in range(36):
            taken = choose("all_reduce", 1 << bit, 8, Topology.of(places), one_pass=True).algorithm
            assert taken in ("one_shot", "two_shot"), (places, bit)
            for scan in ("scan", "exscan"):
                assert choose(scan, 1 << bit, 8, Topology.of(places), one_pass=True).algorithm == "direct"


def test_the_choice_does_not_show_in_the_bits() -> None:
    """Wherever the ranks lie and however long the vector, they are those of a sum from the first rank to the last."""
    seen = set()
    for size in (2, 3, 4, 5, 8, 16):
        arrays = [np.random.default_rng(rank).standard_normal(99).astype(np.float32) for rank in range(size)]
        wanted = reduce(np.add, arrays)
        for places in arrangements(size):
            for name in chosen("all_reduce", places):
                seen.add(name)
                for got in interpret(plan("all_reduce", name, size, places=tuple(places)), arrays, np.add):
                    assert got is not None
                    assert got.tobytes() == wanted.tobytes(), (name, places)
    assert seen == {"one_shot", "two_shot", "hierarchical_chain"}


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
        assert 0 < segment_bytes(2, host) <= slots_bytes(2, host) // 2
        assert segment_bytes(2, host) % 64 == 0  # so that no element is cut


def test_a_step_fits_into_the_slots_of_any_host() -> None:
    """One message of it may leave the end of the ring unused, where it does not fit there."""
    for l2 in (0, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 64 << 20):
        host = Host(cores=4, l2=l2, memory=1 << 30)
        for broad, size in product((1, 2, 3, 5, 7, 63, 1000, 4096), (2, 8)):
            bytes_of = partial(segment_bytes, size, host)
            usual, exchanged = bytes_of(broad), bytes_of(broad, exchange=True)
            rooted = [bytes_of(broad, rooted=nbytes) for nbytes in (1, 256 << 10, 1 << 20, 1 << 40)]
            assert 0 < rooted[0] <= rooted[1] <= rooted[2] <= rooted[3] == usual <= exchanged
            assert usual <= bytes_of()
            assert exchanged <= bytes_of(exchange=True)
            for segment in (usual, exchanged, *rooted):
                assert segment % 64 == 0
                assert (broad + 1) * segment <= slots_bytes(size, host)


def kib(sizes: Iterable[int]) -> list[int]:
    return [size >> 10 for size in sizes]


def test_what_is_exchanged_goes_in_longer_messages_and_what_has_a_root_in_shorter_ones() -> None:
    host, vectors = Host(cores=4, l2=1 << 20, memory=1 << 30), [n << 10 for n in (1, 64, 256, 512, 1024, 4096)]
    assert segment_bytes(2, host) == 128 << 10
    assert kib(segment_bytes(2, host, broad, exchange=True) for broad in (1, 2, 3, 4)) == [256, 128, 128, 128]
    assert kib(segment_bytes(2, host, rooted=nbytes) for nbytes in vectors) == [32, 32, 32, 64, 128, 128]
    assert kib(segment_bytes(2, host, rooted=nbytes, copied=True) for nbytes in vectors) == [128] * 6


def test_where_the_second_level_cache_is_large_slots_are_few_and_messages_short() -> None:
    host, vectors = Host(cores=4, l2=2 << 20, memory=1 << 30), [n << 10 for n in (1, 64, 256, 512, 1024, 4096)]
    assert kib(slots_bytes(2, host._replace(l2=size << 10)) for size in (256, 512, 1024, 2048)) == [512, 512, 1024, 512]
    assert kib(slots_bytes(size, host) for size in (1, 4, 5, 64)) == [512, 512, 1024, 1024]
    assert kib(segment_bytes(size, host) for size in (1, 4, 5, 64)) == [64, 64, 128, 128]
    assert kib(segment_bytes(2, host, broad, exchange=True) for broad in (1, 2, 3, 4)) == [256, 128, 85, 64]
    assert kib(segment_bytes(size, host, lent=True) for size in (1, 2, 3, 4)) == [64, 32, 64, 64]
    smaller = [host._replace(l2=size << 10) for size in (256, 512, 1024)]
    assert kib(segment_bytes(2, each, lent=True) for each in smaller) == kib(segment_bytes(2, each) for each in smaller)
    for copied, wanted in ((False, [16, 16, 16, 64, 64, 64]), (True, [16, 16, 64, 64, 64, 64])):
        assert kib(segment_bytes(2, host, rooted=nbytes, copied=copied) for nbytes in vectors) == wanted
        assert kib(segment_bytes(4, host, rooted=nbytes, copied=copied) for nbytes in vectors) == [
            16,
            16,
            32,
            64,
            64,
            64,
        ]


def test_two_ranks_both_lend_or_neither() -> None:
    """By which they choose how long messages are, whether or not either of them works in place."""
    lent = set()
    for collective, name in ALGORITHMS:
        for spans, places in product((False, True), ((0, 0), (0, 1))):
            homes = set()
            with suppress(ValueError):  # not for two ranks
                value = plan(collective, name, 2, places=places)
                for rank, in_place in product(range(2), (False, True)):
                    with suppress(NotInPlace):
                        sends = lower(value, rank, in_place=in_place, spans=spans).sends
                        homes.add(any(send.home != NOTHING for send in sends))
            assert len(homes) < 2, (collective, name, spans)
            lent |= {name} if True in homes else set()
    assert {"two_shot", "ring"} <= lent


def test_with_a_large_second_level_cache_two_ranks_make_more_in_one_round() -> None:
    for l2, limit in ((512 << 10, 2 << 10), (1 << 20, 2 << 10), (2 << 20, 4 << 10)):
        topology = Topology((0,) * 2, Host(cores=2, l2=l2, memory=1 << 30))
        taken = [choose("all_reduce", nbytes, 2, topology).algorithm for nbytes in (limit, limit + 1)]
        assert taken == ["one_shot", "two_shot"], l2


def test_messages_of_several_hosts_are_long() -> None:
    assert (slots_bytes(2, ANY_HOST), segment_bytes(2, ANY_HOST)) == (2 << 20, 256 << 10)


@pytest.mark.parametrize("key", sorted(ALGORITHMS), ids="-".join)
def test_a_step_is_as_broad_as_its_broadest_share(key: tuple[str, str]) -> None:
    for size in (1, 2, 3, 4, 5, 8):
        for places in [(0,) * size, tuple(arrangements(size)[-2])]:
            try:
                value = plan(*key, size, places=places)
            except ValueError:  # not for this size
                continue
            for spans in (False, True):
                shares = [lower(value, rank, spans=spans) for rank in range(size)]
                steps = [Counter(send.step for send in share.sends) for share in shares]
                assert breadth(value, spans=spans) == max(1, *(n for step in steps for n in step.values()), 1)


@pytest.mark.parametrize("key", sorted(ALGORITHMS), ids="-".join)
def test_the_only_round_is_told_by_what_ranks_send_and_fold(key: tuple[str, str]) -> None:
    for size in (1, 2, 3, 4, 5, 8):
        try:
            value = plan(*key, size)
        except ValueError:  # not for this size
            continue
        shares = [lower(value, rank) for rank in range(size)]
        sent = {
            (send.step, rank, peer) for rank, share in enumerate(shares) for send in share.sends for peer in send.peers
        }
        found = only_round(value)
        assert (found is None) == (len({step for step, _, _ in sent}) != 1)
        if found is not None:
            assert found.both == any((step, peer, rank) in sent for step, rank, peer in sent)
            folds = any(len(each.sources) > 1 for share in shares for each in share.receives)
            assert folds or not found.folded  # what is copied first and folded within a rank is not meant
            chunks: Counter[tuple[int, int]] = Counter()
            for rank, share in enumerate(shares):
                for send in share.sends:
                    chunks.update({(rank, peer): send.span.chunks for peer in send.peers})
            assert found.part == (max(chunks.values()) < value.chunks)
            assert found.receivers == tuple(sorted({peer for _, _, peer in sent}))


def test_who_shares_a_cache_is_of_its_domain_or_else_of_its_host() -> None:
    hosts, parted = Topology.of([0, 1, 0, 1, 0]), Topology.of([0] * 6, domains=[0, 0, 1, 1, 0, 2])
    assert [writers(hosts, rank, range(5)) for rank in range(5)] == [3, 2, 3, 2, 3]
    assert [writers(parted, rank, range(6)) for rank in range(6)] == [3, 3, 2, 2, 3, 1]
    assert [writers(parted, rank, (0, 3, 4)) for rank in range(6)] == [2, 2, 1, 1, 2, 1]
    assert writers(hosts, 0, ()) == 1
    assert writers(Topology.of([0] * 64), 5, range(64)) == 8  # they may be anywhere: not all share one


def test_only_rounds() -> None:
    everyone = (0, 1, 2, 3)
    assert only_round(plan("broadcast", "direct", 4, root=1)) == (False, False, False, (0, 2, 3))
    assert only_round(plan("reduce", "direct", 4)) == (False, True, False, (0,))
    assert only_round(plan("gather", "direct", 4, root=2)) == (False, False, True, (2,))
    assert only_round(plan("scatter", "direct", 4)) == (False, False, True, (1, 2, 3))
    assert only_round(plan("all_to_all", "direct", 4)) == (True, False, True, everyone)
    assert only_round(plan("reduce_scatter", "direct", 4)) == (True, True, True, everyone)
    assert only_round(plan("all_reduce", "two_shot", 2)) is None


def test_the_choice_says_why() -> None:
    for collective in COLLECTIVES:
        assert choose(collective, 1 << 20, 4).reason
