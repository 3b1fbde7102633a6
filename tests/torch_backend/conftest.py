"""Fixtures of the tests of hocket.torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks

import worlds

pytest.importorskip("torch.distributed")
worlds.preload("pytest", "hocket.group", "torch", "torch.distributed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "feature(area, *names): what of torch a test proves; docs/torch.md lists it")


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Ranks]:
    """`ranks(n)` are n ranks of torch.distributed, over the first of the transports that pytest was told."""
    ranks = Ranks(tmp_path_factory.mktemp("stores"), pytestconfig.getoption("--transports").split(",")[0])
    yield ranks
    ranks.world.close()
