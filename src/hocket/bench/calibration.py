"""The calls that `hocket tune` times, in a group whose ranks all measure together, and the profile that comes of them.

A group is in one of three regimes, of which each has costs of its own, since its ranks wait in other ways: on one host,
where each has a core (*near*), or where they share some (*crowded*); or on several hosts (*far*).
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hocket

from ..tuning.calibrate import Point, fitted, predicted
from ..tuning.choose import candidates
from ..tuning.costs import Costs
from ..tuning.predict import cluster_of
from ..tuning.profile import REGIMES, Profile, Regime
from ..tuning.saved import load, save
from ..tuning.topology import KIB, this_host
from .peers.loop import measure
from .peers.with_hocket import Hocket
from .sweep import Effort, task_for

SIZES = (256, 8 * KIB, 64 * KIB, 512 * KIB, 4096 * KIB, 16384 * KIB)
PASSES = 3  # over all calls, so that what disturbs for a while does not disturb all of one
TIMES = 8
EFFORT = Effort(warmup=2, check=0)
LONG = 1024 * KIB  # bytes, from which on fewer calls are enough
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "scan")

GUESS = Costs(
    shm=((64.0 * KIB, 1e-10), (1024.0 * KIB, 1e-10), (4096.0 * KIB, 2e-10), (math.inf, 3e-10)),
    local=1e-6,
    send=3e-7,
    receive=3e-7,
    alpha=2e-5,
    memory=2e-11,
    nic=2e-10,
)
SHARED = ("local", "shm:0", "shm:1", "shm:2", "shm:3")
ALWAYS = ("call", "send", "receive", "reduce")
BETWEEN = ("alpha", "nic")

Told = Callable[[str, int, int], None]


class Part(NamedTuple):
    """What was measured of one regime, and its fit; the same on all ranks, but for `regime`, which rank 0 knows."""

    name: str
    points: list[Point]
    regime: Regime

    def errors(self, cores: int) -> list[float]:
        """Of the fit, for each point: |predicted / measured - 1|, in order."""
        where = cluster_of(Profile(cores), self.points[0].places, self.regime)
        return sorted(abs(predicted(self.regime, point, where) / point.seconds - 1) for point in self.points)


def tune(path: Path, *, keeps: bool, told: Told = lambda *_: None) -> None:
    """Meet the other ranks, measure with them, and write the profile to `path`, where this rank `keeps` it for its
    host; what is there already of other regimes stays. `told` hears what is done, and how much of how much.

    Raises ValueError for a rank that is alone, OSError where the file cannot be written, and what a group raises."""
    cores = this_host().cores
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a file that is to be replaced
        group = hocket.init()
    with group:
        if group.size < 2:
            raise ValueError("one rank has nobody to talk to: hocket run -n 2 ...")
        name = regime_name(group.topology.places, cores)
        points = _times(group, lambda done, of: told(f"measuring ({name})", done, of))
        made = None
        if group.rank == 0:  # the others wait for what it finds
            told(f"fitting ({name})", 0, 1)
            part = Part(name, points, fit_of(name, points, cores))
            made = (Profile(cores, **{name: part.regime}).pack(), part.errors(cores))
        packed, errors = group.broadcast_object(made, root=0, timeout=120.0)
    if not keeps:
        return
    places = Counter(points[0].places)
    fit = {
        "ranks": f"{len(places)}x{max(places.values())}" if len(places) > 1 else str(len(points[0].places)),
        "calls": len(points),
        "median_error": errors[len(errors) // 2],
        "hocket": hocket.__version__,
        "measured": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    profile, fits = Profile.unpack(packed)._replace(cores=cores), {name: fit}
    with suppress(FileNotFoundError, ValueError):  # there is none to be completed
        before = load(path)
        both = {each: getattr(profile, each) or getattr(before.profile, each) for each in REGIMES}
        profile, fits = profile._replace(**both), {**before.told.get("fits", {}), **fits}
    save(path, profile, {"fits": fits})


def regime_name(places: Sequence[int], cores: int) -> str:
    """Which regime ranks at `places` are in."""
    return "far" if len(set(places)) > 1 else "near" if len(places) <= cores else "crowded"


def fit_of(name: str, points: Sequence[Point], cores: int) -> Regime:
    """The costs of a regime, out of what was measured in it."""
    places = points[0].places
    names = (*ALWAYS, *(BETWEEN if name == "far" else ()), *(SHARED if len(places) > len(set(places)) else ()))
    shortest = min(point.seconds for point in points)
    profile = Profile(cores)
    guess = Regime(0.7 * shortest, GUESS)
    return fitted(points, guess, names, lambda point: cluster_of(profile, point.places, guess))


def _times(group: hocket.Group, told: Callable[[int, int], None]) -> list[Point]:
    """What calls of this group take: medians over the passes of the medians of the slowest rank's times."""
    library, topology = Hocket(group), group.topology
    cases = [
        (collective, algorithm, nbytes)
        for nbytes in SIZES
        for collective in COLLECTIVES
        for algorithm in candidates(collective, topology)
        if collective != "scan" or nbytes < LONG
    ]
    samples = [list[float]() for _ in cases]
    for turn in range(PASSES):
        for number, (collective, algorithm, nbytes) in enumerate(cases):
            told(turn * len(cases) + number, PASSES * len(cases))
            times = TIMES if nbytes < LONG else TIMES // 2
            task = task_for(collective, nbytes, group.size, EFFORT, algorithm=algorithm, times=times)
            seconds = group.all_gather(np.array([measure(library, task)["seconds"]])).max(axis=0)
            samples[number].append(statistics.median(seconds.tolist()))
    return [
        Point(collective, algorithm, nbytes, topology.places, statistics.median(found))
        for (collective, algorithm, nbytes), found in zip(cases, samples, strict=True)
    ]
