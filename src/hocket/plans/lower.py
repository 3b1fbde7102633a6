"""From a plan to one rank's program: projection, lowering, and the binding of chunks to bytes.

`lower` keeps this rank's share of each front and finds its shape:

    sends       one per slot sent in a front, however many peers get it: it is staged once (multicast)
    receives    one per slot written in a front: out = source ∘ source ∘ ..., in one pass; one source is a copy

Sends and receives come from the same global moves, so the two ends of a channel cannot disagree. Where `out` begins as
a copy of `inp`, nothing is copied before it must be: reads of an untouched `out` read `inp`, and what no move ever
writes is copied at the end of lowering. Synchronisation is derived too: a send comes `after` the receive that made its
bytes, and a receive comes after the sends that read what it overwrites, those `before` it.

`Share.bind` then turns chunks into byte ranges for one call's sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

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

Slot: TypeAlias = "tuple[int, int]"  # buffer, chunk
Sizes: TypeAlias = "npt.NDArray[np.int64]"  # bytes of each chunk

NOTHING = -1
LOCAL = -1


class NotInPlace(Exception):
    """Executed move by move, this share would overwrite its own input before it is read."""


class _Mixed(Exception):
    """A span is a seed in part: its seeds, the chunks in `args`, must be copied before."""


class Span(NamedTuple):
    """`chunks` chunks of one buffer of this rank."""

    buf: int
    chunk: int
    chunks: int

    def slots(self) -> Iterator[Slot]:
        return ((self.buf, c) for c in range(self.chunk, self.chunk + self.chunks))


@dataclass
class Send:
    step: int
    mark: int
    span: Span
    peers: list[int]
    after: int = NOTHING
    staged: bool = False  # overwritten in its own step, so that a view of it could not be awaited
    put: bool = False  # goes to the same place in the peers' `out`, which nobody but this rank reads or writes before


class Source(NamedTuple):
    peer: int  # LOCAL: `span` of this rank
    mark: int
    span: Span


@dataclass
class Receive:
    step: int
    span: Span
    sources: list[Source]
    finished: bool = False  # the reduction is over all ranks: a mean is divided here
    before: list[int] = field(default_factory=list)


@dataclass
class Share:
    """What one rank does in a plan: chunks, not bytes yet."""

    layout: Layout
    rank: int
    chunks: int
    tmp_chunks: int
    sends: list[Send] = field(default_factory=list)
    receives: list[Receive] = field(default_factory=list)

    def bind(self, inp: Sizes, out: Sizes, itemsize: int) -> Rows:
        """The byte ranges, when chunk c of the input has `inp[c]` elements and chunk c of the output `out[c]`.

        Each buffer holds its slots packed in the order of their indices; `tmp` slot t is as large as chunk t % chunks.
        """
        scratch = np.maximum(inp, out)[np.arange(self.tmp_chunks) % self.chunks]
        sizes = (inp * self.layout.inp[self.rank], out * self.layout.out[self.rank], scratch)
        ends = [np.concatenate(([0], np.cumsum(size))) * itemsize for size in sizes]

        def place(span: Span) -> tuple[int, int, int]:
            begin, end = ends[span.buf][span.chunk], ends[span.buf][span.chunk + span.chunks]
            return span.buf, int(begin), int(end - begin)

        sends = [(s.step, s.mark, *place(s.span), s.peers, s.after, s.staged, s.put) for s in self.sends]
        receives = []
        for r in self.receives:
            sources = [(s.peer, s.mark, *(place(s.span)[:2] if s.peer == LOCAL else (0, 0))) for s in r.sources]
            receives.append((r.step, *place(r.span), sources, r.finished, r.before))
        return Rows(sends, receives, int(ends[TMP][-1]))


class Rows(NamedTuple):
    """A share in bytes, as the native engine takes it."""

    sends: list[tuple[int, int, int, int, int, list[int], int, bool, bool]]
    receives: list[tuple[int, int, int, int, list[tuple[int, int, int, int]], bool, list[int]]]
    tmp_bytes: int

    def heard(self, signals: bool) -> set[int]:
        """The peers that send this rank anything."""
        return {peer for *_, size, sources, _, _ in self.receives if size or signals for peer, *_ in sources} - {LOCAL}

    def told(self, signals: bool) -> set[int]:
        """The peers that this rank sends anything."""
        return {peer for *_, size, peers, _, _, _ in self.sends if size or signals for peer in peers}


def lower(plan: Plan, rank: int, *, in_place: bool = False, spans: bool = True) -> Share:
    """The share of `rank`. With `in_place`, `inp` and `out` share memory wherever both have a slot of one index.

    `spans=False` takes spans apart into single chunks, as segments need it. Raises NotInPlace.
    """
    copied: set[int] = set()
    while True:
        lowering = _Lowering(plan, rank, in_place, copied)
        try:
            for step, front in enumerate(plan.fronts()):
                lowering.front(step, front if spans else front.singles()[1])
        except _Mixed as mixed:
            copied |= set(mixed.args)
            continue
        return lowering.finish()


class _Lowering:
    """The state while the fronts go by."""

    def __init__(self, plan: Plan, rank: int, in_place: bool, copied: set[int]) -> None:
        self.plan, self.rank, self.in_place = plan, rank, in_place
        promise = layout(plan.collective, plan.size, plan.chunks, plan.root)
        self.share = Share(promise, rank, plan.chunks, plan.tmp_chunks)
        self.seeds = {int(c) for c in np.flatnonzero(promise.seed[rank])}
        self.aliased = {int(c) for c in np.flatnonzero(promise.inp[rank] & promise.out[rank])} if in_place else set()
        self.writer: dict[Slot, int] = {}  # the receive that last wrote a slot
        self.readers: dict[Slot, list[int]] = {}  # the sends that have read it since
        for chunk in sorted(copied):
            self.writer[OUT, chunk] = len(self.share.receives)
            self.share.receives.append(_seed(chunk))
        self.users = _Users(plan)
        self.weights = _Weights(plan, promise) if find(plan.collective).reduces else None

    def front(self, step: int, front: Front) -> None:
        if self.weights:
            self.weights.apply(front)
        self.users.enter(front)
        mine = front.take((front.dst_rank == self.rank) | (front.src_rank == self.rank))
        rows = [tuple(row) for row in np.stack(mine.columns(), axis=1).tolist()]
        self._sends(step, [row for row in rows if row[5] == self.rank != row[2]])
        self._receives(step, [row for row in rows if row[2] == self.rank])
        self.users.leave()

    def _sends(self, step: int, rows: list[tuple[int, ...]]) -> None:
        """Reads what was there before the front: so all of its sends come before its receives."""
        once = _once([row[2] for row in rows])
        multicast: dict[Span, Send] = {}
        for verb, to, peer, goes, buf, _, chunk, count in rows:
            span = self._current(Span(buf, chunk, count))
            put = (verb, to, span.buf, goes) == (COPY, OUT, OUT, chunk) and self.users.only(self.rank, peer, span)
            if span in multicast and peer in once:
                multicast[span].peers.append(peer)
                multicast[span].put &= put
                continue
            send = Send(step, _mark(step, buf, chunk), span, [peer], put=put)
            send.after = max((self.writer.get(self._home(slot), NOTHING) for slot in span.slots()), default=NOTHING)
            if peer in once:
                multicast[span] = send
            for slot in span.slots():
                self.readers.setdefault(self._home(slot), []).append(len(self.share.sends))
            self.share.sends.append(send)

    def _receives(self, step: int, rows: list[tuple[int, ...]]) -> None:
        once = _once([row[5] for row in rows if row[5] != self.rank])
        before = dict(self.writer)
        folds: dict[Span, Receive] = {}
        written: dict[Slot, Receive] = {}
        for verb, dst_buf, _, dst_chunk, src_buf, peer, src_chunk, count in rows:
            to, span = Span(dst_buf, dst_chunk, count), Span(src_buf, src_chunk, count)
            local = peer == self.rank
            source = (
                Source(LOCAL, 0, self._current(span, before)) if local else Source(peer, _mark(step, *span[:2]), span)
            )
            fold = folds.get(to)
            if fold is not None and not local and peer not in once:
                fold = None  # two messages from one peer cannot be awaited at once: fold them one by one
            if fold is None:
                if to in folds:
                    folds[to].finished = False
                first = [] if verb == COPY else [Source(LOCAL, 0, self._current(to))]
                fold = folds[to] = Receive(step, to, first)
                fold.before = sorted({send for slot in to.slots() for send in self.readers.pop(self._home(slot), ())})
                for send in fold.before:
                    self.share.sends[send].staged |= self.share.sends[send].step == step
                for slot in to.slots():
                    self.writer[self._home(slot)] = len(self.share.receives)
                self.share.receives.append(fold)
            fold.sources.append(source)
            for slot in source.span.slots() if local else ():
                if written.get(self._home(slot), fold) is not fold:
                    raise NotInPlace
            for slot in to.slots():
                written[self._home(slot)] = fold
            if self.weights and verb == REDUCE:
                fold.finished = self.weights.finished(self.rank, to)

    def finish(self) -> Share:
        """Last, the seeds that no move touched: where `out` is not `inp`, they are copied, before all else."""
        share = self.share
        kept = [] if self.in_place else [c for c in sorted(self.seeds) if (OUT, c) not in self.writer]
        copies = [_seed(c) for c in kept]
        for send in share.sends:
            send.after += len(copies) if send.after != NOTHING else 0
        share.receives[:0] = copies
        return share

    def _current(self, span: Span, writer: dict[Slot, int] | None = None) -> Span:
        """Where the value of `span` lies now: an `out` that is still its seed is read from `inp`."""
        writer = self.writer if writer is None else writer
        slots = list(span.slots())
        fresh = [buf == OUT and c in self.seeds and self._home((buf, c)) not in writer for buf, c in slots]
        if all(fresh) and not self.in_place:
            return span._replace(buf=INP)
        if any(fresh) and not self.in_place:
            raise _Mixed(*(c for (_, c), seed in zip(slots, fresh, strict=True) if seed))
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


def _once(ranks: Sequence[int]) -> set[int]:
    """The ranks that occur exactly once."""
    return {rank for rank in ranks if ranks.count(rank) == 1}


def _mark(step: int, buf: int, chunk: int) -> int:
    """Names a message within its call; computed alike at both ends."""
    return (step * 0x9E3779B1 + (buf << 30) + chunk * 0x85EBCA6B) & 0xFFFFFFFF
