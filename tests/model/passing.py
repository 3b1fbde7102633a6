"""Two ranks whose slots pass from one to the other, in all interleavings of some calls.

Each has an ordinary ring, and two pass: in its n-th call whose slots pass, rank r writes to that of number r + n.
Nobody acknowledges that a ring is free; a call ends for a rank when it has read all that is sent to it, and the other
one has entered the call. Of a ring only matters what lies in it unread, and who wrote it for which call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer import Step

CALLS = [(pass_, *messages) for pass_ in (True, False) for messages in ((1, 1), (2, 0), (0, 1), (0, 0))]


class Rank(NamedTuple):
    """The call that it is in, or was in last; whether it still is; how much it has sent and read there; in how many
    calls slots have passed; and what has been sent to it that it has not read: in which ring, and in which call."""

    call: int = -1
    inside: bool = False
    sent: int = 0
    read: int = 0
    passed: int = 0
    unread: tuple[tuple[str, int], ...] = ()


World = tuple[Rank, Rank]


class Passing:
    """Calls, of each of which is known whether slots pass and how many messages each rank sends; or with one mistake,
    which has a name."""

    def __init__(self, calls: tuple[tuple[bool, int, int], ...], mistake: str = "") -> None:
        self.calls, self.mistake = calls, mistake

    def starts(self) -> list[World]:
        return [(Rank(), Rank())]

    def after(self, world: World) -> Iterator[Step[World]]:
        for me in range(2):
            for what, mine, theirs in self._steps(world[me], world[1 - me], me):
                yield (me, what), (mine, theirs) if me == 0 else (theirs, mine)

    def wrong(self, world: World, steps: list[Step[World]]) -> str:
        """In a ring that passes lie messages of one call, all by one rank; and nobody waits for ever."""
        for ring in ("ring 0", "ring 1"):
            writers = {(1 - me, call) for me in range(2) for at, call in world[me].unread if at == ring}
            if len(writers) > 1:
                return f"{ring} was written before it was read"
        done = all(rank.call == len(self.calls) - 1 and not rank.inside for rank in world)
        return "" if steps or done else "they wait for one another"

    def _steps(self, mine: Rank, theirs: Rank, me: int) -> Iterator[tuple[str, Rank, Rank]]:
        if not mine.inside:
            if mine.call + 1 < len(self.calls):
                entered = Rank(mine.call + 1, True, 0, 0, mine.passed + self.calls[mine.call + 1][0], mine.unread)
                yield f"enters {mine.call + 1}", entered, theirs
            return
        pass_, *messages = self.calls[mine.call]
        if mine.sent < messages[me]:
            number = me + (0 if self.mistake == "keeps its ring" else mine.passed)
            ring = f"ring {number % 2}" if pass_ else f"of {me}"
            told = theirs._replace(unread=(*theirs.unread, (ring, mine.call)))
            yield f"writes to {ring}", mine._replace(sent=mine.sent + 1), told
        if mine.unread and mine.unread[0][1] == mine.call:
            yield "reads", mine._replace(read=mine.read + 1, unread=mine.unread[1:]), theirs
        is_through = mine.sent == messages[me] and mine.read == messages[1 - me]
        if is_through and (theirs.call >= mine.call or self.mistake == "ends before all have entered"):
            yield "leaves", mine._replace(inside=False), theirs
