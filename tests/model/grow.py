"""How members of a group and a newcomer come into a new one: all that are left, or none of them.

    linked[r]    whether r could link with all, as it tells the members in the old group
    entered[r]   r is in the call of the new group by which it counts
    through[r]   r has come through that: all had entered it, and the group had not ended
    lost         whom the end of the new group took for lost, if it has ended; that ends it for all, once (within_host)

Who has come through goes on in the new group. Who has not, and sees that it has ended, goes on in it too if any of
those that are left came through, and otherwise back to the old one, or to its place on the porch. Nobody turns back
before the new group has ended: who gives up waiting, or is interrupted, ends it first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer import Step

OPEN = -1  # not ended; else a set of bits, of the lost


class World(NamedTuple):
    """What is shared, and where each rank is in its program. The last one is the newcomer."""

    linked: tuple[str, ...]
    entered: tuple[bool, ...]
    through: tuple[bool, ...]
    lost: int
    at: tuple[str, ...]


def put(row: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    """The row with another value at this place."""
    return (*row[:index], value, *row[index + 1 :])


class Grow:
    """The protocol; or one with one mistake, which has a name."""

    def __init__(self, size: int, mistake: str = "") -> None:
        self.size, self.mistake = size, mistake

    def start(self) -> World:
        no = (False,) * self.size
        return World(("",) * self.size, no, no, OPEN, ("link",) * self.size)

    def after(self, world: World) -> Iterator[Step[World]]:
        for me, at in enumerate(world.at):
            if step := getattr(self, f"at_{at}", None):
                for what, shared, mine in step(world, me):
                    yield (me, what), shared._replace(at=put(shared.at, me, mine))

    def at_link(self, world: World, me: int) -> Iterator[tuple[str, World, str]]:
        newcomer = me == self.size - 1
        yield "links", world._replace(linked=put(world.linked, me, "yes")), "enter" if newcomer else "ask"
        yield "cannot link", world._replace(linked=put(world.linked, me, "no")), "old" if newcomer else "ask"

    def at_ask(self, world: World, me: int) -> Iterator[tuple[str, World, str]]:
        """A call of the old group, which may fail on any rank, also where it ended well on others."""
        votes = world.linked[:-1]
        if all(votes):
            wanted = "new" if self.mistake == "the vote decides" else "enter"
            yield "hears all", world, wanted if set(votes) == {"yes"} else "old"
        yield "fails in the old group", world, "old"

    def at_enter(self, world: World, me: int) -> Iterator[tuple[str, World, str]]:
        yield "enters", world._replace(entered=put(world.entered, me, True)), "wait"

    def at_wait(self, world: World, me: int) -> Iterator[tuple[str, World, str]]:
        if all(world.entered) and world.lost == OPEN:
            yield "comes through", world._replace(through=put(world.through, me, True)), "new"
        if world.lost == OPEN:
            others = [rank for rank in range(self.size) if rank != me]
            for chosen in range(1 << len(others)):
                lost = sum(1 << rank for bit, rank in enumerate(others) if chosen >> bit & 1)
                yield f"ends it, without {lost:b}", world._replace(lost=lost), "ended"
            if self.mistake == "turns back at once":
                yield "gives up", world, "old"
        else:
            yield "sees the end", world, "ended"

    def at_ended(self, world: World, me: int) -> Iterator[tuple[str, World, str]]:
        left = [rank for rank in range(self.size) if not world.lost >> rank & 1]
        counts = any(world.through[rank] for rank in left)
        if self.mistake == "asks only itself":
            counts = world.through[me]
        yield f"counts: {counts}", world, "new" if counts else "old"

    # ── what must not happen ─────────────────────────────────────────────────────────────────────────────────────────

    def wrong(self, world: World, steps: list[Step[World]]) -> str:
        """Of those that are lost nothing is asked: whatever they believe, the others let them in nowhere."""
        left = [rank for rank in range(self.size) if world.lost == OPEN or not world.lost >> rank & 1]
        new = [rank for rank in left if world.at[rank] == "new"]
        old = [rank for rank in left if world.at[rank] == "old"]
        if new and old:
            return f"{new[0]} is in the new group, and {old[0]} went back"
        movable = {label[0] for label, _ in steps}
        for me, at in enumerate(world.at):
            if at not in ("new", "old") and me not in movable:
                return f"{me} needs another rank to go on"
        return ""
