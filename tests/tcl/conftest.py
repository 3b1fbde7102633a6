"""The ways to run a script in Tcl, as fixtures."""

from __future__ import annotations

import pytest
from tclsh import WAYS, Way, way_of


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """Each in turn."""
    return way_of(request.param)


@pytest.fixture
def plain() -> Way:
    """Any tclsh, with a companion."""
    return way_of("tclsh")


@pytest.fixture
def inside() -> Way:
    """`hocket tclsh`."""
    return way_of("hocket tclsh")
