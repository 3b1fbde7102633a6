"""What is found keeps its promise by another road than the proof, and is best where that is known on paper."""

from __future__ import annotations

import json
import random
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest

from hocket import interpret
from hocket.plans.algorithms import make, plan
from hocket.plans.authored import authored
from hocket.plans.bounds import certificate, least_rounds
from hocket.plans.check import check
from hocket.plans.plan import Column, Plan
from hocket.search import save
from hocket.search.candidates import COLLECTIVES, ROOTED, Candidate, betweens, exchanges, factorisations, of, spreads
from hocket.search.distances import apart, nearest_first, tour
from hocket.search.search import Entry, search, shipped
from hocket.search.spreads import along, grid, hops, knomial, named, split, steps
from hocket.search.synthesis import greedy, symmetric
from hocket.tuning.cluster import Cluster
from hocket.tuning.simulate import simulate
from hocket.tuning.spec import cluster
from worlds import Worlds

SEED = random.randrange(1 << 30)
PLENTY = 60.0  # seconds, so that no search is cut short and each finds the same on every machine


def right(made: Plan) -> None:
    """By interpreting it on random integers, beside what NumPy says."""
    n, rng = made.size, np.random.default_rng(SEED)
    x = rng.integers(-99, 99, (n, 3 * made.chunks + n))  # chunks that differ in size
    cuts = [round(x.shape[1] * r / n) for r in range(n + 1)]
    total = x.sum(axis=0)
    if made.collective == "all_gather":
        whole = np.concatenate([x[r, : r + 2] for r in range(n)])
        wanted = [whole] * n
        got = interpret(made, [x[r, : r + 2] for r in range(n)])
    elif made.collective == "reduce_scatter":
        sizes = np.diff(cuts)
        wanted = [total[a:b] for a, b in pairwise(cuts)]
        got = interpret(made, list(x), np.add, sizes=list(sizes))
    else:
        wanted = {"all_reduce": [total] * n, "broadcast": [x[0]] * n, "reduce": [total] + [None] * (n - 1)}[
            made.collective
        ]
        got = interpret(made, list(x), np.add)
    for each, should in zip(got, wanted, strict=True):
        assert (each is None) == (should is None)
        assert each is None or np.array_equal(each, should)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_whatever_is_looked_at_keeps_its_promise(collective: str) -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    for text, n in (("2x1", 2), ("ring:3x1", 3), ("wan:2x1x3", 6), ("torus:2x4", 8)):
        took = apart(cluster(text), 1000)
        every = [of(collective, spread, spread) for spread in spreads(collective, n, took)]
        if collective == "all_reduce":
            every += [*exchanges(n, took), *betweens(n)]
        for candidate in rng.sample(every, min(len(every), 25)):
            some = rng.choice((candidate, candidate.in_segments(3)))
            print(n, some.code)
            made = some.plan()
            check(made)
            right(made)


def test_sums_go_up_one_way_and_down_another() -> None:
    ring, far = hops(6, [[-1]] * 5), grid([hops(2, [[1]]), hops(3, [[1, 2]])], [1, 0])
    order = random.Random(SEED).sample(range(6), 6)
    print("seed", SEED, order)
    for up, down in ((ring, far), (far, named(ring, order)), (split(ring, far), split(named(far, order), ring))):
        right(of("all_reduce", up, down).plan())
    with pytest.raises(ValueError, match="do not end where they are spread from"):
        of("all_reduce", ring, knomial(6, 2)).plan()
    with pytest.raises(ValueError, match="equally many chunks"):
        split(ring, knomial(6, 2))


def test_segments_are_what_the_simulator_means_by_them() -> None:
    """Where no two of them meet between the same ranks, a plan in segments takes what the simulator says of it."""
    where, chain = cluster("8x1"), of("broadcast", *[named(along(8, [(r, r + 1) for r in range(7)]), range(8))] * 2)
    for segments in (1, 2, 5):
        alone = chain.in_segments(segments).plan()
        assert alone.chunks == segments
        assert (
            simulate(alone, 1 << 20, where).seconds == simulate(chain.plan(), 1 << 20, where, segments=segments).seconds
        )


# ---- what is known on paper ----


@pytest.mark.parametrize(("rounds", "name"), [([[-1]] * 5, "ring"), ([[1], [2], [4]], "bruck")])
def test_hops_send_what_algorithms_of_the_book_send(rounds: list[list[int]], name: str) -> None:
    made = hops(6, rounds)
    for mine, front in zip(made.steps, plan("all_gather", name, 6).fronts(), strict=True):
        _, book = front.singles()
        assert moves(*mine) == moves(book.src_rank, book.dst_rank, book.src_chunk)


