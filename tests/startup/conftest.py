"""What every test of starting up is held to: it leaves no process, no thread and no descriptor."""

from __future__ import annotations

import gc
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
from launching import LAUNCHER_VARIABLES, SECRET, Hocket, children, open_descriptors

from hocket.rendezvous.join import forget_doors
from hocket.rendezvous.server import StoreServer


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare before and after."""
    for name in list(os.environ):
        if name.startswith(LAUNCHER_VARIABLES):
            monkeypatch.delenv(name)
    resource_tracker.ensure_running()  # multiprocessing's own process and pipe: once per interpreter
    before = _held()
    yield
    forget_doors()  # one whose meeting failed keeps its own, to try again
    if _held() - before:
        gc.collect()  # what a failed test's traceback held
        assert not _held() - before


def _held() -> set[object]:
    return {*open_descriptors(), *children(), *threading.enumerate()}


@pytest.fixture
def hocket(tmp_path: Path) -> Iterator[Hocket]:
    """The command line."""
    command = Hocket(tmp_path)
    yield command
    command.close()


@pytest.fixture
def address() -> str:
    return f"@hocket-{secrets.token_hex(16)}"


@pytest.fixture
def server(address: str) -> Iterator[StoreServer]:
    with closing(StoreServer(address, secret=SECRET).start()) as it:
        yield it
