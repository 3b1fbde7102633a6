"""The ways to run a script in Tcl, as fixtures."""

from __future__ import annotations

import pytest
from tclsh import INSIDE, PLAIN, Way, way_of


@pytest.fixture(params=[INSIDE, *PLAIN])
def way(request: pytest.FixtureRequest) -> Way:
    """Each in turn."""
    return way_of(request.param)


@pytest.fixture(params=PLAIN)
def plain(request: pytest.FixtureRequest) -> Way:
    """Any tclsh, with a companion."""
    return way_of(request.param)


@pytest.fixture
def inside() -> Way:
    """`hocket tclsh`."""
    return way_of(INSIDE)
