"""Fixtures of the promises: a world of one's own, and signs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moments import Signs
from worlds import World


@pytest.fixture
def own(transport: str) -> Iterator[Callable[[int], World]]:
    """`own(n)` is a new world: what a test leaves in its processes does not reach the next test."""
    made: list[World] = []

    def make(size: int) -> World:
        made.append(World(size, transport))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def signs(tmp_path: Path) -> Signs:
    return Signs(str(tmp_path))
