"""The simulator says what an event-by-event model says that was written without looking at it, and what can be worked
out on paper."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from by_events import by_events

from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.collectives import find
from hocket.plans.plan import Front, Plan, Steps, copy, inp, out, reduce
from hocket.plans.turn import turned
from hocket.tuning import simulate as simulated
from hocket.tuning.cluster import Cluster
from hocket.tuning.simulate import PARTS, Simulated, simulate
from hocket.tuning.spec import cluster

SEED = random.randrange(1 << 30)
CLUSTERS = (
    "flat:x8",
    "flat:x3,nics=rank,cores=2,send=1us,shm=20GB/s:4KiB:5GB/s",
    "fat-tree:x2,leaf=3,oversubscription=4",
    "rail:x4,oversubscription=3,hop=1us",
    "ring:x1",
)
SIZED = {
    12: ("torus:2x3,ranks=2", "wan:3x2x2", "torus:3x4"),
    64: ("torus:4x4x4", "wan:2x4x8,distance=1ms"),
}


def agree(made: Plan, nbytes: int, where: Cluster, segments: int = 1) -> None:
    got, told = simulate(made, nbytes, where, segments), by_events(made, nbytes, where, segments)
    assert got.seconds == pytest.approx(told["seconds"], rel=1e-12)
    assert got.parts == pytest.approx(told["parts"], rel=1e-9, abs=1e-12)
    assert sum(got.parts) == pytest.approx(got.seconds, rel=1e-12)
    assert got.bytes_per_rank == pytest.approx(told["bytes_per_rank"], rel=1e-12)
    assert [(hop.src, hop.dst) for hop in got.path] == told["path"]
    assert got.messages == len(told["path"])


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS, ids=["-".join(name) for name in ALGORITHMS])
def test_every_algorithm_takes_what_it_takes_event_by_event(collective: str, algorithm: str) -> None:
    rng = random.Random(f"{SEED} {collective} {algorithm}")
    print("seed", SEED)
    for n in (1, 2, 7, 12, rng.randrange(3, 24), 64):
        for text in rng.sample((*CLUSTERS, *SIZED.get(n, ())), 2 if n < 64 else 1):
            where = cluster(text, n)
            if rng.random() < 0.5:
                where = where.slowed(f"rank={rng.randrange(n)}:{rng.randrange(2, 9)}x").slowed("host=0:1.5x")
            root = rng.randrange(n) if find(collective).rooted else 0
            made = plan(collective, algorithm, n, root, where.places)
            nbytes = rng.choice((0, 1, 1000, 1 << 20, rng.randrange(1 << 30)))
            print(made, text, where.slow, nbytes)
            agree(made, nbytes, where, rng.choice((1, 1, 2, 5)))


# ---- what is not gone through step by step ----


def both_ways(n: int) -> Steps:
    """A ring whose chunks go round both ways: each rank gets two messages in a step."""
    c = np.arange(n)
    right = reduce(out((c + 1) % n, c), out(c, c))
    left = reduce(out((c - 1) % n, c + n), out(c, c + n))
    for hop in range(2 * n):
        yield (
            (turned(right, hop, n), turned(left, -hop, n)) if hop % 5 == 4 else turned(right if hop % 2 else left, 0, n)
        )


def lopsided(n: int) -> Steps:
    """Turns of a front that is not the same from every rank."""
    front = copy(out(np.arange(1, n)), inp(0))
    for hop in range(2 * n):
        yield turned(front, hop, n)


def stays(n: int) -> Steps:
    """The same front, the very same, again and again."""
    front = copy(out(np.arange(1, n)), inp(np.arange(n - 1)))
    for _ in range(3 * n):
        yield front


CIRCLES = [(name, function) for name, function in ALGORITHMS.items() if name[1] == "ring"] + [
    (("all_reduce", function.__name__), function) for function in (both_ways, lopsided, stays)
]


@pytest.mark.parametrize(("name", "function"), CIRCLES, ids=lambda x: "-".join(x) if isinstance(x, tuple) else "")
@pytest.mark.parametrize("segments", [1, 3])
def test_leaps_land_where_steps_do(
    name: tuple[str, str], function: object, segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(SEED)
    print("seed", SEED)
    for n in (2, 3, 19):
        for text in ("flat:x8", "flat:x1,send=20us", "ring:x2"):
            where = cluster(text, n)
            for _ in range(rng.randrange(3)):
                where = where.slowed(f"rank={rng.randrange(n)}:{rng.choice((1.1, 3, 500))}x")
            made = plan(name[0], function, n)  # type: ignore[arg-type]
            agree(made, 1 << 20, where, segments)
            leapt = simulate(made, 1 << 20, where, segments)
            with monkeypatch.context() as patch:
                patch.setattr(simulated, "_lasting", lambda *_: 0)
                assert simulate(made, 1 << 20, where, segments) == leapt


def test_a_ring_of_thousands_is_leapt_over(monkeypatch: pytest.MonkeyPatch) -> None:
    n, steps = 16384, list[int]()
    step = simulated._Ranks._step
    monkeypatch.setattr(simulated._Ranks, "_step", lambda self, costed: steps.append(1) or step(self, costed))
    took = simulate(plan("all_reduce", "ring", n), 1 << 30, cluster("fat-tree:x8,oversubscription=2", n))
    assert len(steps) < 100
    assert (took.rounds, took.steps, took.messages) == (2 * n - 2, 2 * n - 2, len(took.path))
    assert took.bytes_per_rank == pytest.approx(2 * (n - 1) / n * 2**30, rel=1e-12)


def test_what_is_kept_for_the_path_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made, where = plan("all_reduce", "recursive_doubling", 64), cluster("8x8")
    whole = simulate(made, 1 << 20, where)
    monkeypatch.setattr(simulated, "MOST_KEPT", 2000)
    short = simulate(made, 1 << 20, where)
    assert 0 < len(short.path) < len(whole.path) == whole.messages == short.messages
    assert whole.path[-len(short.path) :] == short.path
    assert replace(whole, path=()) == replace(short, path=())


def test_a_turn_is_the_front_that_it_says() -> None:
    front = reduce(out(np.array([1, 3]), 2, 2), inp(np.array([0, 2]), 2, 2))
    turn = turned(front, 3, 4)
    assert str(turn) == "r0.out[2:4] += r3.inp[2:4]  r2.out[2:4] += r1.inp[2:4]"
    assert (len(turn), turn.is_sound(), turn.base) == (2, True, front)
    assert turned(Front(*(x[:1] for x in front.columns())), 4, 4).columns()[2].tolist() == [1]


# ---- on paper ----

BARE = "alpha=10us,hop=0s,local=1us,send=1us,receive=2us,nic=1GB/s,shm=2GB/s,memory=inf,reduce=4GB/s"


def paper(collective: str, algorithm: str, n: int, nbytes: int, text: str) -> Simulated:
    return simulate(plan(collective, algorithm, n), nbytes, cluster(text, n))


def test_one_message() -> None:
    took = paper("broadcast", "direct", 2, 1_000_000, f"2x1,{BARE}")
    assert took.seconds == pytest.approx(1e-6 + 10e-6 + 1e-3 + 2e-6, abs=1e-11)
    assert dict(zip(PARTS, took.parts, strict=True)) == pytest.approx(
        {"latency": 10e-6, "bandwidth": 1e-3, "processor": 3e-6, "reduction": 0}, abs=1e-11
    )
    assert [(hop.src, hop.dst, hop.link) for hop in took.path] == [(0, 1, "NIC of host 0, out")]


def test_links_are_shared_and_messages_posted_one_by_one() -> None:
    took = paper("broadcast", "direct", 4, 1_000_000, f"4x1,{BARE}")
    assert took.seconds == pytest.approx(3e-6 + 10e-6 + 3e-3 + 2e-6, abs=1e-11)


def test_a_binomial_tree_takes_logarithmically_many_messages() -> None:
    took = paper("broadcast", "binomial_tree", 64, 1_000_000, f"64x1,{BARE}")
    assert took.seconds == pytest.approx(6 * (1e-6 + 10e-6 + 1e-3 + 2e-6), abs=1e-10)


def test_a_ring_is_bound_by_alpha_beta_and_gamma() -> None:
    n, size = 8, 8_000_000
    took = paper("all_reduce", "ring", n, size, f"8x1,{BARE}")
    one = 13e-6 + size / n * 1e-9
    assert took.seconds == pytest.approx(2 * (n - 1) * one + (n - 1) * size / n / 4e9, abs=1e-9)


def test_segments_follow_each_other_through_a_chain() -> None:
    n, size, k = 8, 8_000_000, 4
    made = plan("scan", "chain", n)
    took = simulate(made, size, cluster(f"8x1,{BARE}".replace("4GB/s", "inf")), k)
    assert took.seconds == pytest.approx((n - 1 + k - 1) * (13e-6 + size / k * 1e-9), rel=0.01)
    assert took.seconds < 0.5 * simulate(made, size, cluster(f"8x1,{BARE}")).seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (f"1x2,{BARE}", 4e-6 + 0.5),
        (
            f"1x2,{BARE}".replace("shm=2GB/s", "shm=2GB/s:500MiB:1GB/s"),
            4e-6 + 500 * 2**20 * 0.5e-9 + (1e9 - 500 * 2**20) * 1e-9,
        ),
        (f"1x2,{BARE},cores=1", 1e-6 + 2 * 3e-6 + 1.0),
        (f"fat-tree:2x1,leaf=1,oversubscription=4,{BARE}", 13e-6 + 4),
        (f"wan:2x1x1,between=8Gbit/s,distance=1s,{BARE}", 13e-6 + 1 + 1),
    ],
)
def test_a_gigabyte(text: str, seconds: float) -> None:
    took = paper("broadcast", "direct", 2, 10**9, text)
    assert took.seconds == pytest.approx(seconds, abs=1e-9)


# ---- what is slow, and what is cut ----


def test_a_slow_rank_makes_all_slow() -> None:
    made, where = plan("all_reduce", "ring", 16), cluster("2x8")
    assert simulate(made, 1 << 20, where.slowed("rank=5:4x")).seconds > 1.5 * simulate(made, 1 << 20, where).seconds
    assert simulate(made, 1 << 20, where.slowed("host=1:50x")).path[-1].link.startswith("NIC of host")


def test_what_is_cut_is_gone_round_or_told() -> None:
    def took(text: str, *cuts: str, ranks: int = 12, algorithm: str = "ring") -> Simulated:
        where = cluster(text, ranks)
        for cut in cuts:
            where = where.without(cut)
        return simulate(plan("all_reduce", algorithm, ranks), 12 << 20, where)

    whole = took("ring:x1")
    round_ = took("ring:x1", "link=3-4")
    assert round_.seconds > whole.seconds
    assert max(round_.parts[0], whole.parts[0]) == round_.parts[0] > whole.parts[0]
    with pytest.raises(ValueError, match="there is no way from host 3 to host 4 any more"):
        took("ring:x1", "link=3-4", "link=9-10")
    assert took("torus:3x4", "link=0-1", "link=0-4", "link=0-3").seconds > took("torus:3x4").seconds
    with pytest.raises(ValueError, match="rank 7 cannot be reached from other hosts: its NIC is cut"):
        took("3x4", "nic=1")
    assert took("3x4,nics=rank", "nic=3").seconds == took("3x4,nics=rank").seconds  # the next NIC is as good
    assert took("rail:3x4,oversubscription=2", "nic=3").seconds > took("rail:3x4").seconds
    assert took("wan:3x2x2", "site=0-1").parts[0] > took("wan:3x2x2").parts[0] + 9e-3
    with pytest.raises(ValueError, match="no way from site 0 to site 1"):
        took("wan:3x2x2", "site=0-1", "site=0-2")


def test_bad_input_is_told() -> None:
    made = plan("all_reduce", "ring", 4)
    with pytest.raises(ValueError, match="is for 4 ranks, and the cluster has 8"):
        simulate(made, 1, cluster("1x8"))
    for nbytes, segments in ((-1, 1), (1, 0)):
        with pytest.raises(ValueError, match="0 bytes or more and 1 segment or more"):
            simulate(made, nbytes, cluster("1x4"), segments)
    beyond = plan("all_reduce", lambda n: [copy(out(n), inp(0))], 4)
    with pytest.raises(ValueError, match="a move names a rank that is none of 0 to 3"):
        simulate(beyond, 1, cluster("1x4"))


def test_nothing_takes_no_time() -> None:
    for made in (plan("all_reduce", "ring", 1), plan("broadcast", lambda n: [], 3)):
        took = simulate(made, 1 << 20, cluster("1x3" if made.size == 3 else "1x1"))
        assert (took.seconds, took.messages, took.rounds, took.path) == (0, 0, 0, ())
