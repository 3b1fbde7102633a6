"""Of two ranks neither writes to slots that the other one has not read, though nobody says that they are free."""

from __future__ import annotations

from itertools import product

import pytest
from explorer import explore
from passing import CALLS, Passing


def test_nobody_writes_to_what_is_unread() -> None:
    for calls in product(CALLS, repeat=4):
        model = Passing(calls)
        walk = explore(model.starts(), model.after, model.wrong)
        assert not walk.complaint, (calls, walk)


@pytest.mark.parametrize("mistake", ["ends before all have entered", "keeps its ring"])
def test_a_mistake_is_found(mistake: str) -> None:
    """What the rings rest on: that no call ends before both are in it, and that they change hands."""
    walks = [
        explore(m.starts(), m.after, m.wrong) for m in (Passing(calls, mistake) for calls in product(CALLS, repeat=3))
    ]
    assert any(walk.complaint for walk in walks)
