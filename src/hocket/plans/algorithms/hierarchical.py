"""Host by host, then across: what crosses the wire crosses it for a whole host, not for each of its ranks.

    host 0    r0 ⇄ r1         1  within each host, every rank sums its part of the vector for all of the host;
               ║    ║         2  across hosts, the ranks with one part (a lane) sum theirs, all lanes at once;
    host 1    r2 ⇄ r3         3  within each host, every rank hands its part to the others.

The wire carries 2(H-1)/H S for each of H hosts, which is what it would carry if each were one rank. Over many hosts an
all-reduce goes across by recursive halving, so that nobody speaks to all of them at once. Hosts may have unequally many
ranks (`lanes.py`). Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
collective operation performance", IPDPS 2000; in lanes: Träff & Hunold, "Decomposing MPI collectives for exploiting
multi-lane communication", CLUSTER 2020.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..plan import INP, TMP, Column, Front, Step, Steps, copy, inp, out, reduce, tmp
from . import recursive_halving
from .combine import fronts
from .lanes import Places, blocks, lanes, within

Owner = npt.NDArray[np.int64]  # [host, chunk]: the rank of the host that has, or gets, the chunk

_MANY = 16  # hosts; over more of them all-reduces go across by recursive halving


def all_reduce(n: int, places: Places = None) -> Steps:
    """Rounds 4, two of them across hosts, or 2⌈log2 H⌉ of more than 16; bytes sent by a host of H 2(H-1)/H S.

    Each host's sum is folded first. Of more than 16 hosts, H is the next power of two.
    """
    hosts, owner = lanes(n, places)
    if len(hosts) > _MANY:
        yield from _halved(hosts, owner)
        return
    owner = np.repeat(owner, len(hosts), axis=1)  # each lane in as many chunks as there are hosts
    c = np.arange(owner.shape[1])
    last = owner[c % len(hosts), c]  # who folds chunk c across hosts
    yield _sums(hosts, owner)
    yield copy(out(last, c), tmp(owner[0], c)), *(reduce(out(last, c), tmp(at, c)) for at in owner[1:])
    yield _passed_on(last, owner)
    yield _spread(hosts, owner)


def broadcast(n: int, places: Places = None) -> Steps:
    """Rounds 3, one of them across hosts; bytes sent by the root's host (H-1) S, in lanes."""
    hosts, owner = lanes(n, places)
    chunks = owner.shape[1]
    yield copy(out(hosts[0][1:], 0, chunks), out(0, 0, chunks))
    yield _passed_on(owner[0], owner)
    yield _spread(hosts[1:], owner[1:])


def all_gather(n: int, places: Places = None) -> Steps:
    """Rounds 2, one of them across hosts: a rank's block goes to one rank of each host; that host's S crosses once."""
    hosts, owner = blocks(n, places)
    yield _passed_on(np.arange(n), owner)
    yield _spread(hosts, owner)


def reduce_scatter(n: int, places: Places = None) -> Steps:
    """Rounds 2, one of them across hosts: the all-gather, backwards. Each host's sum is folded first."""
    hosts, owner = blocks(n, places)
    r = np.arange(n)
    yield _sums(hosts, owner)
    yield copy(out(r, r), tmp(owner[0], r)), *(reduce(out(r, r), tmp(at, r)) for at in owner[1:])


def barrier(n: int, places: Places = None) -> Steps:
    """Rounds 3, one of them across hosts: the first rank of each host hears its own, tells the others, and lets go."""
    hosts, owner = blocks(n, places)
    first = np.array([ranks[0] for ranks in hosts])
    r = np.arange(n)
    leads = first[np.argmax(owner == r, axis=0)]  # of each rank's own host
    yield copy(out(leads[leads != r], r[leads != r]), inp(r[leads != r], r[leads != r]))
    everywhere = np.broadcast_to(first[:, None], owner.shape)
    yield _passed_on(leads, everywhere)
    yield _spread(hosts, everywhere)


def _halved(hosts: list[Column], owner: Owner) -> Steps:
    """An all-reduce that goes across hosts by recursive halving, all lanes at once."""
    pieces = 1 << (len(hosts) - 1).bit_length()  # chunks of each lane
    lane = np.arange(owner.shape[1])[:, None]
    yield _sums(hosts, owner, pieces)
    for f in fronts(recursive_halving.all_reduce(len(hosts))):
        dst, src = (rank.T for rank in (owner[f.dst_rank], owner[f.src_rank]))
        # What is its input is the host's sum, in the first row of tmp; so what it keeps in tmp lies in the second.
        at = [
            lane * pieces + chunk + owner.shape[1] * pieces * (buf == TMP)
            for buf, chunk in ((f.dst_buf, f.dst_chunk), (f.src_buf, f.src_chunk))
        ]
        columns = (f.verb, f.dst_buf, dst, at[0], np.where(f.src_buf == INP, TMP, f.src_buf), src, at[1], f.count)
        yield Front(*(np.ravel(x) for x in np.broadcast_arrays(*columns)))
    yield _spread(hosts, owner, pieces)


def _sums(hosts: list[Column], owner: Owner, count: int = 1) -> Step:
    """Each host's sum of each span of chunks, in the order of its ranks, at the owner."""
    c = np.arange(owner.shape[1]) * count
    return tuple(
        move(tmp(at, c, count), inp(rank, c, count))
        for ranks, at in zip(hosts, owner, strict=True)
        for move, rank in zip([copy, *[reduce] * (len(ranks) - 1)], ranks, strict=True)
    )


def _passed_on(here: Column, owner: Owner) -> Step:
    """Chunk c from rank `here[c]` to its owners on the other hosts."""
    c = np.arange(owner.shape[1])
    return tuple(copy(out(at[at != here], c[at != here]), out(here[at != here], c[at != here])) for at in owner)


def _spread(hosts: list[Column], owner: Owner, count: int = 1) -> Step:
    """Each span of chunks from its owner to all others of the host."""
    return tuple(within(ranks, at, count) for ranks, at in zip(hosts, owner, strict=True))
