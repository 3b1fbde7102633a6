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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import PlanError
from .collectives import EVERY, NOBODY, Layout
from .plan import OUT, REDUCE, Column, Front, Plan

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

MOST_SLOTS = 1 << 31  # over all ranks: a plan that names more is a mistake and must not eat the memory
MOST_LEAVES = (1 << 30) - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Value(NamedTuple):
    """The values of some slots, in columns."""

    content: npt.NDArray[Any]  # uint64
    bracket: npt.NDArray[Any]  # uint64
    leaves: npt.NDArray[Any]  # int32
    first: npt.NDArray[Any]  # int32


class Items(NamedTuple):
    """The moves of a front chunk by chunk, in columns."""

    row: Column  # which move of the front it belongs to
    verb: Column
    dst: Column  # addresses in the memory
    src: Column
    turn: Column  # how many earlier items of this front go into the same slot


class Memory:
    """What every slot holds. A slot's address is one number: first all of inp, then all of out, then all of tmp.

    With `aliased`, `out` is the memory of `inp` wherever a rank has both slots. Raises PlanError where tmp is absurd.
    """

    def __init__(self, plan: Plan, promise: Layout, *, aliased: bool = False) -> None:
        n, chunks = promise.inp.shape
        slots = n * (2 * chunks + plan.tmp_chunks)
        if slots > MOST_SLOTS:
            raise PlanError(f"{plan!r} names {plan.tmp_chunks} slots of tmp on one rank: more than can be meant")
        self.promise = promise
        self.base = np.array([0, n * chunks, 2 * n * chunks])
        self.width = np.array([chunks, chunks, plan.tmp_chunks])
        self.shared = promise.inp & promise.out if aliased else None
        self.held = Value(*(np.zeros(slots, word) for word in (np.uint64, np.uint64, np.int32, np.int32)))
        rank, chunk = (x.astype(np.int64) for x in np.nonzero(promise.inp))
        once, given = np.ones(len(rank), np.int32), Value(mix(rank * chunks + chunk), mix(~rank), *2 * [rank])
        self.put(rank * chunks + chunk, given._replace(leaves=once, first=rank.astype(np.int32)))
        rank, chunk = (x.astype(np.int64) for x in np.nonzero(promise.seed))
        self.put(self.address(np.full_like(rank, OUT), rank, chunk), self.take(rank * chunks + chunk))

    def address(self, buf: Column, rank: Column, chunk: Column) -> Column:
        """Where slots lie."""
        at: Column = self.base[buf] + rank * self.width[buf] + chunk
        if self.shared is not None:
            (rows,) = np.nonzero(buf == OUT)
            at[rows] -= self.base[OUT] * self.shared[rank[rows], chunk[rows]]
        return at

    def items(self, front: Front) -> Items:
        """The moves of a front, chunk by chunk."""
        row, f = front.singles()
        dst = self.address(f.dst_buf, f.dst_rank, f.dst_chunk)
        src = self.address(f.src_buf, f.src_rank, f.src_chunk)
        return Items(row, f.verb, dst, src, turns(dst))

    def take(self, at: Column | slice) -> Value:
        """The values that lie there."""
        return Value(*(words[at] for words in self.held))

    def put(self, at: Column, value: Value) -> None:
        """Write values."""
        for words, new in zip(self.held, value, strict=True):
            words[at] = new

    def apply(self, items: Items) -> None:
        """All reads, then all writes; several into one slot one after the other."""
        came = self.take(items.src)
        for rows in waves(items.turn):
            dst, new = items.dst[rows], Value(*(words[rows] for words in came))
            self.put(dst, self._fold(items.verb[rows] == REDUCE, self.take(dst), new))

    def _fold(self, reduces: Mask, held: Value, came: Value) -> Value:
        joins = (held.first >= 0) & (came.first >= 0) & (held.first + held.leaves == came.first)
        folded = Value(
            held.content + came.content,
            mix(held.bracket * GOLDEN + came.bracket),
            np.minimum(held.leaves + came.leaves, MOST_LEAVES),
            np.where(joins, held.first, -1),
        )
        return Value(*(np.where(reduces, new, old) for new, old in zip(folded, came, strict=True)))

    def final(self) -> Value:
        """The values in `out`, each column with the shape [size, chunks]."""
        rank, chunk = np.indices(self.promise.out.shape)
        at = self.address(np.full(rank.size, OUT), rank.ravel(), chunk.ravel())
        return Value(*(words.reshape(rank.shape) for words in self.take(at)))

    def wrong(self) -> Mask:
        """Which slots of `out` do not hold what is promised: an array of the shape [size, chunks]."""
        rank, chunk = self.promise.rank, self.promise.chunk
        n, chunks = rank.shape
        total = mix(np.arange(n * chunks)).reshape(n, chunks).sum(axis=0, dtype=np.uint64)
        content = np.where(rank == EVERY, total, mix(np.maximum(rank, 0) * chunks + chunk))
        final = self.final()
        right = (final.content == content) & (final.leaves == np.where(rank == EVERY, n, 1))
        return np.asarray(~right & (rank != NOBODY), bool)


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
