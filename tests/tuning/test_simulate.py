"""The simulator says what an event-by-event model says that was written without looking at it, and what can be worked
out on paper."""

from __future__ import annotations

import random
from collections.abc import Iterator
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
SIZED = {12: ("torus:2x3,ranks=2", "wan:3x2x2", "torus:3x4"), 64: ("torus:4x4x4", "wan:2x4x8,distance=1ms"), 27: ("torus:3x3x3",)}


def agree(made: Plan, nbytes: int, where: Cluster, segments: int = 1) -> None:
    got, told = simulate(made, nbytes, where, segments), by_events(made, nbytes, where, segments)
    assert got.seconds == pytest.approx(told["seconds"], rel=1e-12)
    assert got.parts == pytest.approx(told["parts"], rel=1e-9, abs=1e-12)
    assert sum(got.parts) == pytest.approx(got.seconds, rel=1e-12)
    assert got.bytes_per_rank == pytest.approx(told["bytes_per_rank"], rel=1e-12)
    assert [(hop.src, hop.dst) for hop in got.path] == told["path"]
    assert got.messages == len(told["path"])


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS, ids="-".join)
def test_every_algorithm_takes_what_it_takes_event_by_event(collective: str, algorithm: str) -> None:
    rng = random.Random(f"{SEED} {collective} {algorithm}")
    print("seed", SEED)
    for n in (1, 2, 7, 12, rng.randrange(3, 24), rng.choice((27, 64))):
        for text in rng.sample((*CLUSTERS, *SIZED.get(n, ())), 2):
            where = cluster(text, n)
            if rng.random() < 0.5:
                where = where.slowed(f"rank={rng.randrange(n)}:{rng.randrange(2, 9)}x").slowed("host=0:1.5x")
            root = rng.randrange(n) if find(collective).rooted else 0
            made = plan(collective, algorithm, n, root, where.places)
            nbytes = rng.choice((0, 1, 1000, 1 << 20, rng.randrange(1 << 30)))
            print(made, text, where.slow, nbytes)
            agree(made, nbytes, where, rng.choice((1, 1, 2, 5)))
