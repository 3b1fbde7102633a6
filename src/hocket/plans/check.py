"""Run a plan on symbols: `check(plan)` returns what is true of it, or raises PlanError. Read this page second.

Proved for every plan that passes: ranks and spans are in range and every slot named exists · both ends of a move are
equally large, however the vector is cut · `inp` is never written · every slot read was written · no move reads what its
front writes, and of several moves into one slot only the first is a copy · at the end every slot of `out` holds what
the collective promises, each contribution **exactly once**. (At size 1 there is one rank in range: nothing crosses.)

All but the last are exact. The last compares, for each slot, how many contributions it holds and the sum of their
pseudo-random 64-bit names (`symbols.py`). A wrong plan gets both right with probability at most size / 2^64 over the
choice of those names, which no plan knows. Two different brackets look equal with probability about 2^-64.

Then the plan is run again with `inp` and `out` in one memory: `facts.in_place`. An all_to_all that hands blocks on by
way of other ranks has no slots for them but where all blocks are equally large: it passes, without `facts.uneven`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import PlanError
from .collectives import FOLD, Layout, find, layout
from .plan import (
    BUFFERS,
    COPY,
    INP,
    OUT,
    REDUCE,
    TMP,
    Column,
    Plan,
)
from .symbols import Batch, Items, Mask, Memory


@dataclass(frozen=True)
class Facts:
    """What is true of a plan that keeps its promise. The three about brackets are true of one that reduces nothing.

    Of 16-bit floats, which are rounded at the end of each pass, the bits depend on the passes as well as the bracket.
    """

    in_place: bool  # right also where `out` lies in the memory of `inp`
    # All ranks that get a chunk get the same bracket of it, hence the same bits. In a scan, where each gets another
    # reduction, each rank's is that of the rank before, and one operand more.
    same_everywhere: bool
    size_invariant: bool  # all chunks have one and the same bracket: the bits do not depend on how the vector is cut
    rank_order: bool  # operands are folded in the order of ranks: right for operators that do not commute
    uneven: bool = True  # right also where blocks differ in size, each rank's in its own way: an all_to_all may not be


def check(plan: Plan) -> Facts:
    """The facts of a plan that keeps its collective's promise. Raises PlanError for any other."""
    promise = _promise(plan)
    memory = Memory(plan, promise)
    rules = _Rules(plan, memory)
    for batch in Batch.of(plan):
        rules.look_at(batch)
        rules.check_names()
        items = memory.items(batch)
        rules.check_slots(items)
        for front in batch.split(items):
            rules.check_values(front)
            memory.apply(front)
    wrong = np.argwhere(memory.wrong())
    if len(wrong):
        raise PlanError(f"{plan!r}: {_explain(plan, promise, *(int(x) for x in wrong[0]))}")
    return Facts(_in_place(plan, promise), *_brackets(memory, find(plan.collective).scans), rules.uneven)


def look(plan: Plan) -> None:
    """Raise PlanError for a move that names what is not there. Beyond that nothing is proved."""
    rules = _Rules(plan, Memory(plan, _promise(plan)))
    for batch in Batch.of(plan):
        rules.look_at(batch)
        rules.check_names()


def _promise(plan: Plan) -> Layout:
    _ = plan.tmp_chunks  # a plan with more moves than can be meant ends here, before there are tables of its slots
    try:
        return layout(plan.collective, plan.size, plan.chunks, plan.root)
    except ValueError as error:
        raise PlanError(f"{plan!r}: {error}") from error


def _in_place(plan: Plan, promise: Layout) -> bool:
    memory = Memory(plan, promise, aliased=True)
    for batch in Batch.of(plan):
        for front in batch.split(memory.items(batch)):
            memory.apply(front)
    return not memory.wrong().any()


