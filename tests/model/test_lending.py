"""Two ranks that exchange parts never wait for one another for ever, however little their rings hold."""

from __future__ import annotations

from itertools import product

import pytest
from explorer import explore
from lending import LENDS, STAGES, VIEWS, Lending

FULL = 2  # the size of a segment, but for the last one
PARTS = [(FULL, FULL, 1), (FULL,)]


@pytest.mark.parametrize("ways", list(product((LENDS, STAGES, VIEWS), repeat=2)))
def test_lending_needs_no_more_room_than_staging(ways: tuple[str, str]) -> None:
    """That is for two messages, of which one finds room wherever the ring ends. (Eight are asked for, so that nobody
    waits.)"""
    for parts in product(PARTS, PARTS):
        model = Lending(parts, ways, 2 * FULL)
        walk = explore(model.starts(), model.after, model.wrong)
        assert not walk.complaint, (parts, walk)


@pytest.mark.parametrize("ways", [ways for ways in product((LENDS, STAGES, VIEWS), repeat=2) if LENDS in ways])
def test_what_is_lent_goes_around_in_half_of_the_ring(ways: tuple[str, str]) -> None:
    """Which has room for two messages, beside answers that go around in all of it."""
    for parts in product(PARTS, PARTS):
        model = Lending(parts, ways, 4 * FULL, around=(FULL, 3 * FULL))
        walk = explore(model.starts(), model.after, model.wrong)
        assert not walk.complaint, (parts, walk)


def test_what_is_lent_does_not_go_around_in_too_little_of_the_ring() -> None:
    """Where that begins so late that what is left unused in front of it and the message are more than a ring."""
    model = Lending((PARTS[0], PARTS[0]), (LENDS, LENDS), 4 * FULL, around=(2 * FULL + 1, 3 * FULL))
    with pytest.raises(AssertionError, match="an empty ring has no room"):
        explore(model.starts(), model.after, model.wrong)


def test_what_has_come_home_is_fetched_before_its_turn() -> None:
    """Else a rank whose ring is full of it waits for room, and cannot send what its turn waits for."""
    model = Lending((PARTS[0], PARTS[0]), (LENDS, LENDS), 2 * FULL, "fetches in its turn")
    walk = explore(model.starts(), model.after, model.wrong)
    assert walk.complaint, walk
