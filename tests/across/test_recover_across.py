"""Those that are left of a group on several hosts go on; and where they are apart, one part at most."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from jobs import Job

from hosts import Host, reason

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")


def said(job: Job, ranks: list[int]) -> list[dict[str, Any]]:
    """What these ranks said of the failure, which is one thing, and of what came after it."""
    lines = [job.line(rank) for rank in ranks]
    assert all(line["verdict"] == lines[0]["verdict"] for line in lines), lines
    return lines


def go_on(job: Job, members: list[int], lost: list[int]) -> None:
    lines = said(job, members)
    assert set(lines[0]["verdict"][2]) <= set(lost)
    for rank, line in enumerate(lines):
        assert line.get("members") == members, line
        assert line["rank"] == rank, line
        assert line["history"] == [lost], line


def end(job: Job) -> None:
    for process in job.ranks:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("victim", [0, 1, 3])
def test_the_others_go_on(three: list[Host], victim: int) -> None:
    job = Job(three, (0, 0, 1, 1), "recovers")
    pids = [job.line(rank)["pid"] for rank in range(4)]
    os.kill(pids[victim], signal.SIGKILL)
    go_on(job, [rank for rank in range(4) if rank != victim], [victim])
    end(job)


@pytest.mark.parametrize(("layout", "members"), [((0, 0, 1), [0, 1]), ((0, 0, 1, 1), [0, 1]), ((0, 1, 1), [1, 2])])
def test_of_two_parts_one_goes_on(two: list[Host], layout: tuple[int, ...], members: list[int]) -> None:
    """The larger one, or that of rank 0 where both are as large."""
    job = Job(two, layout, "recovers")
    for rank in range(len(layout)):
        job.line(rank)
    two[1].cut()
    others = [rank for rank in range(len(layout)) if rank not in members]
    go_on(job, members, others)
    for line in said(job, others):
        assert "no majority: recover(allow_minority=True)" in line["refused"], line
    end(job)


@pytest.mark.parametrize("minority", ["", "1"])
def test_a_minority_goes_on_where_that_is_wanted(three: list[Host], minority: str) -> None:
    job = Job(three, (0, 1, 1), "recovers", **({"MINORITY": "1"} if minority else {}))
    pids = [job.line(rank)["pid"] for rank in range(3)]
    os.kill(pids[1], signal.SIGKILL)
    os.kill(pids[2], signal.SIGKILL)
    (line,) = said(job, [0])
    if minority:
        assert (line.get("members"), line.get("rank")) == ([0], 0), line
    else:
        assert "rank 0 cannot know whether ranks 1, 2, on other hosts, go on" in line["refused"], line
    end(job)
