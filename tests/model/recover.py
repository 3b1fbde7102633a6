"""How the survivors within a host form a new group, or all see that they did not.

    came[r]       the attempt that r takes part in             proposal[r]   who came, as r saw it
    formed[r]     the attempt that r has linked itself for      round         (attempt, stage, whose proposal counts)

    round:  (0, failed) ─ propose ─▶ (1, forming, r) ─ all formed ─▶ (1, committed, r)       for ever
                                          └────────── anybody ─────▶ (1, failed, r) ─ propose ─▶ (2, forming, q)

`round` only changes by compare-and-swap, so that each attempt has one proposal and one end. Who does not get its way
takes what is there. Who is not in the proposal is evicted. A rank may take another for dead at any time, and its own
links may fail at any time: it then tries to fail the attempt; has that been committed, it is a member all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer import Step

ATTEMPTS = 2
FAILED, FORMING, COMMITTED = "failed", "forming", "committed"

Round = tuple[int, str, int]


class Rank(NamedTuple):
    """Where a rank is in its program, and what it holds of its own."""

    at: str = "come"
    attempt: int = 1
    members: frozenset[int] = frozenset()
    held: Round = (0, FAILED, -1)  # the round, as it last saw it


class World(NamedTuple):
    """What is shared, and the ranks."""

    came: tuple[int, ...]
    proposals: tuple[frozenset[int], ...]
    formed: tuple[int, ...]
    round: Round
    ranks: tuple[Rank, ...]


def put(row: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    """The row with another value at this place."""
    return (*row[:index], value, *row[index + 1 :])


class Recover:
    """The protocol; or one with one mistake, which has a name."""

    def __init__(self, size: int, mistake: str = "") -> None:
        self.size, self.mistake = size, mistake

    def start(self) -> World:
        zeros = (0,) * self.size
        first = Rank(at="gather")  # somebody comes first, and ranks are alike
        ranks = (first, *(Rank(),) * (self.size - 1))
        return World((1, *zeros[1:]), (frozenset[int](),) * self.size, zeros, (0, FAILED, -1), ranks)

    def after(self, world: World) -> Iterator[Step[World]]:
        for me, rank in enumerate(world.ranks):
            if step := getattr(self, f"at_{rank.at}", None):
                for what, shared, mine in step(world, me, rank):
                    yield (me, what), self.tidy(shared._replace(ranks=put(shared.ranks, me, mine)))

    def tidy(self, world: World) -> World:
        """The same world in fewest words: forget proposals that nobody can take up any more, and links given up."""
        named = {world.round[2], *(rank.held[2] for rank in world.ranks)}
        kept = [rank.at == "propose" or me in named for me, rank in enumerate(world.ranks)]
        proposals = tuple(row if keep else frozenset[int]() for row, keep in zip(world.proposals, kept, strict=True))
        linked = [rank.at in ("watch", "commit", "refuse", "store", "member") for rank in world.ranks]
        formed = tuple(row if keep else 0 for row, keep in zip(world.formed, linked, strict=True))
        return world._replace(proposals=proposals, formed=formed)

    def at_come(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        yield "comes", world._replace(came=put(world.came, me, rank.attempt)), rank._replace(at="gather")

    def at_gather(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        """Any of those who came, since it may have looked too early for the others."""
        here = [other for other in range(self.size) if other != me and world.came[other] >= rank.attempt]
        for chosen in range(1 << len(here)):
            members = frozenset([me, *(other for bit, other in enumerate(here) if chosen >> bit & 1)])
            shared = world._replace(proposals=put(world.proposals, me, members))
            yield f"writes {sorted(members)}", shared, rank._replace(at="propose")

    def at_propose(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        if world.round[:2] == (rank.attempt - 1, FAILED):
            new, members = (rank.attempt, FORMING, me), world.proposals[me]
            yield "proposes", world._replace(round=new), rank._replace(at="link", members=members)
        elif self.mistake == "keeps its own":
            yield "loses", world, rank._replace(at="link", members=world.proposals[me])
        else:
            yield "loses", world, rank._replace(at="adopt", held=world.round)

    def at_adopt(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        members = world.proposals[rank.held[2]]
        if me in members:
            yield f"adopts {sorted(members)}", world, Rank("link", rank.attempt, members)
        else:
            yield "is evicted", world, Rank("evicted", rank.attempt)

    def at_link(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        at = "member" if self.mistake == "no commit" else "watch"
        shared = world._replace(formed=put(world.formed, me, rank.attempt))
        yield "links itself", shared, rank._replace(at=at)
        yield "fails to link", world, rank._replace(at="refuse")

    def at_watch(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        if self.mistake == "hasty" or all(world.formed[other] == rank.attempt for other in rank.members):
            yield "sees all formed", world, rank._replace(at="commit")
        yield "gives up", world, rank._replace(at="refuse")

    def at_commit(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        yield self.end(world, rank, COMMITTED)

    def at_refuse(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        if self.mistake == "plain store" and world.round[:2] == (rank.attempt, FORMING):
            yield "sees it forming", world, rank._replace(at="store")
        else:
            yield self.end(world, rank, FAILED)

    def at_store(self, world: World, me: int, rank: Rank) -> Iterator[tuple[str, World, Rank]]:
        failed = (rank.attempt, FAILED, world.round[2])
        yield "stores failed", world._replace(round=failed), self.next(rank)

    def end(self, world: World, rank: Rank, wanted: str) -> tuple[str, World, Rank]:
        """Compare-and-swap of the round from forming to what is wanted; what is there then holds."""
        if world.round[:2] == (rank.attempt, FORMING):
            world = world._replace(round=(rank.attempt, wanted, world.round[2]))
        attempt, stage, _ = world.round
        committed = (attempt, stage) == (rank.attempt, COMMITTED)
        return f"wants {wanted}, has {stage}", world, rank._replace(at="member") if committed else self.next(rank)

    def next(self, rank: Rank) -> Rank:
        return Rank(at="come" if rank.attempt < ATTEMPTS else "alone", attempt=rank.attempt + 1)

    # ── what must not happen ─────────────────────────────────────────────────────────────────────────────────────────

    def wrong(self, world: World, steps: list[Step[World]]) -> str:
        groups = {(rank.attempt, rank.members) for rank in world.ranks if rank.at == "member"}
        if len(groups) > 1:
            return "two groups are formed"
        for attempt, members in groups:
            for other in members:
                rank = world.ranks[other]
                if rank.attempt > attempt or rank.at == "evicted":
                    return f"{other} is a member, and goes its own way"
                if world.formed[other] != attempt:
                    return f"{other} is a member, and has no links"
        movable = {label[0] for label, _ in steps}
        for me, rank in enumerate(world.ranks):
            if rank.at not in ("member", "evicted", "alone") and me not in movable:
                return f"{me} needs another rank to go on"
        return ""
