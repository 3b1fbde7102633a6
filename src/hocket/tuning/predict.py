"""What a call will take, by a profile: the model of `simulate`, with costs that were measured.

All ranks of a group ask this of one profile, and must get one answer: there are only sums, products, quotients and
maxima in it, in one order, and these are the same to the last bit wherever numbers are those of IEEE 754.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from ..plans.algorithms import plan
from .cluster import Cluster
from .profile import Profile, Regime
from .simulate import simulate
from .topology import Topology

MOST = 64  # ranks: beyond, a call would wait longer for its prediction than for its result


def regime_of(profile: Profile | None, places: tuple[int, ...]) -> Regime | None:
    """What holds for ranks at `places`; None where nobody has measured that, or where the model does not fit."""
    if profile is None or not 1 < len(places) <= MOST:
        return None
    sizes = Counter(places)
    if len(sizes) > 1:
        in_blocks = list(places) == sorted(places, key=[*sizes].index)
        return profile.far if in_blocks else None
    return profile.near if len(places) <= profile.cores else profile.crowded


def cluster_of(profile: Profile, places: tuple[int, ...], regime: Regime) -> Cluster:
    """Hosts like the one that was measured, with ranks at `places`."""
    return Cluster("flat", tuple(Counter(places).values()), regime.costs, profile.cores)


def predict(collective: str, algorithm: str, nbytes: int, topology: Topology, root: int = 0) -> float | None:
    """Seconds of a call for a vector of `nbytes`; None where the group's profile does not tell."""
    regime = regime_of(topology.profile, topology.places)
    if regime is None or topology.profile is None:
        return None
    where = cluster_of(topology.profile, topology.places, regime)
    return _seconds(collective, algorithm, nbytes, topology.places, where, regime.call, root)


@lru_cache(maxsize=1024)
def _seconds(
    collective: str, algorithm: str, nbytes: int, places: tuple[int, ...], where: Cluster, call: float, root: int
) -> float:
    return call + simulate(plan(collective, algorithm, len(places), root, places), nbytes, where).seconds
