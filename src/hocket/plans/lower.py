"""From a plan to one rank's share of it: projection and lowering.

`lower` keeps the moves of each front that this rank has a part in, and makes them into the sends and receives of
`program.py`. These come from the same global moves on every rank, so the two ends of a channel cannot disagree. Where
`out` begins as a copy of `inp`, nothing is copied before it must be: reads of an untouched `out` read `inp`, and what
no move ever writes is copied at the end of lowering. Synchronisation is derived, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import numpy as np

from . import exchange
from .collectives import Layout, find, layout
from .plan import (
    COPY,
    INP,
    OUT,
    REDUCE,
    TMP,
    Front,
    Plan,
)
from .program import LOCAL, NOTHING, Receive, Send, Share, Slot, Source, Span


class NotInPlace(Exception):
    """Executed move by move, this share would overwrite its own input before it is read."""


def lower(plan: Plan, rank: int, *, in_place: bool = False, spans: bool = True) -> Share:
    """The share of `rank`. With `in_place`, `inp` and `out` share memory wherever both have a slot of one index.

    `spans=False` takes spans apart into single chunks, as segments need it. Raises NotInPlace.
    """
    share = _lowered(plan, rank, in_place, spans)
    other = exchange.partner(share)
    if other != NOTHING:  # each of the two decides for itself what is in place, and both must find the same here
        kinds = [[s for s in (_tried(plan, r, kind, spans) for kind in (False, True)) if s] for r in (rank, other)]
        exchange.join(share, *kinds)
    return share


def _tried(plan: Plan, rank: int, in_place: bool, spans: bool) -> Share | None:
    with suppress(NotInPlace):
        return _lowered(plan, rank, in_place, spans)
    return None


def _lowered(plan: Plan, rank: int, in_place: bool, spans: bool) -> Share:
    copied: set[int] = set()
    while True:
        lowering = _Lowering(plan, rank, in_place, copied)
        for step, front in enumerate(plan.fronts()):
            lowering.front(step, front if spans else front.singles()[1])
        if lowering.mixed <= copied:
            return lowering.finish()
        copied |= lowering.mixed  # these are copied before all else, and so all that reads them is lowered anew


def breadth(plan: Plan, *, spans: bool) -> int:
    """The most messages that one rank stages in one step of `plan`, lowered with `spans` or without: what must fit into
    its slots at once, so that no rank waits in a circle for others to read."""
    most, slots = 1, max(plan.chunks, plan.tmp_chunks)
    for front in plan.fronts():
        f = front if spans else front.singles()[1]
        f = f.take(f.src_rank != f.dst_rank)
        _, pair, times = np.unique(f.src_rank * plan.size + f.dst_rank, return_inverse=True, return_counts=True)
        # As in `_send`: a slot that several get is staged once for all who get nothing else.
        span = ((f.src_rank * 3 + f.src_buf) * slots + f.src_chunk) * (slots + 1) + f.count
        _, staged = np.unique(np.where(times[pair] == 1, span, -1 - np.arange(len(f))), return_index=True)
        most = max(most, int(np.bincount(f.src_rank[staged]).max(initial=0)))
    return most


class Round(NamedTuple):
    """What goes between ranks in the only round of a plan: `both` ways between some two of them; whether some of it is
    `folded` where it arrives; whether nobody sends another more than a `part` of the vector; and which ranks are the
    `receivers`."""

    both: bool
    folded: bool
    part: bool
    receivers: tuple[int, ...]


def only_round(plan: Plan) -> Round | None:
    """None where ranks send in several steps, or in none."""
    crossing = (front.take(front.src_rank != front.dst_rank) for front in plan.fronts())
    rounds = list(islice(filter(len, crossing), 2))
    if len(rounds) != 1:
        return None
    (f,) = rounds
    there, back = (a * plan.size + b for a, b in ((f.src_rank, f.dst_rank), (f.dst_rank, f.src_rank)))
    # As np.isin and np.unique find it, which may import numpy.ma: all ranks would wait for that in their first call.
    chunks = np.bincount(there, f.count)
    both, folded = bool(chunks[back[back < len(chunks)]].any()), bool(np.any(f.verb == REDUCE))
    receivers = np.flatnonzero(np.bincount(f.dst_rank))
    return Round(both, folded, bool(chunks.max() < plan.chunks), tuple(receivers.tolist()))


class _Move(NamedTuple):
    """A move between ranks, or within one."""

    verb: int
    dst: Span
    receiver: int
    src: Span
    sender: int


class _Lowering:
    """The state while the fronts go by. The seeds in `copied` are copied first."""

    def __init__(self, plan: Plan, rank: int, in_place: bool, copied: set[int]) -> None:
        self.plan, self.rank, self.in_place = plan, rank, in_place
        promise = layout(plan.collective, plan.size, plan.chunks, plan.root)
        self.share = Share(promise, rank, plan.chunks, plan.tmp_chunks)
        self.seeds = {int(c) for c in np.flatnonzero(promise.seed[rank])}
        self.aliased = {int(c) for c in np.flatnonzero(promise.inp[rank] & promise.out[rank])} if in_place else set()
        self.writer: dict[Slot, int] = {}  # the receive that last wrote a slot
        self.readers: dict[Slot, list[int]] = {}  # the sends that have read it since
        self.heard: dict[tuple[int, int], int] = {}  # the receive that last read a peer's slot, as `inp` or as `out`
        self.mixed: set[int] = set()  # seeds that are read in one span with what is none, so that they must be copied
        for chunk in sorted(copied):
            self.writer[OUT, chunk] = len(self.share.receives)
            self.share.receives.append(_seed(chunk))
        self.users = _Users(plan)
        self.weights = _Weights(plan, promise) if find(plan.collective).reduces else None

    def front(self, step: int, front: Front) -> None:
        if self.weights:
            self.weights.apply(front)
        self.users.enter(front)
        moves = self._mine(front)
        copied = not np.any(front.verb == REDUCE)
        self._send(step, [move for move in moves if move.sender == self.rank != move.receiver], copied)
        self._receive(step, [move for move in moves if move.receiver == self.rank])
        self.users.leave()

    def _mine(self, front: Front) -> list[_Move]:
        rows = front.take((front.dst_rank == self.rank) | (front.src_rank == self.rank))
        return [
            _Move(verb, Span(db, dc, count), dr, Span(sb, sc, count), sr)
            for verb, db, dr, dc, sb, sr, sc, count in np.stack(rows.columns(), axis=1).tolist()
        ]

    def _send(self, step: int, moves: list[_Move], copied: bool) -> None:
        """Reads what was there before the front: so all of its sends come before its receives."""
        once = _once(move.receiver for move in moves)
        multicast: dict[Span, Send] = {}
        for move in moves:
            peer, span = move.receiver, self._current(move.src, self.writer)
            put = move.verb == COPY and move.dst == span and span.buf == OUT and self.users.only(self.rank, peer, span)
            if span in multicast and peer in once:
                multicast[span].peers.append(peer)
                multicast[span].put &= put
                multicast[span].after = max(multicast[span].after, self._last_heard(peer, span) if put else NOTHING)
                continue
            send = Send(step, _mark(step, move.src), span, [peer], put=put, copied=copied)
            send.after = max((self.writer.get(self._home(slot), NOTHING) for slot in span.slots()), default=NOTHING)
            if put:
                send.after = max(send.after, self._last_heard(peer, span))
            if peer in once:
                multicast[span] = send
            for slot in span.slots():
                self.readers.setdefault(self._home(slot), []).append(len(self.share.sends))
            self.share.sends.append(send)

    def _receive(self, step: int, moves: list[_Move]) -> None:
        once = _once(move.sender for move in moves if move.sender != self.rank)
        before = dict(self.writer)  # the front
        folds: dict[Span, Receive] = {}
        written: dict[Slot, Receive] = {}
        for move in moves:
            local = move.sender == self.rank
            fold = folds.get(move.dst)
            if fold is None or not (local or move.sender in once):
                # Two messages from one peer cannot be awaited at once: these are folded one by one.
                if fold is not None:
                    fold.finished = False
                fold = folds[move.dst] = self._open(step, move)
            if local:
                fold.sources.append(Source(LOCAL, 0, self._current(move.src, before)))
                if any(written.get(self._home(slot), fold) is not fold for slot in fold.sources[-1].span.slots()):
                    raise NotInPlace
            else:
                fold.sources.append(Source(move.sender, _mark(step, move.src), move.src))
            if not local and move.src.buf != TMP:
                index = self.writer[self._home(next(iter(move.dst.slots())))]  # of `fold`: it writes that
                self.heard.update(((move.sender, chunk), index) for _, chunk in move.src.slots())
            put = not local and move.verb == COPY and move.dst == move.src and move.dst.buf == OUT
            self.share.exposed |= put and self.users.only(move.sender, self.rank, move.dst)
            for slot in move.dst.slots():
                written.setdefault(self._home(slot), fold)  # the first: what was there is gone for all others
            if self.weights and move.verb == REDUCE:
                fold.finished = self.weights.finished(self.rank, move.dst)

    def _open(self, step: int, move: _Move) -> Receive:
        """A new receive, into where `move` goes."""
        first = [] if move.verb == COPY else [Source(LOCAL, 0, self._current(move.dst, self.writer))]
        receive = Receive(step, move.dst, first)
        homes = [self._home(slot) for slot in move.dst.slots()]
        receive.before = sorted({send for home in homes for send in self.readers.pop(home, ())})
        for send in receive.before:
            self.share.sends[send].staged |= self.share.sends[send].step == step
        self.writer.update((home, len(self.share.receives)) for home in homes)
        self.share.receives.append(receive)
        return receive

    def finish(self) -> Share:
        """Last, the seeds that no move touched: where `out` is not `inp`, they are copied, before all else."""
        share = self.share
        kept = [] if self.in_place else [c for c in sorted(self.seeds) if (OUT, c) not in self.writer]
        copies = [_seed(c) for c in kept]
        for send in share.sends:
            send.after += len(copies) if send.after != NOTHING else 0
        share.receives[:0] = copies
        return share

    def _last_heard(self, peer: int, span: Span) -> int:
        """The receive after which nothing is to be read any more there, of what a put overwrites."""
        return max((self.heard.get((peer, chunk), NOTHING) for _, chunk in span.slots()), default=NOTHING)

    def _current(self, span: Span, writer: dict[Slot, int]) -> Span:
        """Where the value of `span` lies when that wrote what is written: an `out` that is still its seed lies in
        `inp`."""
        if self.in_place or span.buf != OUT:
            return span
        fresh = {c for _, c in span.slots() if c in self.seeds and (OUT, c) not in writer}
        if len(fresh) == span.chunks:
            return span._replace(buf=INP)
        self.mixed |= fresh
        return span

    def _home(self, slot: Slot) -> Slot:
        """One name for slots that share memory."""
        return (OUT, slot[1]) if slot[0] == INP and slot[1] in self.aliased else slot


class _Users:
    """Who used each rank's slots before this front, as `inp` or as `out`: where nobody but one other rank has read a
    slot, nobody has written it, and nobody reads it now, that rank may write it from afar.

    Only in all_reduce, where `out` looks the same on every rank.
    """

    def __init__(self, plan: Plan) -> None:
        shape = (plan.size, plan.chunks if plan.collective == "all_reduce" else 0)
        self.least, self.most = np.full(shape, plan.size), np.full(shape, -1)

    def enter(self, front: Front) -> None:
        _, self.front = front.singles()
        read = self.front.src_buf != TMP
        self.now = np.zeros(self.least.shape, bool)
        if self.now.size:
            self.now[self.front.src_rank[read], self.front.src_chunk[read]] = True

    def leave(self) -> None:
        if not self.now.size:
            return
        f = self.front
        for used, rank, chunk in (
            (f.src_buf != TMP, f.src_rank, f.src_chunk),
            (f.dst_buf == OUT, f.dst_rank, f.dst_chunk),
        ):
            where = rank[used], chunk[used]
            np.minimum.at(self.least, where, f.dst_rank[used])
            np.maximum.at(self.most, where, f.dst_rank[used])

    def only(self, rank: int, peer: int, span: Span) -> bool:
        at = peer, slice(span.chunk, span.chunk + span.chunks)
        if not self.now.size or self.now[at].any():
            return False
        return bool(np.all(self.least[at] >= rank) and np.all(self.most[at] <= rank))


class _Weights:
    """How many contributions each slot holds, to find where a reduction is finished."""

    def __init__(self, plan: Plan, promise: Layout) -> None:
        slots = max(plan.chunks, plan.tmp_chunks)
        self.all = np.zeros((3, plan.size, slots), np.int64)
        self.all[INP, :, : plan.chunks] = promise.inp
        self.all[OUT, :, : plan.chunks] = promise.seed
        self.size = plan.size

    def apply(self, front: Front) -> None:
        _, f = front.singles()
        value = self.all[f.src_buf, f.src_rank, f.src_chunk]
        dst = (f.dst_buf, f.dst_rank, f.dst_chunk)
        copies, reduces = f.verb == COPY, f.verb == REDUCE
        self.all[tuple(x[copies] for x in dst)] = value[copies]
        np.add.at(self.all, tuple(x[reduces] for x in dst), value[reduces])

    def finished(self, rank: int, span: Span) -> bool:
        weight = self.all[span.buf, rank, span.chunk : span.chunk + span.chunks]
        return bool(np.all(weight == self.size))


def _seed(chunk: int) -> Receive:
    """`out` begins as `inp`."""
    return Receive(0, Span(OUT, chunk, 1), [Source(LOCAL, 0, Span(INP, chunk, 1))])


def _once(ranks: Iterable[int]) -> set[int]:
    """The ranks that occur exactly once."""
    return {rank for rank, times in Counter(ranks).items() if times == 1}


def _mark(step: int, span: Span) -> int:
    """Names a message within its call; computed alike at both ends."""
    return (step * 0x9E3779B1 + (span.buf << 30) + span.chunk * 0x85EBCA6B) & 0xFFFFFFFF
