"""The costs of a cluster out of times that were measured on it.

What is looked for are the numbers of `Costs` with which `simulate` comes nearest to all measured times: of

    sum over points of (log measured - log predicted)^2  +  what keeps a number that no point tells at its guess

the least, by Gauss and Newton, over the logarithms of the costs, so that they stay above zero and a point of 10 µs
counts as much as one of 10 ms. Points that are far off count less (Huber, Ann. Math. Stat. 35, 1964): one call that was
disturbed does not bend the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..plans.algorithms import plan
from .cluster import Cluster
from .profile import Regime
from .simulate import simulate

Vector: TypeAlias = "npt.NDArray[np.float64]"

ROUNDS = 8
HOLD = 0.02  # how much a guess counts, beside a point
FAR_OFF = 0.15  # of the logarithm, from which on a point counts less
STEP = 0.05  # of the logarithm, over which a slope is taken
FASTEST, SLOWEST = -30.0, 2.0  # logarithms of seconds, between which costs lie


class Point(NamedTuple):
    """A time that was measured: seconds of one call for a vector of `nbytes`, by that algorithm, over ranks at
    `places`."""

    collective: str
    algorithm: str
    nbytes: int
    places: tuple[int, ...]
    seconds: float


def predicted(regime: Regime, point: Point, cluster: Cluster) -> float:
    """Seconds that the model says a call takes there. `cluster` has the ranks of the point, and any costs."""
    made = plan(point.collective, point.algorithm, len(point.places), places=point.places)
    return regime.call + simulate(made, point.nbytes, replace(cluster, costs=regime.costs)).seconds


def fitted(
    points: Sequence[Point],
    guess: Regime,
    names: Sequence[str],
    cluster: Callable[[Point], Cluster],
    told: Callable[[], None] = lambda: None,
) -> Regime:
    """The costs that fit `points`, each over its `cluster`: those in `names`, the others as guessed. `told` is called
    now and then."""
    clusters = [cluster(point) for point in points]
    wanted = np.log([point.seconds for point in points])

    def model(x: Vector) -> Vector:
        regime = _with(guess, names, np.exp(x))
        return np.log([predicted(regime, point, where) for point, where in zip(points, clusters, strict=True)])

    first = np.clip(np.log(_of(guess, names)), FASTEST, SLOWEST)
    x, now = first, model(first)
    for _ in range(ROUNDS):
        told()
        slopes = np.stack([(model(x + STEP * unit) - now) / STEP for unit in np.eye(len(x))], axis=1)
        off = wanted - now
        weight = np.minimum(1.0, FAR_OFF / np.maximum(np.abs(off), 1e-12))
        left = slopes.T @ (weight[:, None] * slopes) + HOLD * np.eye(len(x))
        way = np.linalg.solve(left, slopes.T @ (weight * off) + HOLD * (first - x))
        loss = _loss(off, x - first)
        for shorter in (1.0, 0.5, 0.25, 0.1):
            then = np.clip(x + shorter * np.clip(way, -2, 2), FASTEST, SLOWEST)
            there = model(then)
            if _loss(wanted - there, then - first) < loss:
                break
        else:
            break
        x, now = then, there
        if loss - _loss(wanted - now, x - first) < 1e-2 * loss:
            break
    return _with(guess, names, np.array([float(f"{value:.4g}") for value in np.exp(x)]))


def _loss(off: Vector, moved: Vector) -> float:
    far = np.abs(off)
    huber = np.where(far <= FAR_OFF, far**2, FAR_OFF * (2 * far - FAR_OFF))
    return float(huber.sum() + HOLD * (moved**2).sum())


def _of(regime: Regime, names: Sequence[str]) -> list[float]:
    """The costs of these names; `shm:1` is the second piece."""

    def one(name: str) -> float:
        if name == "call":
            return regime.call
        name, _, piece = name.partition(":")
        value = getattr(regime.costs, name)
        return float(value[int(piece)][1] if piece else value)

    return [max(one(name), math.exp(FASTEST)) for name in names]


def _with(regime: Regime, names: Sequence[str], values: Vector) -> Regime:
    call, said = regime.call, dict[str, float]()
    rates = list(regime.costs.shm)
    for full, value in zip(names, values.tolist(), strict=True):
        name, _, piece = full.partition(":")
        if name == "call":
            call = value
        elif piece:
            rates[int(piece)] = (rates[int(piece)][0], value)
        else:
            said[name] = value
    costs = regime.costs._replace(shm=tuple(rates), **said)
    return Regime(call, costs)