def moves(*columns: Column) -> list[tuple[int, ...]]:
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 8])
def test_a_synthesised_all_gather_reaches_both_bounds(n: int) -> None:
    where = cluster(f"{n}x1,alpha=1s")  # rounds are all that counts
    made = next(symmetric(n, lambda spread: simulate(of("all_gather", spread, spread).plan(), n, where).seconds, 1))
    found = of("all_gather", made, made).plan()
    right(found)
    told = certificate(found)
    assert (told.ports, told.is_optimal) == (1, (True, True))
    assert told.rounds == least_rounds(n)


def test_a_greedy_all_gather_goes_only_where_it_may() -> None:
    print("seed", SEED)
    took = apart(cluster("ring:6x1"), 1000)
    near = took[0, 1]
    made = greedy(took, near, 1, random.Random(SEED))
    assert made is not None
    for src, dst, _ in made.steps:
        assert set(((dst - src) % 6).tolist()) <= {1, 5}
    right(of("all_gather", made, made).plan())
    assert greedy(took, near / 2, 1, random.Random(SEED)) is None


def mesh(folder: Path, slow: set[tuple[int, int]]) -> Cluster:
    """Sites of one rank, each pair with a link of 1 Gbit/s, or of 10 Mbit/s where it is slow."""
    rows = [
        ["inf" if a == b else "10Mbit/s" if (min(a, b), max(a, b)) in slow else "1Gbit/s" for b in range(4)]
        for a in range(4)
    ]
    (folder / "mesh.json").write_text(
        json.dumps({"kind": "wan", "shape": "4x1x1", "rates": rows, "distance": "1us", "nic": "100Gbit/s"})
    )
    return cluster(str(folder / "mesh.json"))


def pairs(made: Plan) -> set[tuple[int, int]]:
    return {
        (min(a, b), max(a, b))
        for f in made.fronts()
        for a, b in zip(f.src_rank.tolist(), f.dst_rank.tolist(), strict=True)
    }


def test_the_slow_link_of_a_ring_is_avoided(tmp_path: Path) -> None:
    """Of six links one is slow, and a ring needs four: the order of ranks goes round it."""
    slow = {(0, 1)}
    where = mesh(tmp_path, slow)
    order = tour(apart(where, 1 << 18))
    assert slow.isdisjoint({(min(a, b), max(a, b)) for a, b in zip(order, order[1:] + order[:1], strict=True)})
    got = search("all_gather", 1 << 20, where, seconds=PLENTY)
    assert got.gain > 10
    assert slow.isdisjoint(pairs(got.found[0].plan))
    by_hand = min(
        simulate(of("all_gather", *[named(hops(4, [[-1]] * 3), order)] * 2).plan(), 1 << 20, where).seconds
        for order in permutations(range(4))
    )
    assert got.found[0].took.seconds <= by_hand


def test_a_tour_of_many_finds_the_circle() -> None:
    print("seed", SEED)
    n, rng = 12, random.Random(SEED)
    at = rng.sample(range(n), n)
    took = np.array([[min((a - b) % n, (b - a) % n) for b in at] for a in at], float)
    order = [at[rank] for rank in tour(took)]
    assert sorted(order) == [*range(n)]
    assert sum(took[tour(took)[k], tour(took)[k - 1]] for k in range(n)) <= 1.5 * n


def test_nearest_first_is_a_binomial_tree_where_all_are_equally_near() -> None:
    took = 1.0 - np.eye(8)
    tree = along(8, nearest_first(took, 0))
    assert [len(src) for src, _, _ in tree.steps] == [1, 2, 4]
    with pytest.raises(ValueError, match="no way from rank 0 to rank 1"):
        nearest_first(np.array([[0, np.inf], [np.inf, 0]]), 0)


def test_between_two_sites_each_byte_crosses_once() -> None:
    """1 Gbit/s, 10 ms: within the sites, one exchange, within the sites: what any other takes is twice as long, or
    three times the bytes."""
    where = cluster("wan:2x1x2,between=1Gbit/s")
    got = search("all_reduce", 1 << 20, where, seconds=PLENTY)
    best = got.found[0].plan
    crossing = sum(int(f.count[(f.src_rank < 2) & (f.dst_rank >= 2)].sum()) for f in best.fronts())
    assert crossing == best.chunks  # once there, once back
    flat = simulate(plan("all_reduce", "ring", 4), 1 << 20, where)
    assert got.found[0].took.seconds < flat.seconds / 2
    assert got.gain > 1.2
    right(best)


def test_where_the_shipped_is_best_nothing_is_faster() -> None:
    """Two ranks and a few bytes: one round, and each sends all it has."""
    got = search("all_reduce", 8, cluster("2x1"), seconds=PLENTY)
    assert got.gain <= 1
    assert got.found[0].took.rounds == 1


