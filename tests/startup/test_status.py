"""`hocket status`: what another process sees of the groups of a running job."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Hocket, lines

from hocket.observe.status import Status, look, sentence
from hocket.observe.status import lines as lines_of
from moments import stopped, until

BEGIN = """
import hocket, numpy as np
group = hocket.init(60)
group.barrier()
say(rank, os.getpid())
group.barrier()
"""


class Job:
    """A job of which each rank has said its pid."""

    def __init__(self, hocket: Hocket, size: int, text: str, *options: str) -> None:
        script = hocket.script(BEGIN + text)
        self.process = hocket.start("run", "-n", str(size), *options, script)
        said = [line.split() for line in lines(self.process, size)]
        self.pids = [int(pid) for _, pid in sorted(said, key=lambda words: int(words[0]))]

    def groups(self, between: float = 0.0) -> list[Status]:
        """Of this job, as others may run here."""
        return [group for group in look(between)[0] if set(group.pids()) & set(self.pids)]

    def told(self, between: float = 0.0) -> list[str]:
        """What is said of its one group, without folders and times, and by rank instead of by pid."""
        (group,) = self.groups(between)
        words = [sentence(line) for line in lines_of(group)]
        for rank, pid in enumerate(self.pids):
            words = [line.replace(str(pid), f"<{rank}>") for line in words]
        return [line.partition(", for ")[0] for line in words]

    def until(self, expected: list[str]) -> None:
        """Wait until that is what is said."""
        seen: list[list[str]] = []

        def same() -> bool:
            seen.append([line.replace(f"{Path(self.folder)}/", "") for line in self.told()])
            return seen[-1] == expected

        try:
            until(same, "")
        except AssertionError:
            assert seen[-1] == expected

    @property
    def folder(self) -> str:
        return os.path.dirname(self.process.args[-1])  # type: ignore[index] # noqa: PTH120


def test_a_rank_in_another_call_comes_first(hocket: Hocket) -> None:
    job = Job(hocket, 3, "group.recv(0, tag=7) if rank == 1 else group.all_reduce(np.ones(3))")
    script = Path(job.process.args[-1]).name  # type: ignore[index]
    job.until(
        [
            f"rank 1 (pid <1>) is in recv(src=0, tag=7) at {script}:11",
            f"ranks 0, 2 (pids <0>, <2>) are in all_reduce(float64[3], op='sum') (call 3) at {script}:11",
        ]
    )
    (group,) = job.groups()
    assert sentence(lines_of(group)[1]).endswith(", waiting for rank 1")
    assert (group.size, group.gone, group.elsewhere) == (3, {}, ())


def test_a_stopped_rank(hocket: Hocket) -> None:
    job = Job(hocket, 3, "os.kill(os.getpid(), signal.SIGSTOP) if rank == 2 else group.barrier()")
    stopped(job.pids[2])
    script = Path(job.process.args[-1]).name  # type: ignore[index]
    first = "rank 2 (pid <2>) is stopped, in no call, after barrier() (call 2)"
    job.until([first, f"ranks 0, 1 (pids <0>, <1>) are in barrier() (call 3) at {script}:11"])


def test_a_dead_rank_and_the_error_of_the_others(hocket: Hocket) -> None:
    job = Job(
        hocket,
        3,
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "try: group.barrier()\n"
        "except hocket.PeerLost: forever()\n",
        "--grace=60",
    )
    gone = "rank 1 (pid <1>) is gone: it has left, or its process <1> is dead"
    until(lambda: job.told()[0] == gone, "the dead one named")
    until(lambda: "out of it: rank 1 (pid <1> on" in job.told()[1], "the error named")


def test_a_child_keeps_the_memory_of_a_dead_rank(hocket: Hocket) -> None:
    job = Job(
        hocket,
        2,
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if rank == 1 and os.fork() == 0: os.write(1, b'child\\n'); forever()\n"
        "if rank == 1: signal.sigwait([signal.SIGUSR1])\n"
        "else: forever()\n",
        "--grace=60",
    )
    assert lines(job.process, 1) == ["child"]
    ranks = "ranks 0, 1 (pids <0>, <1>) are in no call, after barrier() (call 2)"
    assert job.told() == [ranks]  # the child is none of them
    os.kill(job.pids[1], signal.SIGKILL)
    until(lambda: "is dead, in no call, after barrier() (call 2)" in job.told()[0], "the dead one's record")
    assert job.told()[1] == "rank 0 (pid <0>) is in no call, after barrier() (call 2)"


def test_ranks_that_run(hocket: Hocket) -> None:
    """They are not apart, though they are not at the same call in the moment that each is read."""
    job = Job(hocket, 2, "while True: group.all_reduce(np.ones(1))")
    until(lambda: "making calls" in job.told(0.2)[0] and len(job.told(0.2)) == 1, "both running")
    assert "now all_reduce(float64[1], op='sum') (call " in job.told(0.2)[0]


def test_subgroups_have_keys_of_their_own(hocket: Hocket) -> None:
    job = Job(hocket, 4, "one, two = group.split(rank % 2), group.split(rank % 2); say('split'); forever()")
    assert lines(job.process, 4) == ["split"] * 4
    groups = job.groups()
    assert len({group.group for group in groups}) == 5
    assert sorted(group.size for group in groups) == [2, 2, 2, 2, 4]
    members = sorted(sorted(job.pids.index(pid) for pid in group.pids()) for group in groups)
    assert members == [[0, 1, 2, 3], [0, 2], [0, 2], [1, 3], [1, 3]]


def test_jobs_that_end_meanwhile(hocket: Hocket) -> None:
    job = Job(hocket, 2, "for _ in range(50): group.split(0).barrier()")
    while job.process.poll() is None:
        for group in job.groups():
            assert lines_of(group)
    assert job.groups() == []


@pytest.fixture
def foreign() -> Iterator[int]:
    """A memory file of this process that has the same name."""
    fd = os.memfd_create("hocket")
    yield fd
    os.close(fd)


def of_this_process() -> tuple[list[Status], list[str]]:
    groups, notes = look(0.0)
    own = [group for group in groups if os.getpid() in group.pids()]
    return own, [note for note in notes if str(os.getpid()) in note]


def test_a_foreign_file_of_that_name(foreign: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    noise = random.Random(seed)
    for size in (0, 1, 64, 4096, 1 << 20):
        os.truncate(foreign, 0)
        os.pwrite(foreign, noise.randbytes(size), 0)
        assert of_this_process() == ([], [])


def test_another_version_is_told(foreign: int) -> None:
    os.pwrite(foreign, b"hocket\0\0" + (99).to_bytes(8, "little"), 0)
    os.truncate(foreign, 1 << 20)
    groups, (note, *_) = of_this_process()
    assert (groups, note) == ([], f"process {os.getpid()} is passed over: it runs another version of hocket")


def test_ranks_of_other_hosts(hocket: Hocket) -> None:
    """Where no memory is shared a rank knows no pids of others: who is not found here may be elsewhere."""
    secret = {"HOCKET_TRANSPORT": "tcp", "HOCKET_SECRET": "of this test"}
    script = hocket.script(BEGIN + "if rank: forever()\ngroup.close()\nforever()")
    process = hocket.start("run", "-n", "2", script, environ=secret)
    pids = dict(map(int, line.split()) for line in lines(process, 2))  # type: ignore[misc]

    def told() -> list[str]:
        (group,) = [group for group in look(0.0)[0] if pids[1] in group.pids()]
        return [sentence(line) for line in lines_of(group)]

    until(lambda: told()[-1] == "rank 0 is on another host, or gone: run hocket status there", "rank 0 named")
    assert told()[0].startswith(f"rank 1 (pid {pids[1]}) is in no call, after barrier() (call ")


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command(hocket: Hocket, tmp_path: Path) -> None:
    job = Job(hocket, 2, "group.barrier() if rank else forever()")
    until(lambda: "waiting for rank 0" in sentence(lines_of(job.groups()[0])[1]), "rank 1 waiting")
    file = tmp_path / "status.json"
    done = hocket.run("status", str(job.pids[1]), "--json", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    head, *rest = done.stdout.splitlines()
    assert " of 2 ranks on " in head
    assert rest[0].startswith(f"  rank 0 (pid {job.pids[0]}) is in no call, after barrier() (call 2), for ")
    assert rest[1].startswith(f"  rank 1 (pid {job.pids[1]}) is in barrier() (call 3) at ")
    (group,) = json.loads(file.read_text())
    assert [rank["pid"] for rank in group["ranks"]] == job.pids
    assert [rank["calls"][-1]["left"] is None for rank in group["ranks"]] == [False, True]
    assert group["ranks"][1]["calls"][-1]["waited_for"] == 0
    assert json.loads(hocket.run("status", str(job.pids[0]), "--json", "-").stdout)[0]["group"] == group["group"]


def test_no_group(hocket: Hocket) -> None:
    done = hocket.run("status", str(os.getpid()))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no group of process {os.getpid()} was found" in done.stderr


def test_watching_until_an_interrupt(hocket: Hocket) -> None:
    job = Job(hocket, 1, "forever()")
    watch = hocket.start("status", str(job.pids[0]), "--watch", "0.01")
    assert watch.stdout is not None
    heads = 0
    while heads < 3:
        heads += " of 1 rank on " in watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=20)
    assert watch.returncode == 0


@pytest.mark.parametrize("there", [True, False])
def test_stacks(hocket: Hocket, tmp_path: Path, there: bool) -> None:
    """By py-spy, which is asked not to stop the process; or a sentence that says how to get it."""
    job = Job(hocket, 1, "forever()")
    folder = tmp_path / "bin"
    folder.mkdir()
    if there:
        (folder / "py-spy").write_text("#!/bin/sh\necho asked: $*\n")
        (folder / "py-spy").chmod(0o755)
    done = hocket.run("status", str(job.pids[0]), "--stacks", environ={"PATH": f"{folder}:/bin"})
    shown = done.stdout.splitlines()[-1]
    if there:
        assert shown == f"asked: dump --nonblocking --pid {job.pids[0]}"
    elif subprocess.run(["sh", "-c", "command -v py-spy"], env={"PATH": "/bin"}, check=False, stdout=-3).returncode:
        assert shown.endswith("there is no py-spy here; pip install py-spy gets it")
