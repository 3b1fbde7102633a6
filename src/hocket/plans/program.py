"""One rank's program: what it sends and receives, in chunks (`Share`) or, bound to one call's sizes, in bytes (`Rows`).

    sends       one per slot sent in a front, however many peers get it: it is staged once (multicast)
    receives    one per slot written in a front: out = source ∘ source ∘ ..., in one pass; one source is a copy

A send comes `after` the receive that made its bytes, and, if it is put, the one that last read what it overwrites; a
receive comes after the sends that read what it overwrites, those `before` it. `lower.py` makes a share out of a plan,
and `exchange.py` finds where a reduction can come home.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .collectives import Layout
from .plan import TMP

Slot: TypeAlias = "tuple[int, int]"  # buffer, chunk
Sizes: TypeAlias = "npt.NDArray[np.int64]"  # elements of each chunk

NOTHING = -1
LOCAL = -1


class Span(NamedTuple):
    """`chunks` chunks of one buffer of this rank."""

    buf: int
    chunk: int
    chunks: int

    def slots(self) -> Iterator[Slot]:
        """One by one."""
        return ((self.buf, c) for c in range(self.chunk, self.chunk + self.chunks))


@dataclass
class Send:
    """What is staged once, for all who get it."""

    step: int
    mark: int
    span: Span
    peers: list[int]
    after: int = NOTHING
    staged: bool = False  # overwritten in its own step, so that a view of it could not be awaited
    put: bool = False  # goes to the same place in the peers' `out`, which nobody but this rank reads or writes before
    home: int = NOTHING  # the receive of what its one peer makes of it: that can come back in its slot
    copied: bool = False  # all who get it copy it, and fold nothing


class Source(NamedTuple):
    """An operand of a receive."""

    peer: int  # LOCAL: `span` of this rank
    mark: int
    span: Span


@dataclass
class Receive:
    """out = source ∘ source ∘ ..., in one pass; one source is a copy."""

    step: int
    span: Span
    sources: list[Source]
    finished: bool = False  # the reduction is over all ranks: a mean is divided here
    before: list[int] = field(default_factory=list)
    answer: int = NOTHING  # the send of what this makes, back to where its one message came from


@dataclass
class Share:
    """What one rank does in a plan: chunks, not bytes yet."""

    layout: Layout
    rank: int
    chunks: int
    tmp_chunks: int
    sends: list[Send] = field(default_factory=list)
    receives: list[Receive] = field(default_factory=list)
    exposed: bool = False  # peers may put something into this rank's `out`

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

        sends = [
            SendRow(s.step, s.mark, *place(s.span), s.peers, s.after, s.staged, s.put, s.home, s.copied)
            for s in self.sends
        ]
        receives = []
        for r in self.receives:
            sources = [
                SourceRow(s.peer, s.mark, *(place(s.span)[:2] if s.peer == LOCAL else (0, 0))) for s in r.sources
            ]
            receives.append(ReceiveRow(r.step, *place(r.span), sources, r.finished, r.before, r.answer))
        return Rows(sends, receives, int(ends[TMP][-1]), self.exposed)


class SendRow(NamedTuple):
    """A send in bytes."""

    step: int
    mark: int
    buf: int
    begin: int
    size: int
    peers: list[int]
    after: int
    staged: bool
    put: bool
    home: int
    copied: bool


class SourceRow(NamedTuple):
    """A source in bytes: `buf` and `begin` are of this rank, where the peer is LOCAL."""

    peer: int
    mark: int
    buf: int
    begin: int


class ReceiveRow(NamedTuple):
    """A receive in bytes."""

    step: int
    buf: int
    begin: int
    size: int
    sources: list[SourceRow]
    finished: bool
    before: list[int]
    answer: int


class Rows(NamedTuple):
    """A share in bytes, as the native engine takes it."""

    sends: list[SendRow]
    receives: list[ReceiveRow]
    tmp_bytes: int
    exposed: bool

    def heard(self, signals: bool) -> set[int]:
        """The peers that send this rank anything."""
        return {source.peer for row in self.receives if row.size or signals for source in row.sources} - {LOCAL}

    def told(self, signals: bool) -> set[int]:
        """The peers that this rank sends anything."""
        return {peer for row in self.sends if row.size or signals for peer in row.peers}