def test_where_there_is_no_way_nothing_goes(tmp_path: Path) -> None:
    cut = cluster("wan:2x1x2").without("site=0-1")
    got = search("broadcast", 100, cut, seconds=PLENTY)
    assert (got.found, got.shipped) == ([], [])
    where = cluster("4x1").slowed("host=2:3x")
    assert all(np.isfinite(apart(where, 1)).ravel())
    assert np.isinf(apart(cut, 1)).sum() == 8


# ---- the search itself ----


def test_a_seed_finds_the_same_again() -> None:
    print("seed", SEED)
    where = cluster("ring:3x1")
    first, second = (search("all_gather", 4096, where, seconds=60, seed=SEED) for _ in range(2))
    assert first.cut_short == second.cut_short == ()
    assert first.looked_at == second.looked_at
    assert [entry.plan for entry in first.found] == [entry.plan for entry in second.found]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_is_found_is_right_and_is_saved(collective: str, tmp_path: Path) -> None:
    where = cluster("torus:2x2").slowed("rank=3:2x")
    told = list[str]()
    got = search(collective, 1 << 16, where, seconds=PLENTY, report=lambda stage, looked_at, best: told.append(stage))
    assert told[0] == "shapes"
    assert got.shipped == sorted(got.shipped, key=lambda entry: entry.took.seconds)
    for number, entry in enumerate(got.found):
        right(entry.plan)
        file = tmp_path / f"mine_{number}.py"
        file.write_text(save.text(entry, 'About "this"'))
        again = loaded(file, collective, 4)
        assert again == entry.plan
        assert simulate(again, 1 << 16, where) == entry.took
    with pytest.raises(ValueError, match="found is for 4 ranks, not for 5"):
        loaded(file, collective, 5)


def loaded(file: Path, collective: str, n: int) -> Plan:
    function = authored(f"{file}:found")
    assert callable(function)
    return make(collective, "found", function, n, 0)


def test_long_ones_are_saved_in_lines(tmp_path: Path) -> None:
    """Also what is synthesised, and under other names: whose text is long."""
    made = steps(4, [[(0, 1, 0), (2, 3, 2)], [(1, 0, 1), (3, 2, 3)], [(0, 2, 0), (0, 2, 1), (2, 0, 2), (2, 0, 3)],
                     [(0, 1, 2), (0, 1, 3), (2, 3, 0), (2, 3, 1)]])  # fmt: skip
    grids = [named(grid([hops(2, [[1]]), hops(2, [[1]])], order), [3, 1, 0, 2]) for order in ([0, 1], [1, 0])]
    for spread in (made, split(*grids, made, made)):
        candidate: Candidate = of("all_reduce", spread, spread).in_segments(2)
        found = candidate.plan()
        took = simulate(found, 9, cluster("1x4"))
        entry = Entry(candidate.title, found, took, check(found), code=candidate.code)
        (tmp_path / "long.py").write_text(save.text(entry, "long"))
        assert loaded(tmp_path / "long.py", "all_reduce", 4) == entry.plan
        assert max(map(len, (tmp_path / "long.py").read_text().splitlines())) <= 120


def test_shipped_ones_are_cut_as_suits_them() -> None:
    entries = {entry.title: entry for entry in shipped("all_reduce", 1 << 24, cluster("8x1"))}
    (tree,) = (entry for title, entry in entries.items() if title.startswith("double_binary_tree"))
    assert tree.segments > 1
    assert tree.title == f"double_binary_tree, {tree.segments} segments"
    assert tree.took == simulate(tree.plan, 1 << 24, cluster("8x1"), segments=tree.segments)


def test_factorisations() -> None:
    assert factorisations(12) == [(2, 6), (3, 4), (4, 3), (6, 2), (2, 2, 3), (2, 3, 2), (3, 2, 2)]
    assert factorisations(7) == []


def test_mistakes() -> None:
    for arguments, words in (
        (("scan", 8, "4x1"), "searched for all_reduce"),
        (("all_reduce", 8, "1x1"), "2 to 256 ranks, not for 1"),
        (("all_reduce", 8, "1x257"), "2 to 256 ranks, not for 257"),
        (("all_reduce", 0, "4x1"), "at least one byte"),
    ):
        with pytest.raises(ValueError, match=words):
            search(arguments[0], arguments[1], cluster(arguments[2]))
    assert set(ROOTED) < set(COLLECTIVES)


# ---- between real ranks ----


def summed(group: object, file: str) -> None:
    x = np.arange(1000) * (group.rank + 1)  # type: ignore[attr-defined]
    y = group.all_reduce(x, algorithm=authored(f"{file}:found"))  # type: ignore[attr-defined]
    assert np.array_equal(y, np.arange(1000) * 10)


def test_the_saved_file_runs(world: Worlds, tmp_path: Path) -> None:
    got = search("all_reduce", 8000, cluster("ring:4x1"), seconds=PLENTY)
    (tmp_path / "mine.py").write_text(save.text(got.found[0], "Of a test."))
    world(4).run(summed, str(tmp_path / "mine.py"))