def _brackets(memory: Memory, scans: bool) -> tuple[bool, bool, bool]:
    """same_everywhere, size_invariant, rank_order."""
    got = memory.promise.rank == FOLD
    _, bracket, _, first = memory.final()
    ordered = bool((first == 0)[got].all())
    if scans:
        same = bool((bracket == memory.left_folds())[got].all())
        return same, bool((bracket == bracket[:, :1])[got].all()), ordered
    one = np.where(got, bracket, 0).max(axis=0)  # a bracket of each chunk that somebody gets
    chunks = one[got.any(axis=0)]
    same = bool((bracket == one)[got].all())
    return same, same and bool((chunks == chunks[:1]).all()), ordered


class _Rules:
    """The rules that every front keeps, asked of a batch of them as far as what the slots hold is no matter."""

    def __init__(self, plan: Plan, memory: Memory) -> None:
        self.plan, self.memory = plan, memory
        self.there = np.concatenate((memory.promise.inp.ravel(), memory.promise.out.ravel()))
        self.size, self.size_of_equals = _sizes(plan, memory.promise)
        self.uneven = True
        self.writes, self.fronts = (
            np.zeros(memory.slots, np.int32),
            0,
        )  # which front last wrote a slot, and how many were

    def look_at(self, batch: Batch) -> None:
        """From now on it is these fronts that are spoken of."""
        self.batch = batch

    def refuse(self, bad: Mask, what: str, rows: Column | None = None) -> None:
        """Raise PlanError for the first move that is bad. `{dst}` and `{src}` in `what` stand for its two ends."""
        if not bad.any():
            return
        at = int(np.argmax(bad))
        row = at if rows is None else int(rows[at])
        within = 0 if rows is None else at - int(np.argmax(rows == row))
        front, step = self.batch.all, int(self.batch.step[row])
        columns = [int(column[row]) for column in front.columns()]
        verb, db, dr, dc, sb, sr, sc, _ = columns
        known = verb in (COPY, REDUCE) and {db, sb} <= {INP, OUT, TMP}
        ends = {"dst": _name(db, dr, dc + within), "src": _name(sb, sr, sc + within)} if known else {}
        move = front.describe(row) if known else f"columns {columns}"
        number, index = self.batch.first + step, row - int(np.argmax(self.batch.step == step))
        where = self.plan.line_of(number)
        raise PlanError(f"{self.plan!r}, step {number}, move {index} ({move}): {what.format(**ends)}{where}")

    def check_names(self) -> None:
        """Everything that is named exists."""
        f, memory, n = self.batch.all, self.memory, self.plan.size
        for buf in (f.dst_buf, f.src_buf):
            self.refuse((buf < INP) | (buf > TMP), "the buffer is none of inp, out and tmp")
        self.refuse((f.verb != COPY) & (f.verb != REDUCE), "the verb is neither copy nor reduce")
        self.refuse(f.count < 1, "the span is empty")
        for end, (buf, rank, chunk) in (("{dst}", f.columns()[1:4]), ("{src}", f.columns()[4:7])):
            self.refuse((rank < 0) | (rank >= n), f"{end} is on none of the ranks 0 to {n - 1}")
            beyond = (chunk < 0) | (chunk + f.count > memory.width[buf])
            self.refuse(beyond, f"the span from {end} on leaves the chunks 0 to {self.plan.chunks - 1}")
        self.refuse(f.dst_buf == INP, "{dst} is written, and inp is the caller's")

    def check_slots(self, items: Items) -> None:
        """Every slot is there, is as large as the other end, and has no conflict."""
        row, verb, dst, src, turn = items
        last = len(self.there) - 1
        for end, at in (("{dst}", dst), ("{src}", src)):
            self.refuse((at <= last) & ~self.there[np.minimum(at, last)], f"{end} is no slot of this collective", row)
        differ = self.size_of_equals[dst] != self.size_of_equals[src]
        self.refuse(differ, "{dst} and {src} need not be equally large", row)
        self.uneven &= bool((self.size[dst] == self.size[src]).all())
        self.refuse((turn > 0) & (verb == COPY), "{dst} is copied to after another move of this step wrote it", row)

    def check_values(self, items: Items) -> None:
        """Every slot of one front was written before it is read, and by none of its own moves."""
        leaves, (row, verb, dst, src, turn) = self.memory.leaves, items
        self.writes[dst] = self.fronts = self.fronts + 1
        self.refuse(self.writes[src] == self.fronts, "{src} is read, and a move of the same step writes it", row)
        self.refuse(leaves[src] == 0, "{src} is read, and was never written", row)
        onto_nothing = (leaves[dst] == 0) & (verb == REDUCE) & (turn == 0)
        self.refuse(onto_nothing, "{dst} is reduced into, and was never written", row)


