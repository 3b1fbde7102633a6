"""Whole jobs: collectives between ranks that every launcher started, and what is told when one of them fails."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import SOURCE, Hocket, all_gone

import hocket as library
from hocket import PeerLost, RendezvousError, spawn
from moments import named, nothing_named_since

Array = Any


def data(rank: int, count: int = 5) -> Array:
    """Differs by rank and by position; sums are exact."""
    return np.arange(count, dtype=np.int64) * 7 + 100**rank


def total(size: int, count: int = 5) -> Array:
    return sum(data(rank, count) for rank in range(size))


# ---- spawn ----


def reduce_twice() -> tuple[list[Array], int]:
    """Two groups, one after the other, in the same processes."""
    results = []
    for _ in range(2):
        with library.init(timeout=20.0) as group:
            results.append(group.all_reduce(data(group.rank)))
            size = group.size
    return results, size


@pytest.mark.parametrize("size", [1, 2, 4])
def test_spawned_ranks_find_each_other_twice(size: int) -> None:
    before = named()
    for results, seen in spawn(reduce_twice, size):
        assert seen == size
        for result in results:
            np.testing.assert_array_equal(result, total(size))
    nothing_named_since(before)


def fails(how: str) -> None:
    """Rank 1 fails after the first collective, the others wait for it in the second."""
    with library.init(timeout=60.0) as group:
        group.all_reduce(data(group.rank))
        if group.rank == 1:
            if how == "raise":
                raise ValueError("the cause")
            os.kill(os.getpid(), signal.SIGKILL)
        group.all_reduce(data(group.rank))


def fails_outside() -> None:
    with library.init(timeout=60.0) as group:
        group.barrier()
        rank = group.rank
        if rank != 1:
            group.barrier()
    raise ValueError("the cause")


@pytest.mark.parametrize("size", [2, 4])
def test_the_error_of_one_rank_is_the_jobs(size: int) -> None:
    with pytest.raises(ValueError, match="the cause") as caught:
        spawn(fails, size, ("raise",))
    assert "rank 1 (pid " in str(caught.value.__cause__)


def test_an_error_after_the_group_is_the_jobs() -> None:
    with pytest.raises(ValueError, match="the cause") as caught:
        spawn(fails_outside, 3)
    assert "rank 1 (pid " in str(caught.value.__cause__)


def test_a_killed_rank_is_the_jobs_error() -> None:
    with pytest.raises(PeerLost, match=r"^rank 1 \(pid \d+\) was killed by SIGKILL$"):
        spawn(fails, 3, ("kill",))


def stays_away() -> None:
    if os.environ["RANK"] == "1":
        signal.pause()
    library.init(timeout=4.0)


def test_a_rank_that_does_not_init_is_named() -> None:
    with pytest.raises(RendezvousError, match="rank 1 did not arrive within 4 s; ranks 0, 2 did"):
        spawn(stays_away, 3)


# ---- hocket run ----

WORK = """
import hocket, numpy as np
data = lambda r: np.arange(5) * 7 + 100**r
for _ in range(2):
    with hocket.init(timeout=20) as group:
        say(group.rank, group.size, *group.all_reduce(data(group.rank)))
