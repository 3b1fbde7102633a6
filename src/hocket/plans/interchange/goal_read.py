"""A schedule in GOAL as a plan, as far as the one maps to the other: a schedule says who speaks to whom and who waits
for what, but nothing of the data.

    rank 1 {                                    what it can be asked is who hears of whom. So each message carries all
      l1: recv 8b from 0 tag 0                  that its sender has heard of in what the send requires, and the whole
      l2: send 8b to 2 tag 0                    is a barrier, in which every rank hears of every other, or, from one
      l2 requires l1                            root, a broadcast.
    }

An all_reduce, an all_gather or an all_to_all that is no barrier has lost something: a message, or a line "requires".
How many bytes a message has is compared between its two ends, and forgotten. A message is in the first step after all
those that its ends wait for. `irequires`, which waits for another's begin, orders and carries nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import numpy as np

from ...errors import PlanError
from ..plan import COPY, INP, MOST_MOVES, OUT, TMP, Front, Plan

Place: TypeAlias = "tuple[int, str]"  # a rank, and a label

MOST_RANKS = 1 << 14
_COMMENT = re.compile(r"/\*.*?\*/|(?://|#)[^\n]*", re.DOTALL)
_BLOCK = re.compile(r"rank\s+(\d{1,9})\s*\{")
_SPEAKS = re.compile(
    r"(\w+)\s*:\s*(send|recv)\s+(\d{1,18})b\s+(?:to|from)\s+(\d{1,9})(?:\s+tag\s+(\d{1,18}))?(?:\s.*)?"
)
_WORKS = re.compile(r"(\w+)\s*:\s*calc\s+\d+(?:\s.*)?")
_WAITS = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")


@dataclass
class _Op:
    """What a rank does: sends, receives, or computes; after what, and which of that it needs not only to have begun."""

    line: int
    kind: str
    nbytes: int = 0
    peer: int = -1
    tag: int = 0
    after: list[Place] = field(default_factory=list)
    needs: list[Place] = field(default_factory=list)


def schedule(text: str, root: int | None = None) -> Plan:
    """The plan of a barrier, or with `root` of a broadcast, that a schedule is.

    Raises PlanError, with rank, label and line, for what is no schedule, a send without a receive, a receive without a
    send, two ends that differ in size, and operations that wait for each other in a circle.
    """
    size, ops = _parsed(text)
    if root is not None and root >= size:
        raise PlanError(f"the root is {root}, and there are {size} ranks")
    sends = _matched(ops)
    heard = dict.fromkeys(ops, 0)  # which ranks' tokens, as bits
    steps = dict.fromkeys(ops, 0)  # the first step that comes after it
    messages = defaultdict[int, list[tuple[int, int, int]]](list)
    for place in _sorted(ops):
        op = ops[place]
        for other in (*op.after, *op.needs):
            steps[place] = max(steps[place], steps[other])
        for other in op.needs:
            heard[place] |= heard[other]
        if op.kind == "send":
            heard[place] |= 1 << place[0] if root is None or root == place[0] else 0
            if not heard[place]:
                raise PlanError(f"{_said(place, op)} sends before it has heard of rank {root}")
        elif op.kind == "recv":
            messages[steps[place]].append((sends[place][0], place[0], heard[sends[place]]))
            heard[place] |= heard[sends[place]]
            steps[place] += 1
    fronts = [*_fronts(size, root, messages)]
    collective, chunks = ("barrier", size) if root is None else ("broadcast", 1)
    return Plan(collective, "goal", size, root or 0, chunks, lambda: iter(fronts))


def _parsed(text: str) -> tuple[int, dict[Place, _Op]]:
    """The number of ranks, and what each of them does, by its label."""
    size, rank, ops = 0, -1, dict[Place, _Op]()
    lines = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text).splitlines()
    for number, words in enumerate(map(str.strip, lines), 1):
        if not words:
            continue
        if head := re.fullmatch(r"num_ranks\s+(\d{1,9})", words):
            size = int(head[1])
            if not 1 <= size <= MOST_RANKS:
                raise PlanError(f"line {number}: num_ranks is 1 to {MOST_RANKS}, not {size}")
        elif block := _BLOCK.fullmatch(words):
            rank = int(block[1])
            if rank >= size:
                raise PlanError(f"line {number}: rank {rank}, and num_ranks is {size}")
        elif words == "}" and rank >= 0:
            rank = -1
        elif rank < 0 or not _read(words, rank, number, size, ops):
            raise PlanError(f"line {number} is no line of a schedule here: {words[:60]!r}")
    if not size:
        raise PlanError("no line says num_ranks")
    for place, op in ops.items():
        for other in (*op.after, *op.needs):
            if other not in ops:
                raise PlanError(f"{_said(place, op)} requires {other[1]}, which there is not")
    return size, ops


def _read(words: str, rank: int, number: int, size: int, ops: dict[Place, _Op]) -> bool:
    """Take in a line of a rank's block. False where it is none."""
    if waits := _WAITS.fullmatch(words):
        if (rank, waits[1]) not in ops:
            raise PlanError(f"line {number}: rank {rank} has no {waits[1]} above it")
        op = ops[rank, waits[1]]
        (op.needs if waits[2] == "requires" else op.after).append((rank, waits[3]))
        return True
    speaks, works = _SPEAKS.fullmatch(words), _WORKS.fullmatch(words)
    if speaks:
        label, kind, nbytes, peer, tag = speaks.groups()
        op = _Op(number, kind, int(nbytes), int(peer), int(tag or 0))
        if not 0 <= op.peer < size or op.peer == rank:
            raise PlanError(f"line {number}: rank {rank} speaks to rank {op.peer}, and there are {size}")
    elif works:
        label, op = works[1], _Op(number, "calc")
    else:
        return False
    if (rank, label) in ops:
        raise PlanError(f"line {number}: rank {rank} has two {label}")
    if len(ops) >= MOST_MOVES:
        raise PlanError(f"more than {MOST_MOVES} operations")
    ops[rank, label] = op
    return True


