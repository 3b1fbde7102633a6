"""The memory of all ranks, holding symbols: what `check` runs a plan on.

A *value* is what was folded into a slot so far. Four numbers stand for it, each in an array over all slots, so that a
whole front is a few array operations:

    content    the sum, modulo 2^64, of a pseudo-random number for each (rank, chunk) that was folded in
    leaves     how many were folded in; 0: the slot was never written
    bracket    a non-commutative hash of the expression, whose leaves are ranks: ((0 1) 2) is not (0 (1 2))
    first      the lowest rank, where the operands are `leaves` neighbouring ranks in ascending order; else -1
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import PlanError
from .collectives import FOLD, NOBODY, Layout
from .plan import OUT, REDUCE, Column, Front, Plan, batches, join

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

MOST_SLOTS = 1 << 31  # over all ranks: a plan that names more is a mistake and must not eat the memory
MOST_LEAVES = (1 << 30) - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Value(NamedTuple):
    """The values of some slots. Two and two lie side by side, so that one access fetches both."""

    words: npt.NDArray[Any]  # uint64, with the columns content and bracket
    ranks: npt.NDArray[Any]  # int32, with the columns leaves and first


class Items(NamedTuple):
    """The moves of some fronts chunk by chunk, in columns."""

    row: Column  # which move it belongs to, of all of them
    verb: Column
    dst: Column  # addresses in the memory
    src: Column
    turn: Column  # how many earlier items of its front go into the same slot


class Memory:
    """What every slot holds. A slot's address is one number: first all of inp, then all of out, then all of tmp.

    With `aliased`, `out` is the memory of `inp` wherever a rank has both slots. Raises PlanError where tmp is absurd.
    """

    def __init__(self, plan: Plan, promise: Layout, *, aliased: bool = False) -> None:
        n, chunks = promise.inp.shape
        slots = n * (2 * chunks + plan.tmp_chunks)
        if slots > MOST_SLOTS:
            raise PlanError(f"{plan!r} names {plan.tmp_chunks} slots of tmp on one rank: more than can be meant")
        self.promise, self.slots = promise, slots
        self.base = np.array([0, n * chunks, 2 * n * chunks])
        self.width = np.array([chunks, chunks, plan.tmp_chunks])
        self.shared = promise.inp & promise.out if aliased else None
        self.held = Value(np.zeros((slots, 2), np.uint64), np.zeros((slots, 2), np.int32))
        rank, chunk = (x.astype(np.int64) for x in np.nonzero(promise.inp))
        at = rank * chunks + chunk
        self.put(at, Value(np.stack((mix(at), mix(~rank)), axis=1), np.stack((np.ones_like(rank), rank), axis=1)))
        rank, chunk = (x.astype(np.int64) for x in np.nonzero(promise.seed))
        self.put(self.address(np.full_like(rank, OUT), rank, chunk), self.take(rank * chunks + chunk))

    @property
    def leaves(self) -> npt.NDArray[Any]:
        """How many contributions each slot holds."""
        return self.held.ranks[:, 0]

    def address(self, buf: Column, rank: Column, chunk: Column) -> Column:
        """Where slots lie."""
        at: Column = self.base[buf] + rank * self.width[buf] + chunk
        if self.shared is not None:
            (rows,) = np.nonzero(buf == OUT)
            at[rows] -= self.base[OUT] * self.shared[rank[rows], chunk[rows]]
        return at

    def items(self, batch: Batch) -> Items:
        """The moves of some fronts, chunk by chunk."""
        row, f = batch.all.singles()
        dst = self.address(f.dst_buf, f.dst_rank, f.dst_chunk)
        src = self.address(f.src_buf, f.src_rank, f.src_chunk)
        return Items(row, f.verb, dst, src, turns(batch.step[row] * self.slots + dst))

    def take(self, at: Column | slice) -> Value:
        """The values that lie there."""
        return Value(self.held.words[at], self.held.ranks[at])

    def put(self, at: Column, value: Value) -> None:
        """Write values."""
        self.held.words[at], self.held.ranks[at] = value

    def apply(self, items: Items) -> None:
        """One front: all reads, then all writes; several into one slot one after the other."""
        came = self.take(items.src)
        for rows in waves(items.turn):
            dst, new, reduces = items.dst[rows], Value(came.words[rows], came.ranks[rows]), items.verb[rows] == REDUCE
            if reduces.any():
                folded = _fold(self.take(dst), new)
                keeps = reduces.all()
                new = (
                    folded
                    if keeps
                    else Value(*(np.where(reduces[:, None], *pair) for pair in zip(folded, new, strict=True)))
                )
            self.put(dst, new)

    def final(self) -> tuple[npt.NDArray[Any], ...]:
        """Content, bracket, leaves and first of what lies in `out`, each with the shape [size, chunks]."""
        rank, chunk = np.indices(self.promise.out.shape)
        value = self.take(self.address(np.full(rank.size, OUT), rank.ravel(), chunk.ravel()))
        return tuple(column.reshape(rank.shape) for both in value for column in both.T)

    def left_folds(self) -> Words:
        """The brackets of folds from the first rank on, one operand after the other, over as many ranks as each slot of
        `out` is promised to be of: an array of the shape [size, chunks]."""
        leaves = mix(~np.arange(len(self.promise.ranks)))[:, None]
        folds = accumulate(leaves[1:], _bracket, initial=leaves[0])
        brackets: Words = np.concatenate(list(folds))[np.maximum(self.promise.ranks, 1) - 1]
        return brackets

    def wrong(self) -> Mask:
        """Which slots of `out` do not hold what is promised: an array of the shape [size, chunks]."""
        rank, ranks, chunk = self.promise.rank, self.promise.ranks, self.promise.chunk
        n, chunks = rank.shape
        totals = mix(np.arange(n * chunks)).reshape(n, chunks).cumsum(axis=0, dtype=np.uint64)
        total = np.take_along_axis(totals, np.maximum(ranks, 1) - 1, axis=0)
        content = np.where(rank == FOLD, total, mix(np.maximum(rank, 0) * chunks + chunk))
        held, _, leaves, _ = self.final()
        right = (held == content) & (leaves == np.where(rank == FOLD, ranks, 1))
        return np.asarray(~right & (rank != NOBODY), bool)


class Batch(NamedTuple):
    """Some fronts in a row: the number of the first, each of them, all their moves, and for each move whose it is."""

    first: int
    fronts: list[Front]
    all: Front
    step: Column

    @staticmethod
    def of(plan: Plan) -> Iterator[Batch]:
        """All fronts of a plan."""
        for first, fronts in batches(plan.fronts()):
            yield Batch(first, fronts, join(*fronts), np.repeat(np.arange(len(fronts)), [len(f) for f in fronts]))

    def split(self, items: Items) -> Iterator[Items]:
        """Those of each front."""
        ends = np.searchsorted(self.step[items.row], np.arange(len(self.fronts) + 1)).tolist()
        for begin, end in pairwise(ends):
            yield Items(*(column[begin:end] for column in items))


def _fold(held: Value, came: Value) -> Value:
    words, ranks = held.words + came.words, held.ranks + came.ranks
    words[:, 1] = _bracket(held.words[:, 1], came.words[:, 1])
    first = held.ranks[:, 1]
    joins = (first >= 0) & (came.ranks[:, 1] == first + held.ranks[:, 0])
    ranks[:, 1] = np.where(joins, first, -1)
    return Value(words, np.minimum(ranks, MOST_LEAVES))


def _bracket(left: Words, right: Words) -> Words:
    return mix(left * GOLDEN + right)


def turns(dst: Column) -> Column:
    """For each item, how many earlier ones have the same destination."""
    order = np.argsort(dst, kind="stable")
    starts = np.flatnonzero(np.diff(dst[order], prepend=-1))
    turn = np.empty(len(dst), np.int64)
    turn[order] = np.arange(len(dst)) - np.repeat(starts, np.diff(starts, append=len(dst)))
    return turn


def waves(turn: Column) -> Iterator[Column | slice]:
    """Rows of which no two have the same destination: the first item into each slot, then the second, and so on."""
    most = int(turn.max())
    if most == 0:
        yield slice(None)
    else:
        yield from np.split(np.argsort(turn, kind="stable"), np.cumsum(np.bincount(turn))[:-1])


def mix(x: npt.ArrayLike) -> Words:
    """The finalizer of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): every bit depends on every bit."""
    z = np.asarray(x).astype(np.uint64) + GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
