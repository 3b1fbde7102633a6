"""Fixtures for all tests: worlds of real processes, and torch where it is installed."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moments import Signs
from worlds import TRANSPORTS, USUAL, World, Worlds

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the worlds: a fork server should have one thread
os.environ["HOCKET_PROFILE"] = "none"  # what a user has measured here changes no test
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it has in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # and as nohup starts it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Python waits for the threads a failed test has left behind: not for ever, and then it says what they do. One of
    several processes that test also waits for the others, which may take longer."""
    if not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(60, exit=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Over what the worlds of processes are linked."""
    parser.addoption("--transports", default=",".join(USUAL), help=f"of {', '.join(TRANSPORTS)} (default: %(default)s)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that ask for a world are made over each transport, unless their module has one of its own."""
    if "transport" in metafunc.fixturenames and not hasattr(metafunc.module, "transport"):
        chosen = metafunc.config.getoption("--transports").split(",")
        metafunc.parametrize("transport", chosen, indirect=True, scope="session")


@pytest.fixture(scope="session")
def transport(request: pytest.FixtureRequest) -> str:
    """The name of each transport in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def made() -> Iterator[dict[tuple[int, str], World]]:
    """All worlds of the session: tests may take turns with the transports, and need not begin anew each time."""
    made: dict[tuple[int, str], World] = {}
    yield made
    for world in made.values():
        world.close()


@pytest.fixture(scope="session")
def world(transport: str, made: dict[tuple[int, str], World]) -> Worlds:
    """`world(n)` is a `World` of n ranks over that transport, the same one throughout the session."""
    return Worlds(transport, made)


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


@pytest.fixture(scope="session")
def torch() -> Any:
    """The module, for tests that hand tensors to hocket; without it they are skipped."""
    return pytest.importorskip("torch")
