"""What every test of starting up is held to: it leaves no process, no thread and no descriptor."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
from launching import LAUNCHER_VARIABLES, Hocket, children, open_descriptors


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare before and after."""
    for name in list(os.environ):
        if name.startswith(LAUNCHER_VARIABLES):
            monkeypatch.delenv(name)
    resource_tracker.ensure_running()  # multiprocessing's own process and pipe: once per interpreter
    gc.collect()
    before = open_descriptors(), children(), set(threading.enumerate())
    yield
    gc.collect()
    assert (open_descriptors(), children(), set(threading.enumerate())) == before


@pytest.fixture
def hocket(tmp_path: Path) -> Iterator[Hocket]:
    """The command line."""
    command = Hocket(tmp_path)
    yield command
    command.close()
