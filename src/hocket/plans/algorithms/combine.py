"""Small plans into larger ones: one after the other, under other names, and from powers of two to every n."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from ..plan import (
    INP,
    OUT,
    TMP,
    Column,
    Front,
    Index,
    Slots,
    Steps,
    copy,
    extent,
    inp,
    out,
    reduce,
    tmp,
    walk,
)


def fronts(steps: Steps) -> Iterator[Front]:
    """The steps, each joined into one front."""
    return walk(steps, "a plan that others are made of")


def then(*parts: Steps) -> Steps:
    """The steps of each part, one part after the other, in the same buffers."""
    for part in parts:
        yield from part


def beside(*parts: Steps) -> Steps:
    """The steps of all parts at the same time: the first of each in one front, then the second of each, and so on."""
    for step in zip_longest(*map(fronts, parts)):
        yield tuple(front for front in step if front is not None)


def onto(steps: Steps, ranks: npt.ArrayLike, chunks: npt.ArrayLike | None = None) -> Steps:
    """The same plan under other names: rank r becomes `ranks[r]`, and chunk c becomes `chunks[c]` where that is given.

    `ranks` has no rank twice; `chunks` is a permutation of all chunks of the plan. A span whose chunks no longer lie
    side by side falls into as many spans as it must, in the order of its chunks.
    """
    to = np.asarray(ranks, np.int64)
    for f in fronts(steps):
        moved = Front(f.verb, f.dst_buf, to[f.dst_rank], f.dst_chunk, f.src_buf, to[f.src_rank], f.src_chunk, f.count)
        yield moved if chunks is None else _rename_chunks(moved, np.asarray(chunks, np.int64))


def folded(algorithm: Callable[[int], Steps]) -> Callable[[int], Steps]:
    """An all-reduce for every n out of one that is written for powers of two.

        0 1 2 3 4 5     n = 6: two ranks too many for 4. The first two pairs of neighbours fold: odd into even,
        0◀1 2◀3 4 5     then 0 2 4 5 run the algorithm for four, then the even ranks hand the result to the odd ones.
        0▶1 2▶3         Neighbours fold, so operands stay in rank order.

    Two rounds more, where n is no power of two. `algorithm` takes its input from `inp`, not from the seed of `out`.
    """

    @wraps(algorithm)
    def every(n: int) -> Steps:
        two = 1 << (n.bit_length() - 1)  # the largest power of two in n
        even = 2 * np.arange(n - two)
        inside = np.concatenate((even, np.arange(2 * (n - two), n)))
        chunks = max(1, extent(fronts(algorithm(two)), (INP, OUT)))
        above = -(-extent(fronts(algorithm(two)), (TMP,)) // chunks) * chunks  # tmp of our own
        if len(even):
            pair = tmp(even, above, chunks)
            yield copy(pair, inp(even, 0, chunks)), reduce(pair, inp(even + 1, 0, chunks))
        for f in fronts(algorithm(two)):
            pairs = (f.src_buf == INP) & (f.src_rank < n - two)  # these begin with the sum of their pair
            buf, chunk = np.where(pairs, TMP, f.src_buf), f.src_chunk + above * pairs
            yield Front(f.verb, f.dst_buf, inside[f.dst_rank], f.dst_chunk, buf, inside[f.src_rank], chunk, f.count)
        if len(even):
            yield copy(out(even + 1, 0, chunks), out(even, 0, chunks))

    return every


def scattered(steps: Steps, n: int) -> Steps:
    """A reduce-scatter of n chunks out of steps that sum them in `out` as an all-reduce does, chunk r at rank r.

    What a rank sums for others goes to tmp, beginning with its own input where it is first folded into.
    """
    begun = np.eye(n, dtype=bool)  # which rank's sum of which chunk
    for f in fronts(steps):
        _, g = f.singles()
        source, goal = (g.src_rank, g.src_chunk), (g.dst_rank, g.dst_chunk)
        from_ = np.where(begun[source], np.where(g.src_rank == g.src_chunk, OUT, TMP), INP)
        fresh = ~begun[goal]
        begun[goal] = True
        yield (
            spans(copy(tmp(*(x[fresh] for x in goal)), inp(*(x[fresh] for x in goal)))),
            spans(reduce(place(np.where(g.dst_rank == g.dst_chunk, OUT, TMP), *goal), place(from_, *source))),
        )


def in_front(n: int, rounds: Iterable[tuple[Column, Column]]) -> Steps:
    """A scan out of rounds of (ranks that get, ranks whose sum is put in front of theirs).

    A sum goes into the other of `out` and `tmp` than it lay in, since it is read in the same step, and in the end into
    `out`: so it is known from the first round on how many each rank will get.
    """
    return _in_front(np.arange(n), [pair for pair in rounds if len(pair[0])], INP)


def moved_on(n: int, rounds: Iterable[tuple[Column, Column]]) -> Steps:
    """An exclusive scan over n ranks: every input goes to the next rank, and these are scanned in the `rounds` for one
    rank fewer, in which rank r is called r - 1."""
    pairs, ranks = [pair for pair in rounds if len(pair[0])], np.arange(1, n)
    if n > 1:
        yield copy(place(_lies(n - 1, pairs), ranks), inp(ranks - 1))
    yield from _in_front(ranks, pairs, None)


def _in_front(ranks: Column, rounds: list[tuple[Column, Column]], begin: int | None) -> Steps:
    n = len(ranks)
    held = _lies(n, rounds) if begin is None else np.full(n, begin)
    for k, (to, before) in enumerate(rounds):
        goes = _lies(n, rounds[k + 1 :])[to]
        came = place(held[before], ranks[before])
        yield copy(place(goes, ranks[to]), came), reduce(place(goes, ranks[to]), place(held[to], ranks[to]))
        held[to] = goes


def _lies(n: int, rounds: list[tuple[Column, Column]]) -> Column:
    """Where each sum lies that will go from one place to the other in these rounds, and end in `out`."""
    times = np.bincount(np.concatenate([np.empty(0, np.int64), *(to for to, _ in rounds)]), minlength=n)
    return np.where(times % 2 == 0, OUT, TMP)


def ahead(n: int, near: int, far: int) -> tuple[Column, Column, Column]:
    """On a circle of n ranks, each with a chunk: every rank, and the chunks at a distance of `near` up to `far` - 1, as
    spans: their first chunks, and how many. A rank has two of them where they go over the end."""
    r = np.arange(n)
    first = (r + near) % n
    before = np.minimum(far - near, n - first)
    count = np.stack((before, far - near - before), axis=1).ravel()
    begins = np.stack((first, np.zeros_like(first)), axis=1).ravel()
    return np.repeat(r, 2)[count > 0], begins[count > 0], count[count > 0]


def place(buf: Column, rank: Index, chunk: Index = 0, count: Index = 1) -> Slots:
    """Slots whose buffer differs from row to row."""
    return Slots(buf, rank, chunk, count)


def spans(f: Front) -> Front:
    """The same moves, neighbouring rows whose chunks touch at both ends put together into one."""
    touch = (np.diff(f.dst_chunk) == f.count[:-1]) & (np.diff(f.src_chunk) == f.count[:-1])
    for column in (f.verb, f.dst_buf, f.dst_rank, f.src_buf, f.src_rank):
        touch &= np.diff(column) == 0
    first = np.flatnonzero(np.append(True, ~touch)[: len(f)])
    return replace(f.take(first), count=np.diff(np.append(0, np.cumsum(f.count))[np.append(first, len(f))]))


def _rename_chunks(f: Front, chunks: npt.NDArray[np.int64]) -> Front:
    """Every span of `f`, chunk by chunk under its new name, then put together again where both ends still touch."""
    (_, g), period = f.singles(), len(chunks)
    dst, src = (c - c % period + chunks[c % period] for c in (g.dst_chunk, g.src_chunk))
    return spans(replace(g, dst_chunk=dst, src_chunk=src))
