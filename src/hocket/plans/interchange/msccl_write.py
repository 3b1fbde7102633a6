"""A plan as MSCCL's XML: a threadblock for each distance that messages go, and the dependencies between them.

On each gpu, threadblock d sends to the gpu d further on and receives from the one d before: so it has at most one peer
for each, and a ring is one threadblock. What stays on a gpu is done by one without peers. All do their steps in the
order of the plan: front by front, of each the first send of every channel, then move by move, a send before its
receive. So the first step that is not done yet can always go on, however little a channel holds: no circle of waits.

Out of place, `out` of a plan begins as what `inp` holds. In the XML it begins as nothing: as long as such a place is
not written it is read in i, a reduction into it is one of i, and what never was written is copied at the end.

A receive that is followed by a send of the same chunks is one step, `rcs` or `rrcs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from ...errors import PlanError
from ..collectives import find, layout
from ..plan import COPY, INP, OUT, REDUCE, TMP, Front, Plan
from .hazards import Hazards
from .msccl import COLLECTIVES, NOBODY, Span

MOST_CHUNKS = 71  # of one step, by MSCCL's MSCCL_MAX_COUNT
LETTERS = {INP: "i", OUT: "o", TMP: "s"}
FUSED = {"r": "rcs", "rrc": "rrcs"}


def msccl_xml(plan: Plan) -> str:
    """The XML of a plan that has passed `check`, for calls out of place.

    Raises PlanError for a collective that MSCCL has not.
    """
    names = {ours: theirs for theirs, ours in COLLECTIVES.items()}
    if plan.collective not in names:
        raise PlanError(f"MSCCL has no {plan.collective}; it has {', '.join(names)}")
    return _Writer(plan).xml(names[plan.collective])


class _Piece(NamedTuple):
    """A move of a span: `own` is what is folded, where that lies elsewhere than what comes of it."""

    verb: int
    here: int
    src: Span
    there: int
    dst: Span
    own: Span | None


@dataclass(eq=False)
class _Op:
    type: str
    src: Span
    dst: Span
    after: list[_Op]
    tb: int
    place: int  # in its threadblock
    told: bool = False
    number: int = NOBODY  # of its step


@dataclass
class _Block:
    ops: list[_Op] = field(default_factory=list)
    sends: bool = False
    receives: bool = False


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        spec = find(plan.collective)
        self.promise = layout(plan.collective, plan.size, plan.chunks, plan.root)
        block = plan.chunks // plan.size
        self.shift = {"i": block * (spec.gives == "own"), "o": block * (spec.gets == "own"), "s": 0}
        self.begins = {(r, c) for r, c in np.argwhere(self.promise.seed).tolist()}  # `out` that is still what `inp` is
        self.blocks: list[dict[int, _Block]] = [defaultdict(_Block) for _ in range(plan.size)]
        self.hazards: list[Hazards[_Op]] = [Hazards() for _ in range(plan.size)]
        for front in plan.fronts():
            self.emit(list(_joined(list(self.pieces(front)))))
        left = [self.piece(COPY, OUT, r, c, INP, r, c) for r, c in sorted(self.begins)]
        for piece in _joined(left):
            self.op(piece.here, 0, "cpy", piece.src, piece.dst)

    def pieces(self, front: Front) -> Iterator[_Piece]:
        """The moves of a front chunk by chunk, with the places that they have in the XML."""
        _, singles = front.singles()
        for verb, db, dr, dc, sb, sr, sc, _ in zip(*(column.tolist() for column in singles.columns()), strict=True):
            sb = INP if sb == OUT and (sr, sc) in self.begins else sb
            yield self.piece(verb, db, dr, dc, sb, sr, sc)

    def piece(self, verb: int, db: int, dr: int, dc: int, sb: int, sr: int, sc: int) -> _Piece:
        """One of them. Its end is written now."""
        begins = db == OUT and (dr, dc) in self.begins
        if begins:
            self.begins.remove((dr, dc))
        own = self.span(INP, dr, dc) if verb == REDUCE and begins else None
        return _Piece(verb, sr, self.span(sb, sr, sc), dr, self.span(db, dr, dc), own)

    def span(self, buf: int, rank: int, chunk: int) -> Span:
        """What a slot is called in the XML."""
        letter = LETTERS[buf]
        return Span(letter, chunk - self.shift[letter] * rank, 1)

    def emit(self, pieces: list[_Piece]) -> None:
        """The steps of one front: each channel's first send, then the rest in order, a send before its receive."""
        first = {(piece.here, piece.there): piece for piece in reversed(pieces) if piece.here != piece.there}
        for piece in first.values():
            self.send(piece)
        for piece in pieces:
            verb, here, src, there, dst, own = piece
            if here == there:
                if own is not None:
                    self.op(here, 0, "cpy", own, dst)
                self.op(here, 0, "re" if verb == REDUCE else "cpy", src, dst)
                continue
            if first[here, there] is not piece:
                self.send(piece)
            distance = (there - here) % self.plan.size
            if verb == REDUCE:
                self.op(there, distance, "rrc", own or dst, dst)
            else:
                self.op(there, distance, "r", src, dst)

    def send(self, piece: _Piece) -> None:
        """The sending half of a piece."""
        self.op(piece.here, (piece.there - piece.here) % self.plan.size, "s", piece.src, piece.dst)

    def op(self, gpu: int, tb: int, kind: str, src: Span, dst: Span) -> None:
        """Append a step to a threadblock, after all that it must come after."""
        block = self.blocks[gpu][tb]
        block.sends |= kind == "s"
        block.receives |= kind in FUSED
        reads = [] if kind == "r" else _cells(src)
        writes = [] if kind == "s" else _cells(dst)
        after = self.hazards[gpu].before(reads, writes)
        last = block.ops[-1] if block.ops else None
        if kind == "s" and last and last.type in FUSED and last.dst == src and all(op.tb == tb for op in after):
            last.type, op = FUSED[last.type], last
        else:
            op = _Op(kind, src, dst, [op for op in after if op.tb != tb], tb, len(block.ops))
            block.ops.append(op)
        self.hazards[gpu].did(op, reads, writes)

    # ---- text ----

    def xml(self, coll: str) -> str:
        plan = self.plan
        head = {
            "name": plan.algorithm,
            "proto": "Simple",
            "nchannels": 1,
            "nchunksperloop": plan.chunks,
            "ngpus": plan.size,
            "coll": coll,
            **({"root": plan.root} if find(plan.collective).rooted else {}),
            "inplace": 0,
            "outofplace": 1,
            "minBytes": 0,
            "maxBytes": 0,
        }
        lines = [f"<algo{_said(head)}>"]
        for gpu, blocks in enumerate(self.blocks):
            widths = {"i_chunks": self.promise.inp[gpu].sum(), "o_chunks": self.promise.out[gpu].sum()}
            lines.append(f"  <gpu{_said({'id': gpu, **widths, 's_chunks': plan.tmp_chunks})}>")
            lines += self.gpu(gpu, sorted(blocks.items()))
            lines.append("  </gpu>")
        return "\n".join([*lines, "</algo>", ""])

    def gpu(self, gpu: int, blocks: list[tuple[int, _Block]]) -> Iterator[str]:
        """The threadblocks of one gpu."""
        ids = {distance: number for number, (distance, _) in enumerate(blocks)}
        waits = {id(op): after for _, block in blocks for op, after in _needed(block)}
        for _, block in blocks:
            number = 0
            for op in block.ops:
                number += max(0, len(waits[id(op)]) - 1)
                op.number, number = number, number + 1
        for distance, block in blocks:
            send = (gpu + distance) % self.plan.size if block.sends else NOBODY
            recv = (gpu - distance) % self.plan.size if block.receives else NOBODY
            yield f"    <tb{_said({'id': ids[distance], 'send': send, 'recv': recv, 'chan': 0})}>"
            for op in block.ops:
                after: list[_Op | None] = [*waits[id(op)]]
                *more, last = after or [None]
                for k, other in enumerate(more):
                    nothing = Span("i", NOBODY, 0)
                    yield _step(op.number - len(more) + k, "nop", nothing, nothing, ids, other, False)
                yield _step(op.number, op.type, op.src, op.dst, ids, last, op.told)
            yield "    </tb>"


