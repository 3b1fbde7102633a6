"""Along the hosts and back, in the order of ranks: every host adds its ranks to the sum of those before it.

    host 0    r0 ⇄ r1     r0+r1              each rank folds its part of the vector for all of its host,
               ║    ║       ▼                beginning with what the host before has;
    host 1    r2 ⇄ r3     (r0+r1)+r2+r3      the last host's sum is the result, and goes back along the chain,
               ║    ║       ▼                and in each host from the part's owner to the others.
    host 2    r4 ⇄ r5     ...

The bits are those of a fold from the first rank to the last, as in one round among all: that is what it is for. Long
vectors go down and up at the same time, a segment behind the other, so that each direction of the wire carries S. Where
hosts do not hold neighbouring ranks it is still right, though not in rank order. The chain of Open MPI's `coll/tuned`
(Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations", IPDPS 2005), in lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .. import plan
from ..plan import Slots, Step, Steps, copy, inp, out, tmp
from .lanes import Lanes, Places, lanes, within


def all_reduce(n: int, places: Places = None) -> Steps:
    """Rounds 2H over H hosts, 2(H-1) of them across hosts; bytes sent by a host at most 2 S, and S if there are two."""
    hosts, owner = found = lanes(n, places)
    yield from _along(found, out)
    c = np.arange(owner.shape[1])
    for h in reversed(range(len(hosts))):
        spread = within(hosts[h], owner[h])
        yield (spread, copy(out(owner[h - 1], c), out(owner[h], c))) if h else spread


def reduce(n: int, root: int = 0, places: Places = None) -> Steps:
    """Rounds H+1 over H hosts, at most H of them across hosts; bytes sent by a host at most S."""
    found = lanes(n, places)
    yield from _along(found, tmp)
    c = np.arange(found.owner.shape[1])
    yield copy(out(root, c), tmp(found.owner[-1], c))


def _along(found: Lanes, held: Callable[..., Slots]) -> Iterator[Step]:
    """Every host's ranks added to the sum of those before, which lies in `held` of each chunk's owner."""
    c = np.arange(found.owner.shape[1])
    for h, (ranks, at) in enumerate(zip(*found, strict=True)):
        begin = inp(ranks[0], c) if h == 0 else held(found.owner[h - 1], c)
        yield copy(held(at, c), begin), *(plan.reduce(held(at, c), inp(rank, c)) for rank in ranks[h == 0 :])
