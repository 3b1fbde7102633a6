"""In which order the steps of an XML come: who waits for whom, and whether anybody waits for ever, or for too little.

A step comes after the one before it in its threadblock, after the step that it names, and, if it receives, after the
send that it receives: the k-th receive of a channel gets the k-th send. Sends wait for nobody: channels hold whatever
is under way.

Two steps of one gpu that touch the same chunk, of which one writes it, must come in one order by these rules alone:
then what is computed does not depend on the order in which the rest happens to come. Each threadblock has a clock, how
far it knows all others to be, which goes with whatever another one waits for (Fidge 1988).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...errors import PlanError
from .msccl import NOBODY, RECEIVES, SENDS, Algo, Block, Span, Step

Place: TypeAlias = "tuple[int, int, int]"  # gpu, threadblock, number of the step
Cell: TypeAlias = "tuple[int, str, int]"  # gpu, and a piece of its memory
Clock: TypeAlias = "npt.NDArray[np.int32]"


class Matched:
    """Who waits for whom: `sender[place]` is the send that a step receives, `told[place]` the step it waits for."""

    def __init__(self, algo: Algo) -> None:
        self.blocks = [block for gpu in algo.blocks for block in gpu.values()]
        self.sender: dict[Place, Place] = {}
        self.told: dict[Place, Place] = {}
        self._match()
        for block in self.blocks:
            for step in block.steps:
                if step.waits is not None:
                    self.told[place(step)] = _teller(step, algo.blocks[step.gpu][step.waits[0]])

    def _match(self) -> None:
        """Pair sends and receives, channel by channel."""
        channels: dict[tuple[int, int, int], tuple[list[Block], list[Block]]] = defaultdict(lambda: ([], []))
        for block in self.blocks:
            if block.send != NOBODY:
                channels[block.gpu, block.send, block.chan][0].append(block)
            if block.recv != NOBODY:
                channels[block.recv, block.gpu, block.chan][1].append(block)
        for (src, dst, chan), ends in channels.items():
            both = []
            for blocks, kinds in zip(ends, (SENDS, RECEIVES), strict=True):
                using = [(b, mine) for b in blocks if (mine := [s for s in b.steps if s.type in kinds])]
                if len(using) > 1:
                    first, second = (block for block, _ in using[:2])
                    raise PlanError(
                        f"gpu {first.gpu}: tb {first.tb} and tb {second.tb} have both an end of channel {chan} from "
                        f"gpu {src} to gpu {dst}"
                    )
                both.append(using[0][1] if using else [])
            self._pair(both[0], both[1], f"channel {chan} from gpu {src} to gpu {dst}")

    def _pair(self, sends: list[Step], receives: list[Step], channel: str) -> None:
        for send, receive in zip(sends, receives, strict=False):
            if send.count != receive.count:
                raise PlanError(f"{receive} receives {receive.count} chunks, and {send} sends {send.count}")
            self.sender[place(receive)] = place(send)
        left = (*sends[len(receives) :], *receives[len(sends) :])
        if left:
            what = "no step receives" if len(sends) > len(receives) else "no step sends"
            raise PlanError(f"{left[0]}: {what} this on {channel}; {len(sends)} sends, {len(receives)} receives")


def place(step: Step) -> Place:
    """Where a step is."""
    return step.gpu, step.tb, step.number


def _teller(step: Step, block: Block) -> Place:
    """The step whose end lets `step` go on: the first that tells of itself, from the one that is named on."""
    assert step.waits is not None
    tells = [other for other in block.steps[step.waits[1] :] if other.tells and other.type != "nop"]
    if not tells:
        raise PlanError(f"{step} waits for tb {block.tb}, step {step.waits[1]}, which has hasdep=0: nobody tells it")
    return place(tells[0])


def ordered(algo: Algo, matched: Matched, touched: Callable[[Step], Iterator[tuple[Cell, bool]]]) -> Iterator[Step]:
    """The steps, each after all that it waits for. `touched(step)` are the cells it touches, and whether it
    writes them.

    Raises PlanError for a circle of waits, and for two steps of which nothing says which comes first.
    """
    blocks = matched.blocks
    number = {(block.gpu, block.tb): i for i, block in enumerate(blocks)}
    known = {place(step): step for block in blocks for step in block.steps}
    told = set(matched.told.values())
    clock = np.full((len(blocks), len(blocks)), -1, np.int32)
    after: dict[Place, Clock] = {}  # the clocks at the ends of steps that others wait for
    races = _Races(number)
    at, left, done = [0] * len(blocks), len(known), set[Place]()
    while left:
        before = left
        for i, block in enumerate(blocks):
            if at[i] == len(block.steps):
                continue
            step = block.steps[at[i]]
            needed = [where for where in (matched.told.get(place(step)), matched.sender.get(place(step))) if where]
            if not done.issuperset(needed):
                continue
            for where in needed:
                np.maximum(clock[i], after[where], out=clock[i])
            if place(step) in matched.sender:
                sender = matched.sender[place(step)]
                if sender not in told:
                    del after[sender]
            races.look(step, clock[i], touched(step), known)
            clock[i, i] = at[i]
            if place(step) in told or step.type in SENDS:
                after[place(step)] = clock[i].copy()
            done.add(place(step))
            at[i] += 1
            left -= 1
            yield step
        if left == before:
            heads = {(b.gpu, b.tb): b.steps[at[i]] for i, b in enumerate(blocks) if at[i] < len(b.steps)}
            raise PlanError(_circle(heads, matched, done))


def _circle(heads: dict[tuple[int, int], Step], matched: Matched, done: set[Place]) -> str:
    """Who waits for whom, from a step that waits for itself in the end."""
    chain: list[Step] = []
    step = next(iter(heads.values()))
    while step not in chain:
        chain.append(step)
        told, sent = matched.told.get(place(step)), matched.sender.get(place(step))
        waits_for = told if told is not None and told not in done else sent
        assert waits_for is not None
        step = heads[waits_for[:2]]
    circle = [*chain[chain.index(step) :], step]
    return f"deadlock: {' waits for '.join(map(str, circle))}"


class _Races:
    """Who last wrote each cell, and who has read it since."""

    def __init__(self, number: dict[tuple[int, int], int]) -> None:
        self.number = number
        self.wrote: dict[Cell, Place] = {}
        self.read: dict[Cell, dict[int, Place]] = defaultdict(dict)

    def look(self, step: Step, clock: Clock, touched: Iterator[tuple[Cell, bool]], known: dict[Place, Step]) -> None:
        """Raise PlanError where `step`, which knows the others to be as far as `clock`, may come before another one."""
        mine = self.number[step.gpu, step.tb]
        for cell, writes in touched:
            others = [self.wrote[cell]] if cell in self.wrote else []
            if writes:
                others += self.read.pop(cell, {}).values()
            for other in others:
                theirs = self.number[other[:2]]
                if theirs != mine and clock[theirs] < other[2]:
                    _, buf, chunk = cell
                    raise PlanError(
                        f"{step} and {known[other]}: nothing says which of them comes first at {buf}[{chunk}]"
                    )
            if writes:
                self.wrote[cell] = place(step)
            else:
                self.read[cell][mine] = place(step)


def chunks(span: Span | None) -> range:
    """The chunks of a span; none of none."""
    return range(span.chunk, span.chunk + span.count) if span else range(0)
