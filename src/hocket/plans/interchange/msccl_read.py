"""What the threadblocks of an XML do, as the fronts of a plan.

Steps are taken one after the other, in an order in which they can happen (`msccl_order.py`), and each move goes into
the earliest front that it may be in: after what it reads was written, after what it overwrites was read, and no earlier
than what its threadblock did before. What a message carries is read in the front in which it is received; where the
place is overwritten before that, it is put aside, in memory of the plan's own.

MSCCL's chunks are all equally large, so that any of them fits any place. A plan's are not: its `tmp(r, t)` is as large
as chunk `t % chunks`. So a place in scratch gets another slot when another chunk comes there. In place, that is with
`inplace="1"`, the buffers i and o share memory as MSCCL has it: in all_gather and gather, i is a rank's own block of o;
in reduce_scatter and scatter, o is its own block of i; in the others they are the same. hocket never writes what the
caller gave, so that what is written there and is no part of the output goes to memory of the plan's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ...errors import PlanError
from ..collectives import find, layout
from ..plan import COPY, INP, OUT, REDUCE, TMP, Front, Plan
from .msccl import Algo, Span, Step
from .msccl_order import Cell, Matched, Place, chunks, ordered, place

Slot: TypeAlias = "tuple[int, int, int]"  # buffer, rank, chunk


def interpreted(algo: Algo) -> Plan:
    """The plan of an algorithm. Raises PlanError, with gpu, tb and step, where the steps wait in a circle, come in no
    certain order, read what was never written, or write what is the caller's; and where a rank's output is not written.
    """
    matched, run = Matched(algo), _Run(algo)
    for step in ordered(algo, matched, run.touched):
        run.take(step, matched)
    run.finish()
    steps = tuple(Front(*np.array(rows, np.int64).T.copy()) for rows in run.rows)
    return Plan(algo.collective, algo.name, algo.size, algo.root, algo.chunks, lambda: steps)


@dataclass
class _Message:
    """What is under way: a slot for each chunk, and those of them that nobody else needs afterwards."""

    front: int
    slots: list[Slot]
    mine: list[Slot] = field(default_factory=list)


class _Run:
    def __init__(self, algo: Algo) -> None:
        self.algo = algo
        try:
            self.promise = layout(algo.collective, algo.size, algo.chunks, algo.root)
        except ValueError as error:
            raise PlanError(str(error)) from error
        spec = find(algo.collective)
        block = algo.chunks // algo.size
        self.shift = {"i": block * (spec.gives == "own"), "o": block * (spec.gets == "own"), "s": 0}
        self.rows: list[list[tuple[int, ...]]] = []
        self.holds: dict[Cell, Slot | None] = {}  # where what a cell holds is now
        self.wrote: dict[Slot, int] = defaultdict(lambda: -1)  # the front that last did
        self.read: dict[Slot, int] = defaultdict(lambda: -1)
        self.front: dict[tuple[int, int], int] = defaultdict(int)  # of a threadblock
        self.ended: dict[Place, int] = {}
        self.messages: dict[Place, _Message] = {}
        self.carried: dict[Slot, list[_Message]] = defaultdict(list)  # the messages that are still to be read there
        self.spare: dict[tuple[int, int], list[Slot]] = defaultdict(list)
        self.used: dict[tuple[int, int], int] = defaultdict(int)

    # ---- cells ----

    def cells(self, gpu: int, span: Span | None) -> list[Cell]:
        """The memory of a span: "v" is where i and o are the same."""
        if span is None:
            return []
        shift = self.shift[span.buf] * gpu
        buf = "v" if self.algo.in_place and span.buf != "s" else span.buf
        if span.buf != "s" and span.chunk + span.count + shift > self.algo.chunks:
            raise PlanError(f"gpu {gpu}: {span.buf}[{span.chunk}:{span.chunk + span.count}] is beyond the vector")
        return [(gpu, buf, chunk + shift) for chunk in chunks(span)]

    def touched(self, step: Step) -> Iterator[tuple[Cell, bool]]:
        """The cells of a step, and whether it writes them: those that it reads first."""
        yield from ((cell, False) for cell in self.cells(step.gpu, step.src))
        yield from ((cell, True) for cell in self.cells(step.gpu, step.dst))

    def slot(self, cell: Cell) -> Slot | None:
        """Where what a cell holds is; None where nothing was written yet."""
        if cell not in self.holds:
            gpu, buf, chunk = cell
            own = OUT if buf == "v" and self.promise.seed[gpu, chunk] else INP
            self.holds[cell] = (own, gpu, chunk) if buf in "iv" and self.promise.inp[gpu, chunk] else None
        return self.holds[cell]

    def held(self, cell: Cell, step: Step) -> Slot:
        """The same for a step that reads it. Raises PlanError where there is nothing."""
        found = self.slot(cell)
        if found is None:
            raise PlanError(f"{step} reads {self.name(cell)}, and nothing was written there before")
        return found

    def name(self, cell: Cell) -> str:
        """What the XML calls it."""
        gpu, buf, chunk = cell
        return f"{'o' if buf == 'v' else buf}[{chunk - self.shift.get(buf, 0) * gpu}]"

    # ---- moves ----

    def move(self, verb: int, dst: Slot, src: Slot, at: int) -> int:
        """Put a move into the first front, from `at` on, that it may be in. That front."""
        for message in self.carried.pop(dst, ()):  # still to be read there
            self.aside(message, dst)
        at = max(at, self.wrote[src] + 1, self.read[dst] + 1, self.wrote[dst] + (verb == COPY))
        while len(self.rows) <= at:
            self.rows.append([])
        self.rows[at].append((verb, *dst, *src, 1))
        self.wrote[dst], self.read[src] = at, max(at, self.read[src])
        return at

    def aside(self, message: _Message, slot: Slot) -> None:
        """Carry what is in `slot` to where it will not be overwritten."""
        kept = self.fresh(slot[1], slot)
        message.front = self.move(COPY, kept, slot, message.front)
        message.slots = [kept if each == slot else each for each in message.slots]
        message.mine.append(kept)
        self.carried[kept].append(message)

    def fresh(self, rank: int, like: Slot) -> Slot:
        """A slot of the plan's own that is as large as another one."""
        chunk = like[2] % self.algo.chunks
        spare = self.spare[rank, chunk]
        if spare:
            return spare.pop()
        self.used[rank, chunk] += 1
        return TMP, rank, chunk + (self.used[rank, chunk] - 1) * self.algo.chunks

    def copy(self, cell: Cell, src: Slot, at: int) -> int:
        """Let `cell` hold what is in `src`. The front in which that is done."""
        gpu, buf, chunk = cell
        now = self.slot(cell)
        if now == src:
            return at
        begins = False  # `out` begins as that copy
        if buf in "ov" and self.promise.out[gpu, chunk]:
            home = (OUT, gpu, chunk)
            begins = now is None and bool(self.promise.seed[gpu, chunk]) and src == (INP, gpu, chunk)
        elif now is not None and now[0] == TMP and (now[2] - src[2]) % self.algo.chunks == 0:
            home = now
        else:
            home = self.fresh(gpu, src)
            if now is not None and now[0] == TMP:
                self.spare[now[1], now[2] % self.algo.chunks].append(now)
        self.holds[cell] = home
        return at if begins else self.move(COPY, home, src, at)

    def fold(self, cell: Cell, src: Slot, at: int, step: Step) -> int:
        """Fold what is in `src` into what `cell` holds."""
        held = self.held(cell, step)
        if held[0] == INP:  # which is never written: it goes on elsewhere
            gpu, _, chunk = cell
            home = (OUT, gpu, chunk) if self.promise.out[gpu, chunk] else self.fresh(gpu, held)
            at = self.move(COPY, home, held, at)
            self.holds[cell] = held = home
        return self.move(REDUCE, held, src, at)

    # ---- steps ----

    def take(self, step: Step, matched: Matched) -> None:
        """Do one step, which has nothing more to wait for."""
        here = place(step)
        at = self.front[here[:2]]
        if here in matched.told:
            at = max(at, self.ended[matched.told[here]])
        message = self.messages.pop(matched.sender[here]) if here in matched.sender else None
        at = max(at, message.front) if message else at
        src, dst = self.cells(step.gpu, step.src), self.cells(step.gpu, step.dst)
        self.look(step, src, dst)
        came = message.slots if message else [self.held(cell, step) for cell in src]
        at = max([at, *(self.wrote[x] + 1 for x in came)])  # the chunks of a step stay together
        sent, mine, end = list[Slot](), list[Slot](), at
        for k, x in enumerate(came):
            front = at
            if step.type in ("r", "rcs", "cpy"):
                front = self.copy(dst[k], x, at)
            elif step.type == "re":
                front = self.fold(dst[k], x, at, step)
            elif step.type in ("rrc", "rrcs"):
                front = self.copy(dst[k], self.held(src[k], step), at)
                front = self.fold(dst[k], x, front, step)
            elif step.type == "rrs":
                own = self.held(src[k], step)
                kept = self.fresh(step.gpu, own)
                front = self.move(REDUCE, kept, x, self.move(COPY, kept, own, at))
                sent.append(kept)
                mine.append(kept)
            if step.type in ("s", "rcs", "rrcs"):
                sent.append(self.held((dst or src)[k], step))
            end = max(end, front)
        if message:
            self.forget(message)
        if sent:
            self.messages[here] = carried = _Message(end, sent, mine)
            for slot in set(sent):
                self.carried[slot].append(carried)
        self.front[here[:2]] = self.ended[here] = end

    def look(self, step: Step, src: list[Cell], dst: list[Cell]) -> None:
        """Raise PlanError for what no step may do."""
        if dst and dst[0][1] == "i":
            raise PlanError(f'{step} writes {self.name(dst[0])}, which is the caller\'s: only inplace="1" may')
        if src != dst and set(src) & set(dst):
            raise PlanError(f"{step} reads and writes {self.name(min(set(src) & set(dst)))}, as another chunk")

    def forget(self, message: _Message) -> None:
        """A message was received."""
        for slot in set(message.slots):
            self.carried[slot] = [other for other in self.carried[slot] if other is not message]
        for slot in message.mine:
            self.spare[slot[1], slot[2] % self.algo.chunks].append(slot)

    def finish(self) -> None:
        """Raise PlanError where a rank has not written all of its output."""
        for gpu, chunk in np.argwhere(self.promise.out).tolist():
            cell = (gpu, "v" if self.algo.in_place else "o", chunk)
            if self.slot(cell) is None:
                raise PlanError(f"gpu {gpu}: {self.name(cell)} is never written")