def _needed(block: _Block) -> Iterator[tuple[_Op, list[_Op]]]:
    """The steps of a threadblock, and of what each comes after, what none before it came after already."""
    seen: dict[int, int] = {}
    for op in block.ops:
        latest: dict[int, _Op] = {}
        for other in op.after:
            if other.place > max(seen.get(other.tb, NOBODY), latest[other.tb].place if other.tb in latest else NOBODY):
                latest[other.tb] = other
        for other in latest.values():
            seen[other.tb] = other.place
            other.told = True
        yield op, list(latest.values())


def _cells(span: Span) -> list[tuple[str, int]]:
    return [(span.buf, span.chunk + k) for k in range(span.count)]


def _joined(pieces: list[_Piece]) -> Iterator[_Piece]:
    """Pieces that go on where the one before ended are one."""
    run: list[_Piece] = []
    for piece in pieces:
        if run and (len(run) == MOST_CHUNKS or piece != _next(run[-1])):
            yield _whole(run)
            run = []
        run.append(piece)
    if run:
        yield _whole(run)


def _next(piece: _Piece) -> _Piece:
    src, dst, own = (
        None if span is None else span._replace(chunk=span.chunk + 1) for span in (piece.src, piece.dst, piece.own)
    )
    assert src is not None
    assert dst is not None
    return piece._replace(src=src, dst=dst, own=own)


def _whole(run: list[_Piece]) -> _Piece:
    src, dst, own = (
        None if span is None else span._replace(count=len(run)) for span in (run[0].src, run[0].dst, run[0].own)
    )
    assert src is not None
    assert dst is not None
    return run[0]._replace(src=src, dst=dst, own=own)


def _step(number: int, kind: str, src: Span, dst: Span, ids: dict[int, int], wait: _Op | None, told: bool) -> str:
    values = {
        "s": number,
        "type": kind,
        "srcbuf": src.buf,
        "srcoff": src.chunk,
        "dstbuf": dst.buf,
        "dstoff": dst.chunk,
        "cnt": src.count,
        "depid": ids[wait.tb] if wait else NOBODY,
        "deps": wait.number if wait else NOBODY,
        "hasdep": int(told),
    }
    return f"      <step{_said(values)}/>"


def _said(values: dict[str, object]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in values.items())
