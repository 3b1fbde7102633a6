"""Two ranks that exchange parts through rings of slots, in all interleavings, whatever each of them does with its own.

A part goes out in segments, each is folded, and its sum comes back: in the part's slot where that was lent, else as an
answer. Room in a ring is free when the message there has been read, and fetched again where it was lent, and all before
it are free; a message does not wrap, and where nothing is under way the next one may lie anywhere. What is lent may go
around in a part of the ring. Each rank sends in the order of its sends and receives in that of its receives, (step +
segment, step), as the engine does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer import Step

LENDS, STAGES, VIEWS = "lends", "stages", "views"  # what a rank does with its part; of a view nothing is staged


class Rank(NamedTuple):
    """How far it has come in its sends and its receives, how many segments have come home, and its ring: where the next
    message would begin, and where each began that is not known to be free, with its number."""

    sent: int = 0
    received: int = 0
    home: int = 0
    head: int = 0
    held: tuple[tuple[int, int], ...] = ()


World = tuple[Rank, Rank]


class Lending:
    """The exchange of parts whose segments have these sizes, one part for each rank, through rings of `slots`, of which
    those that are lent begin and end as `around` says; or one with one mistake, which has a name."""

    def __init__(
        self,
        parts: tuple[tuple[int, ...], tuple[int, ...]],
        ways: tuple[str, str],
        slots: int,
        mistake: str = "",
        around: tuple[int, int] | None = None,
    ) -> None:
        self.parts, self.ways, self.slots, self.mistake = parts, ways, slots, mistake
        self.around = around or (0, slots)
        sizes = [(len(parts[me]), len(parts[1 - me])) for me in range(2)]  # its own part, and the other one
        self.sends = [_order("part", own, "answer", other) for own, other in sizes]
        self.receives = [_order("fold", other, "sum", own) for own, other in sizes]

    def starts(self) -> list[World]:
        return [(Rank(), Rank())]

    def after(self, world: World) -> Iterator[Step[World]]:
        for me in range(2):
            for what, mine in self._steps(world[me], world[1 - me], me):
                yield (me, what), (mine, world[1]) if me == 0 else (world[0], mine)

    def wrong(self, world: World, steps: list[Step[World]]) -> str:
        done = all(
            (rank.sent, rank.received) == (len(self.sends[me]), len(self.receives[me])) for me, rank in enumerate(world)
        )
        return "" if steps or done else "they wait for one another"

    def _steps(self, mine: Rank, theirs: Rank, me: int) -> Iterator[tuple[str, Rank]]:
        if mine.sent < len(self.sends[me]):
            yield from self._send(mine, theirs, me)
        lends = self.ways[me] == LENDS
        if mine.received < len(self.receives[me]):
            what, segment = self.receives[me][mine.received]
            if what == "fold":
                is_there = self._has(theirs, 1 - me, "part", segment)
            elif lends:
                is_there = mine.home > segment
            else:
                is_there = self._has(theirs, 1 - me, "answer", segment)
            if is_there:
                yield f"{what} {segment}", mine._replace(received=mine.received + 1)
        if lends and self._is_folded(theirs, 1 - me, mine.home) and mine.home < len(self.parts[me]):
            if self.mistake == "fetches in its turn" and self.receives[me][mine.received :][:1] != [("sum", mine.home)]:
                return
            yield f"fetch {mine.home}", mine._replace(home=mine.home + 1)

    def _send(self, mine: Rank, theirs: Rank, me: int) -> Iterator[tuple[str, Rank]]:
        what, segment = self.sends[me][mine.sent]
        if what == "answer" and not self._is_folded(mine, me, segment):
            return
        label, sent = f"{what} {segment}", mine._replace(sent=mine.sent + 1)
        if (self.ways[1 - me] == LENDS) if what == "answer" else (self.ways[me] == VIEWS):
            yield label, sent
            return
        bytes_ = self.parts[me if what == "part" else 1 - me][segment]
        held = mine.held
        while held and self._is_free(held[0][1], mine, theirs, me):
            held = held[1:]
        first, end = self.around if what == "part" and self.ways[me] == LENDS else (0, self.slots)
        for head in [mine.head] if held else range(self.slots):
            begin = head
            if head % self.slots + bytes_ > end:
                begin = -(-(head - first) // self.slots) * self.slots + first
            tail = held[0][0] if held else head
            has_room = begin + bytes_ - tail <= self.slots
            assert held or has_room, f"an empty ring has no room for {label} behind {head}"
            if has_room:
                base = tail // self.slots * self.slots  # only what lies between is of matter
                moved = tuple((at - base, number) for at, number in (*held, (begin, mine.sent)))
                yield label, sent._replace(head=begin + bytes_ - base, held=moved)

    def _is_free(self, number: int, mine: Rank, theirs: Rank, me: int) -> bool:
        what, segment = self.sends[me][number]
        if what == "answer":
            return self.receives[1 - me].index(("sum", segment)) < theirs.received
        return self._is_folded(theirs, 1 - me, segment) and (self.ways[me] != LENDS or mine.home > segment)

    def _has(self, sender: Rank, who: int, what: str, segment: int) -> bool:
        return self.sends[who].index((what, segment)) < sender.sent

    def _is_folded(self, reader: Rank, who: int, segment: int) -> bool:
        folds = len(self.parts[1 - who])
        return segment < folds and self.receives[who].index(("fold", segment)) < reader.received


def _order(first: str, firsts: int, second: str, seconds: int) -> list[tuple[str, int]]:
    """The segments of a record of one step and of one of the next, by (step + segment, step)."""
    keys = [(k, 0, first) for k in range(firsts)] + [(k + 1, 1, second) for k in range(seconds)]
    return [(what, diagonal - step) for diagonal, step, what in sorted(keys)]
