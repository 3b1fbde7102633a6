"""Hosts for the tests across them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hosts import Host, hosts


@pytest.fixture(scope="module")
def three() -> Iterator[list[Host]]:
    with hosts(3) as made:
        yield made


@pytest.fixture
def two() -> Iterator[list[Host]]:
    """For a test that does not leave them as they were."""
    with hosts(2) as made:
        yield made
