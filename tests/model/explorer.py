"""Walks through everything that may happen in a small world, breadth first, so that the first thing found wrong is also
the shortest way to it.

A world is a value that can be hashed. What may happen next in it are pairs: what it is called, in words, and the world
after it. What is wrong with a world is a sentence, or nothing. A rank that dies or is stopped is one of which nothing
more happens: any walk may leave any rank alone for ever, so that needs no words of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

World = TypeVar("World", bound=Hashable)
Step = tuple[tuple[object, ...], World]


@dataclass(frozen=True)
class Walk:
    """How many worlds were seen; the first complaint, if any, and how one gets there."""

    worlds: int
    complaint: str = ""
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n  ".join([f"{self.complaint or 'nothing wrong'} ({self.worlds} worlds)", *self.story])


def explore(
    starts: Iterable[World],
    after: Callable[[World], Iterable[Step[World]]],
    wrong: Callable[[World, list[Step[World]]], str],
) -> Walk:
    """Every world that can be reached from the starts, until one is wrong; `wrong` also sees what may happen next."""
    came: dict[World, tuple[World, tuple[object, ...]] | None] = dict.fromkeys(starts)
    front = list(came)
    while front:
        following = []
        for world in front:
            steps = list(after(world))
            if complaint := wrong(world, steps):
                return Walk(len(came), complaint, _story(came, world))
            for label, new in steps:
                if new not in came:
                    came[new] = (world, label)
                    following.append(new)
        front = following
    return Walk(len(came))


def _story(came: dict[World, tuple[World, tuple[object, ...]] | None], world: World) -> tuple[str, ...]:
    labels: list[str] = []
    while (before := came[world]) is not None:
        world, label = before
        labels.append(" ".join(map(str, label)))
    return tuple(reversed(labels))