def _sizes(plan: Plan, promise: Layout) -> tuple[Column, Column]:
    """A number for each address of the memory: slots of the same number are equally large, by the first column however
    the vector is cut, by the second where all blocks are equally large. Only in an all_to_all do they differ."""
    n, chunks = promise.inp.shape
    rank, chunk = np.indices((n, chunks))
    tmp = np.indices((n, plan.tmp_chunks))
    same = np.concatenate((chunk.ravel(), chunk.ravel(), tmp[1].ravel() % chunks))
    if not find(plan.collective).transposed:
        return same, same
    inp, out = rank * chunks + chunk, promise.rank * chunks + promise.chunk
    own = np.concatenate((inp.ravel(), out.ravel(), (tmp[0] * chunks + tmp[1] % chunks).ravel()))
    return own, same % (chunks // n)


def _name(buf: int, rank: int, chunk: int) -> str:
    return f"rank {rank}'s {BUFFERS[buf]}[{chunk}]"


def _explain(plan: Plan, promise: Layout, rank: int, chunk: int) -> str:
    """Why out[chunk] of `rank` is wrong: exactly what came into it, found by following the plan backwards; and the line
    of the step that wrote it last, or, where none did, of the last step."""
    memory, writer, line, step = Memory(plan, promise), "no move ever writes it", "", -1
    here = int(memory.address(*(np.array([x]) for x in (OUT, rank, chunk)))[0])
    times = np.zeros(memory.slots)  # how often what is in each slot now ends up in this one
    times[here] = 1
    fronts = (
        (batch, number, items)
        for batch in Batch.of(plan)
        for number, items in enumerate(batch.split(memory.items(batch)))
    )
    for batch, number, (row, verb, dst, src, turn) in reversed(tuple(fronts)):
        step = max(step, batch.first + number)
        if here in dst and writer.startswith("no"):
            move, written = batch.all.describe(int(row[dst == here][-1])), batch.first + number
            writer, line = f"last written in step {written} by {move}", plan.line_of(written)
        flow = times[dst]
        times[dst[(verb == COPY) & (turn == 0)]] = 0
        np.add.at(times, src, flow)
    given, seeded, _ = np.split(times, memory.base[1:])
    came = given.reshape(promise.inp.shape) + np.where(promise.seed, seeded.reshape(promise.inp.shape), 0)
    wanted = np.zeros_like(came)
    folds, ranks = promise.rank[rank, chunk] == FOLD, promise.ranks[rank, chunk]
    wanted[slice(ranks) if folds else promise.rank[rank, chunk], promise.chunk[rank, chunk]] = 1
    differ = [(int(r), int(c)) for r, c in np.argwhere(came != wanted)]
    said = [_difference(r, c, int(came[r, c]), bool(wanted[r, c])) for r, c in differ[:4]]
    more = f" and {len(differ) - 4} more" if len(differ) > 4 else ""
    return f"{_name(OUT, rank, chunk)} ends wrong: {', '.join(said)}{more} ({writer}){line or plan.line_of(step)}"


def _difference(rank: int, chunk: int, came: int, wanted: bool) -> str:
    """One contribution that did not come as often as it should."""
    if not came:
        return f"rank {rank}'s contribution (chunk {chunk}) is missing"
    if not wanted:
        return f"rank {rank}'s chunk {chunk} came and does not belong here"
    return f"rank {rank}'s contribution (chunk {chunk}) came {'twice' if came == 2 else f'{came} times'}"