"""


def expected(size: int) -> list[str]:
    return sorted([" ".join(map(str, (r, size, *total(size)))) for r in range(size)] * 2)


@pytest.mark.parametrize("size", [1, 4])
def test_hocket_run(hocket: Hocket, size: int) -> None:
    done = hocket.run("run", "-n", str(size), hocket.script(WORK))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == expected(size)


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("raise ValueError('the cause')", 1, "exit code 1"),
        ("sys.exit(9)", 9, "exit code 9"),
        ("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL"),
        ("os.abort()", 134, "killed by SIGABRT"),
    ],
)
def test_the_failing_rank_is_blamed(hocket: Hocket, what: str, code: int, words: str) -> None:
    """The others run into PeerLost, often before the failing rank has ended."""
    script = hocket.script(
        "import hocket\nwith hocket.init(timeout=20) as group:\n"
        f"    group.barrier()\n    if rank == 2: {what}\n    group.barrier()\n"
    )
    done = hocket.run("run", "-n", "4", script)
    assert done.returncode == code
    headline = next(line for line in done.stderr.splitlines() if line.startswith("hocket run: "))
    assert headline.startswith("hocket run: rank 2 (pid ")
    assert words in headline
    if "cause" in what:
        assert done.stderr.strip().splitlines()[-1] in (headline, "ValueError: the cause")


def test_a_rank_that_leaves_early_is_named(hocket: Hocket) -> None:
    """Ending without an error is no failure; who waits for it fails, and names it."""
    script = hocket.script(
        "import hocket\nwith hocket.init(timeout=20) as group:\n"
        "    group.barrier()\n    if rank != 1: group.barrier()\n"
    )
    done = hocket.run("run", "-n", "3", script)
    assert done.returncode == 76
    assert "PeerLost: rank 1 (pid " in done.stderr
    headline = next(line for line in done.stderr.splitlines() if line.startswith("hocket run: "))
    assert re.match(
        r"hocket run: rank 1 \(pid \d+\) ended first \(exit code 0\), while the others still needed it; "
        r"(rank [02] \(pid \d+\)|ranks 0, 2) then failed: ",
        headline,
    )


def leaves_early() -> None:
    with library.init(timeout=20.0) as group:
        group.barrier()
        if group.rank:
            group.barrier()


def test_a_spawned_rank_that_leaves_early_is_named() -> None:
    with pytest.raises(PeerLost) as caught:
        spawn(leaves_early, 2)
    words = r"rank 1 \(pid \d+\) raised it, after rank 0 \(pid \d+\) had returned while the others still needed it:"
    assert re.match(words, str(caught.value.__cause__))


IN_FLIGHT = """
import atexit, threading
results = []
last = lambda: say(*(int(y[-1]) for y in results), *(thread.name for thread in threading.enumerate()))
atexit.register(last)  # before hocket's own, so that it is called after them
import hocket, numpy as np
def begin(group):
    for turn in range(5):
        results.append(np.zeros(300000))
        group.all_reduce(np.full(300000, rank + turn, float), out=results[-1], async_op=True)
    return group
"""


@pytest.mark.parametrize("line", ["group = begin(hocket.init(timeout=20))", "begin(hocket.init(timeout=20))"])
def test_calls_in_flight_end_before_the_interpreter_does(hocket: Hocket, line: str) -> None:
    """Also where the group is neither closed nor kept; and no thread is left."""
    done = hocket.run("run", "-n", "2", hocket.script(IN_FLIGHT + line))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1 3 5 7 9 MainThread"] * 2


def test_a_fork_ends_on_its_own(hocket: Hocket) -> None:
    """One that ends as programs do, although it has no engine thread."""
    script = hocket.script(
        "import hocket\ngroup = hocket.init(timeout=20)\nwork = group.all_reduce(1, async_op=True)\n"
        "pid = os.fork()\nif pid == 0: sys.exit(3)\nsay(os.waitpid(pid, 0)[1] >> 8, work.wait())\n"
    )
    done = hocket.run("run", "-n", "2", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["3 2"] * 2


def test_nothing_survives_a_killed_launcher_in_a_collective(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket\nwith hocket.init(timeout=60) as group:\n"
        "    group.barrier()\n    say(os.getpid())\n    if rank == 0: forever()\n    group.barrier()\n"
    )
    process = hocket.start("run", "-n", "3", script)
    assert process.stdout is not None
    ranks = [int(process.stdout.readline()) for _ in range(3)]
    process.kill()
    process.wait(20)
    all_gone(ranks)


# ---- other launchers ----


def test_the_variables_of_torchrun(hocket: Hocket) -> None:
    """Four processes, started by hand with what torchrun sets."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = str(unused.getsockname()[1])
    script = hocket.script(WORK)
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    places = [{n: str(v) for n, v in (("RANK", r), ("WORLD_SIZE", 4), ("LOCAL_RANK", r))} for r in range(4)]
    ranks = [
        subprocess.Popen([sys.executable, script], env={**environ, **place}, stdout=subprocess.PIPE, text=True)
        for place in places
    ]
    assert sorted("".join(rank.communicate(timeout=40)[0] for rank in ranks).splitlines()) == expected(4)
    assert [rank.returncode for rank in ranks] == [0] * 4


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "through a shell script"])
def test_mpirun(hocket: Hocket, wrapped: bool) -> None:
    """Whichever mpirun is installed."""
    if (mpirun := shutil.which("mpirun")) is None:
        pytest.skip("no mpirun here")
    flavour = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    options = ["--oversubscribe", "--allow-run-as-root"] if "Open MPI" in flavour else []
    script = hocket.script("rank = -1\n" + WORK)
    Path(script).write_text(Path(script).read_text().replace("int(os.environ['RANK'])", "-1"))
    command = ["sh", "-c", '"$@"; exit $?', "sh"] if wrapped else []
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [mpirun, *options, "-n", "3", *command, sys.executable, script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == expected(3)