def _matched(ops: dict[Place, _Op]) -> dict[Place, Place]:
    """The send of each receive: the k-th to it with that tag."""
    queues = {kind: defaultdict[tuple[int, int, int], list[Place]](list) for kind in ("send", "recv")}
    for (rank, label), op in ops.items():
        if op.kind != "calc":
            ends = (rank, op.peer) if op.kind == "send" else (op.peer, rank)
            queues[op.kind][(*ends, op.tag)].append((rank, label))
    found = dict[Place, Place]()
    for key in list(dict.fromkeys((*queues["send"], *queues["recv"]))):
        sent, got = queues["send"][key], queues["recv"][key]
        if len(sent) != len(got):
            lonely = sent[len(got)] if len(sent) > len(got) else got[len(sent)]
            does = "receives" if len(sent) > len(got) else "sends"
            raise PlanError(f"{_said(lonely, ops[lonely])}: rank {ops[lonely].peer} {does} nothing that fits it")
        for send, recv in zip(sent, got, strict=True):
            if ops[send].nbytes != ops[recv].nbytes:
                sizes = f"{ops[send].nbytes} and {ops[recv].nbytes} bytes"
                raise PlanError(f"{_said(send, ops[send])} and {_said(recv, ops[recv])} differ: {sizes}")
            found[recv] = send
            ops[recv].after.append(send)
    return found


def _sorted(ops: dict[Place, _Op]) -> Iterator[Place]:
    """All operations, each after what it waits for."""
    graph = TopologicalSorter({place: (*op.after, *op.needs) for place, op in ops.items()})
    try:
        yield from graph.static_order()
    except CycleError as error:
        circle = ", ".join(_said(place, ops[place]) for place in error.args[1][:8])
        raise PlanError(f"these wait for each other in a circle: {circle}") from error


def _said(place: Place, op: _Op) -> str:
    return f"rank {place[0]}'s {place[1]} (line {op.line})"


def _fronts(size: int, root: int | None, messages: dict[int, list[tuple[int, int, int]]]) -> Iterator[Front]:
    """The steps. A message brings what its receiver has not, and if that is nothing, something that nobody reads."""
    holds = [(1 << rank if root is None or root == rank else 0) for rank in range(size)]
    moves = 0
    for step in sorted(messages):
        brought, spare, rows = [0] * size, Counter[tuple[int, int]](), list[tuple[int, ...]]()
        for src, dst, heard in messages[step]:
            news = heard & ~(holds[dst] | brought[dst])
            brought[dst] |= news
            tokens = [k for k in range(size) if news >> k & 1] if root is None else [0] * bool(news)
            rows += [(COPY, OUT, dst, token, OUT, src, token, 1) for token in tokens]
            if not tokens:
                own = (INP, src, src) if root is None else (OUT, src, 0)  # of which tmp has as many as it takes
                rows.append((COPY, TMP, dst, own[2] + spare[own[2], dst] * (size if root is None else 1), *own, 1))
                spare[own[2], dst] += 1
        moves += len(rows)
        if moves > MOST_MOVES:
            raise PlanError(f"more than {MOST_MOVES} moves")
        holds = [held | new for held, new in zip(holds, brought, strict=True)]
        yield Front(*np.array(rows, np.int64).T.copy())
