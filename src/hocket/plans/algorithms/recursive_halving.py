"""Recursive halving: partners at distance 1, then 2, then 4, ... share what they have to sum, half for each.

    r0 ◀─½─▶ r1   r2 ◀─½─▶ r3        after round k a rank holds the sum over 2^k neighbours, of 1/2^k of the vector; in
    r0 ◀───¼───▶ r2                  the end of one chunk, over all. An all-reduce then goes back the same way, which is
          r1 ◀───¼───▶ r3            recursive doubling: nearly the bytes of a ring in 2⌈log2 n⌉ rounds.

Near ranks go first and both partners fold the lower one's sum first: all chunks have the bracket of recursive doubling,
in rank order. There are N players, a power of two. Where n is none, the last ranks play two neighbours each, who have
one vector between them and nothing to share:

    player    0 1 2 3 4 5 6 7        n = 6. So a rank that plays one first shares its vector with its neighbour, and
    rank      0 1 2 3  4   5         from then on has half as much to say as one that plays two.

Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, where one rank of such a pair goes on alone,
as in Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005, where the pair shares nothing before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .. import plan
from ..plan import INP, OUT, TMP, Column, Slots, Step, Steps, copy, out
from .combine import place, spans

Mask = npt.NDArray[np.bool_]


class Round(NamedTuple):
    """The bit in which partners differ, players, and the spans of chunks that each keeps, all equally wide."""

    bit: int
    players: Column
    chunk: Column
    width: int


def all_reduce(n: int) -> Steps:
    """Rounds 2⌈log2 n⌉, bytes sent per rank 2(N-1)/N S, with N the power of two from n on."""
    who = _players(n)
    yield from _sums(who, _halves(who), np.broadcast_to(True, (n, len(who))))
    for bit, q, c, count in reversed(_halves(who)):
        yield copy(out(who[q ^ bit], c, count), out(who[q], c, count))


def reduce(n: int, root: int = 0) -> Steps:
    """Rounds 2⌈log2 n⌉, bytes sent per rank less than 3/2 S. The same bracket for every root."""
    who = _players(n)
    there = np.broadcast_to(np.arange(n)[:, None] == root, (n, len(who)))
    yield from _sums(who, _halves(who), there)
    to = np.argmax(who == root)
    for bit, q, c, count in reversed(_halves(who)):
        on = q ^ bit ^ to < bit  # to a player whose higher bits are the root's, as after every round all sums' are
        goes, comes, c = who[q ^ bit][on], who[q][on], c[on]
        yield copy(_goal(there, goes, c, count), _goal(there, comes, c, count))


def reduce_scatter(n: int) -> Steps:
    """Rounds ⌈log2 n⌉, bytes sent per rank (n-1)/n S. What goes one way does not lie side by side."""
    who = _players(n)
    first = np.searchsorted(who, np.arange(n))
    c = np.arange(n << (len(who) > n))  # where some ranks play two, each has half of its rank's block
    block = c * n // len(c)
    home = first[block] + (c % 2) * (np.bincount(who)[block] - 1)
    return _sums(who, _rounds(who, home), np.arange(n)[:, None] == block)


def _players(n: int) -> Column:
    """The rank that plays each player."""
    q = np.arange(1 << (n - 1).bit_length())
    alone = 2 * n - len(q)  # so many ranks play one
    return np.where(q < alone, q, (q + alone) // 2)


def _halves(who: Column) -> list[Round]:
    """The rounds in which chunks that go one way lie side by side: what a player keeps is one half of what it had, the
    upper one where the round's bit of its number is set."""
    rounds, first = [], np.zeros(len(who), np.int64)
    for bit in _bits(who):
        q = np.arange(len(who))
        half = len(who) // (2 * bit)
        first = first + half * (q // bit % 2)
        q = q[who != who[q ^ bit]]
        rounds.append(Round(bit, q, first[q], half))
    return rounds


def _rounds(who: Column, home: Column) -> list[Round]:
    """The rounds in which chunk c goes home to the player `home[c]`, one by one."""
    rounds = []
    for bit in _bits(who):
        q, c = np.nonzero((np.arange(len(who))[:, None] ^ home) % (2 * bit) == 0)
        met = who[q] != who[q ^ bit]
        rounds.append(Round(bit, q[met], c[met], 1))
    return rounds


def _bits(who: Column) -> list[int]:
    return [1 << k for k in range(len(who).bit_length() - 1)]


def _sums(who: Column, rounds: list[Round], there: Mask) -> Iterator[Step]:
    """Every chunk's sum, in the end in the `_goal` of its home; in each round from there into tmp or back."""
    held = np.full(len(there), INP)
    for left, (bit, q, c, count) in zip(reversed(range(len(rounds))), rounds, strict=True):
        lower, upper = (_held(held, there, who[player], c, count) for player in (q & ~bit, q | bit))
        held[who[q]] = TMP if left % 2 else OUT
        goes = _held(held, there, who[q], c, count)
        yield spans(copy(goes, lower)), spans(plan.reduce(goes, upper))


def _held(held: Column, there: Mask, rank: Column, c: Column, count: int) -> Slots:
    """Where ranks have chunks, when what rank r has is its input, in tmp, or in its goal (`held[r]`)."""
    goal = _goal(there, rank, c, count)
    is_goal = held[rank] == OUT
    return place(np.where(is_goal, goal.buf, held[rank]), rank, np.where(is_goal, goal.chunk, c), count)


def _goal(there: Mask, rank: Column, c: Column, count: int) -> Slots:
    """`out` where it is `there`, else the second row of tmp."""
    here = there[rank, c]
    return place(np.where(here, OUT, TMP), rank, np.where(here, c, c + there.shape[1]), count)
