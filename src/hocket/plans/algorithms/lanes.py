"""How ranks lie on hosts, and which of a host's ranks carries which part of the vector to other hosts.

                     chunk 0    chunk 1    chunk 2
    host 0            rank 0     rank 1     rank 2       three lanes: rank r of its host has the r-th part of the
                        │          │          │          vector. Where hosts have unequally many ranks, the vector
    host 1            rank 3     rank 3     rank 3       falls into more chunks, and each rank has several.

A rank speaks to its own host about anything, and to other hosts about its part only: so the wire carries for a host
what it would carry for one rank.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..plan import Column, Front, copy, out

Places: TypeAlias = "tuple[int, ...] | None"  # the number of each rank's host

_FINE = 4  # chunks for each rank of the largest host, at the most: what is left uneven is a quarter of a rank's part


class Lanes(NamedTuple):
    """`hosts[h]` are the ranks of host h, `owner[h, c]` the one of them that carries chunk c."""

    hosts: list[Column]
    owner: npt.NDArray[np.int64]


def lanes(n: int, places: Places = None) -> Lanes:
    """The lanes of `n` ranks, rank r on the host `places[r]`; by default on two hosts, the first half on one. Hosts are
    in the order of their first ranks."""
    where = np.arange(n) * 2 // n if places is None else np.asarray(places)
    _, first = np.unique(where, return_index=True)
    hosts = [np.flatnonzero(where == where[rank]) for rank in np.sort(first)]
    sizes = [len(ranks) for ranks in hosts]
    cut = min(math.lcm(*sizes), _FINE * max(sizes))
    return Lanes(hosts, np.stack([ranks[np.arange(cut) * len(ranks) // cut] for ranks in hosts]))


def blocks(n: int, places: Places = None) -> Lanes:
    """The same where each rank owns a block, rank r chunk r: on another host, one that lies like r carries it."""
    hosts, _ = lanes(n, places)
    owner = np.empty((len(hosts), n), np.int64)
    for ranks in hosts:
        for at, own in zip(hosts, owner, strict=True):
            own[ranks] = at[np.arange(len(ranks)) % len(at)]
    for ranks, own in zip(hosts, owner, strict=True):
        own[ranks] = ranks
    return Lanes(hosts, owner)


def within(ranks: Column, owner: Column, count: int = 1) -> Front:
    """Each span of `count` chunks from its owner to all others of a host's `ranks`."""
    span, other = np.nonzero(owner[:, None] != ranks)
    return copy(out(ranks[other], span * count, count), out(owner[span], span * count, count))
