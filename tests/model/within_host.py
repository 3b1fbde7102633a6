"""How ranks that share memory agree on one verdict. A word outlives who wrote it, and changes in one instruction.

    gate[r]      the last call that r completed, and whether it is shut      only r counts up, anybody shuts
    finding[r]   whom r takes for lost; written before it is proposed        only r writes
    verdict      nobody, or the rank whose finding counts for all            the first to put itself there

- To complete call k a rank has seen all enter it, has read their arrays, and then turns its gate from (k - 1, open) to
  (k, open). If the gate is shut the call has failed.
- Who finds an error writes its finding and puts itself into `verdict`, if nobody is there. Then, as everybody who
  sees a verdict, it shuts *all* gates. Shut gates stand still: whoever reads them now, reads the same.
- Only then its error is raised, and its arrays are its own again. Who read them since cannot get through its gate.

Nobody waits for anybody but with a deadline, and a deadline needs no other rank: alone, each gets to its report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer import Step

CALLS = 2
SHUT = 100  # a gate is the number of the last call, and this if it is shut

# Whose finding, whether it was written, all gates: what it says follows from them.
Report = tuple[int, int, tuple[int, ...]]


class Rank(NamedTuple):
    """Where a rank is in its program, and what it holds of its own."""

    at: str = "enter"
    gate: int = 0  # that it shuts next
    stale: bool = False  # it read an array that its owner had filled anew
    good: int = 0  # calls that it returned from well
    report: Report | None = None


class World(NamedTuple):
    """What is shared, and the ranks."""

    entered: tuple[int, ...]
    gates: tuple[int, ...]
    findings: tuple[int, ...]  # whether it is written: it says nothing that others act on
    verdict: int
    ranks: tuple[Rank, ...]


def put(row: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    """The row with another value at this place."""
    return (*row[:index], value, *row[index + 1 :])


class WithinHost:
    """The protocol; or one with one mistake, which has a name."""

    def __init__(self, size: int, mistake: str = "") -> None:
        self.size, self.mistake = size, mistake

    def start(self) -> World:
        zeros = (0,) * self.size
        return World(zeros, zeros, zeros, -1, (Rank(),) * self.size)

    def after(self, world: World) -> Iterator[Step[World]]:
        for me, rank in enumerate(world.ranks):
            step = getattr(self, f"at_{rank.at}", None)
            for what, shared, mine in step(world, me, rank) if step else ():
                yield (me, what), shared._replace(ranks=put(shared.ranks, me, mine))
            if rank.at in ("enter", "wait", "complete"):  # an error may be found, rightly or not, at any time
                found = world._replace(findings=put(world.findings, me, 1))
                if self.mistake == "proposed before written":
                    found = world
                at = "shut" if self.mistake == "gates shut first" else "propose"
                yield (me, "finds an error"), found._replace(ranks=put(world.ranks, me, rank._replace(at=at)))
                if world.verdict >= 0:
                    yield (me, "sees the verdict"), world._replace(ranks=put(world.ranks, me, rank._replace(at="shut")))

    # ── a call ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def at_enter(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        if rank.good < CALLS:
            yield "enters", world._replace(entered=put(world.entered, me, rank.good + 1)), rank._replace(at="wait")

    def at_wait(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        """One look at all: words only grow, and arrays only go stale, so that the last look shows the most."""
        if min(world.entered) > rank.good:
            raised = ("over", "shut") if self.mistake == "raised before shut" else ("over",)
            stale = any(other.at in raised for other in world.ranks)
            yield "has read all arrays", world, rank._replace(at="complete", stale=stale)

    def at_complete(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        if world.gates[me] >= SHUT:
            yield "finds its gate shut", world, rank._replace(at="shut")
        elif self.mistake == "plain store":
            yield "finds its gate open", world, rank._replace(at="store")
        else:
            yield from self.at_store(world, me, rank)

    def at_store(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        gates = put(world.gates, me, rank.good + 1)
        yield "completes", world._replace(gates=gates), rank._replace(at="enter", good=rank.good + 1)

    # ── a failure ────────────────────────────────────────────────────────────────────────────────────────────────────

    def at_propose(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        won = world.verdict < 0
        if self.mistake == "looks, then stores" and won:
            yield "sees no verdict", world, rank._replace(at="overwrite")
        else:
            at = "write" if self.mistake == "proposed before written" else "shut"
            yield (
                ("wins" if won else "loses"),
                world._replace(verdict=me if won else world.verdict),
                rank._replace(at=at),
            )

    def at_overwrite(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        yield "stores its verdict", world._replace(verdict=me), rank._replace(at="shut")

    def at_write(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        yield "writes", world._replace(findings=put(world.findings, me, 1)), rank._replace(at="shut")

    def at_shut(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        if self.mistake == "nobody helps" and world.verdict != me:
            if all(gate >= SHUT for gate in world.gates):
                yield "sees all gates shut", world, rank._replace(at="read")
        elif self.mistake == "shuts only its own" and rank.gate != me:
            yield "passes", world, self.beyond(rank, "read")
        else:
            gate = world.gates[rank.gate]
            gates = put(world.gates, rank.gate, gate if gate >= SHUT else gate + SHUT)
            yield f"shuts gate {rank.gate}", world._replace(gates=gates), self.beyond(rank, "read")

    def at_read(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        """All gates at once: they stand still, which `wrong` sees to."""
        if self.mistake == "gates shut first" and world.verdict < 0:
            yield "sees no verdict", world, rank._replace(at="store_late")
        else:
            yield from self.report(world, me, rank)

    def beyond(self, rank: Rank, after: str) -> Rank:
        last = rank.gate + 1 == self.size
        return rank._replace(at=after if last else rank.at, gate=0 if last else rank.gate + 1)

    def at_store_late(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        yield "stores its verdict", world._replace(verdict=me), rank._replace(at="read")

    def report(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        winner = world.verdict
        if self.mistake == "the loser reports its own" and world.findings[me]:
            winner = me
        yield "reports", world, Rank("over", good=rank.good, report=(winner, world.findings[winner], world.gates))

    # ── what must not happen ─────────────────────────────────────────────────────────────────────────────────────────

    def wrong(self, world: World, steps: list[Step[World]]) -> str:
        reports = {rank.report for rank in world.ranks if rank.report}
        if len(reports) > 1:
            return f"reports differ: {sorted(reports)}"
        for _, written, gates in reports:
            if not written:
                return "nothing was found"
            if min(gates) < SHUT:
                return "a gate is read that is open"
            if any(rank.good != gate - SHUT for rank, gate in zip(world.ranks, gates, strict=True)):
                return "a call succeeds, or fails, other than the report says"
        if any(rank.stale and rank.at == "enter" for rank in world.ranks):
            return "a call succeeds with arrays of the next"
        movable = {label[0] for label, _ in steps}
        for me, rank in enumerate(world.ranks):
            if rank.at != "over" and me not in movable:
                return f"{me} needs another rank to go on"
        return ""
