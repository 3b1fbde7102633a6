"""A group is formed while one of the hosts has no network: for a moment, or for good."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from jobs import Job

from hosts import Host, reason

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")


def test_a_moment_without_is_borne_as_ranks_meet(two: list[Host]) -> None:
    two[1].cut()
    job = Job(two, (0, 1), "unclaimed", TRIES="1")
    assert job.line(1) == {"tried": 5}
    two[1].mend()
    job.good()


def test_a_moment_without_is_borne_in_recover(two: list[Host], tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    job = Job(two, (0, 0, 1), "recovers", GO_ON=str(go_on))
    pids = [job.line(rank)["pid"] for rank in range(3)]
    os.kill(pids[1], signal.SIGKILL)
    assert [job.line(rank)["lost"] for rank in (0, 2)] == [[1], [1]]
    two[1].cut()
    go_on.touch()
    assert job.line(2) == {"tried": 5}
    two[1].mend()
    for rank in (0, 2):
        assert job.line(rank)["members"] == [0, 2]
    job.ends(without=1)


def test_a_host_that_has_none_is_told_so_soon(two: list[Host]) -> None:
    two[1].cut()
    job = Job(two, (0, 1), "unclaimed", SECONDS="300")
    end = job.ends(without=0, seconds=30)[1]
    assert end["error"] == "RendezvousError", end
    assert "Network is unreachable, for 2 s" in end["text"], end
    job.ranks[0].kill()
    job.ranks[0].communicate()
