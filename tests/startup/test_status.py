"""`hocket status`: what another process sees of the groups of a running job."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Hocket, lines

from hocket.observe.status import Status, look, sentence
from hocket.observe.status import lines as lines_of
from moments import stopped, until
from ports import free_ports

BEGIN = """
import hocket, numpy as np
group = hocket.init(60)
group.barrier()
say(rank, os.getpid())
group.barrier()
"""


class Job:
    """A job of which each rank has said its pid. One that is stopped is not given up before all is seen."""

    def __init__(self, hocket: Hocket, size: int, text: str, *options: str) -> None:
        script = hocket.script(BEGIN + text)
        patient = {"HOCKET_HEARTBEAT_TIMEOUT": "60"}
        self.process = hocket.start("run", "-n", str(size), *options, script, environ=patient)
        said = [line.split() for line in lines(self.process, size)]
        self.pids = [int(pid) for _, pid in sorted(said, key=lambda words: int(words[0]))]

    def groups(self, between: float = 0.0) -> list[Status]:
        """Of this job, as others may run here."""
        return [group for group in look(between)[0] if set(group.pids()) & set(self.pids)]

    def told(self, between: float = 0.0) -> list[str]:
        """What is said of its one group, once that is seen, without folders and times; by rank instead of by pid."""
        found: list[Status] = []
        until(lambda: found.extend(self.groups(between)) or found, f"a group of {self.process.args}")
        (group,) = found
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
    until(lambda: sentence(lines_of(job.groups()[0])[1]).endswith(", waiting for rank 1"), "both waiting for it")
    (group,) = job.groups()
    assert (group.size, group.gone, group.elsewhere) == (3, {}, ())


def test_a_root_without_room_waits_for_who_has_not_read(hocket: Hocket) -> None:
    """Not for the first of those that it sends to, which wait for the root."""
    job = Job(hocket, 4, "forever() if rank == 3 else group.broadcast(np.zeros(2_000_000), algorithm='direct')")
    until(lambda: sentence(lines_of(job.groups()[0])[-1]).endswith(", waiting for ranks 0, 3"), "rank 3 named")
    (group,) = job.groups()
    assert [seen.record.calls[-1].waited_for for seen in group.seen[:3]] == [3, 0, 0]


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
        "if rank == 1: group.barrier(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "try:\n    while True: group.barrier()\n"
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
    job.until([ranks])  # the child is none of them
    os.kill(job.pids[1], signal.SIGKILL)
    until(lambda: "is dead, in no call, after barrier() (call 2)" in job.told()[0], "the dead one's record")
    assert job.told()[1] == "rank 0 (pid <0>) is in no call, after barrier() (call 2)"


def test_ranks_that_run(hocket: Hocket) -> None:
    """They are not apart, though they are not at the same call in the moment that each is read."""
    job = Job(hocket, 2, "while True: group.all_reduce(np.ones(1))")
    told: list[str] = []

    def running() -> bool:
        told[:] = job.told(0.2)
        return len(told) == 1 and "making calls" in told[0]

    until(running, "both running")
    assert "now all_reduce(float64[1], op='sum') (call " in told[0]


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
    return own, [note for note in notes if note.startswith(f"process {os.getpid()} ")]


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

    until(
        lambda: told()[-1] == "rank 0 is on another host, or gone: hocket status --on HOST asks there", "rank 0 named"
    )
    rank_1 = f"rank 1 (pid {pids[1]}) is in no call, after barrier() (call "
    until(lambda: told()[0].startswith(rank_1), "rank 1 out of the barrier")


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command(hocket: Hocket, tmp_path: Path) -> None:
    job = Job(hocket, 2, "group.barrier() if rank else forever()")
    script = Path(job.process.args[-1]).name  # type: ignore[index]
    job.until(
        [
            "rank 0 (pid <0>) is in no call, after barrier() (call 2)",
            f"rank 1 (pid <1>) is in barrier() (call 3) at {script}:11",
        ]
    )
    until(lambda: sentence(lines_of(job.groups()[0])[1]).endswith(", waiting for rank 0"), "rank 1 waiting")
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


# A host of its own as far as processes go: it sees those that it started, by other numbers, and nobody else's.
HOST = ["unshare", "--user", "--map-root-user", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
NODE = """
import os, socket, subprocess, sys, threading
name, door, *words = sys.argv[1:]
subprocess.run(["hostname", name], check=True)
job = subprocess.Popen([sys.executable, "-m", "hocket", "run", "-n", "2", "--nnodes", "2", *words])
listener = socket.socket(socket.AF_UNIX)
listener.bind(door)
threading.Thread(target=lambda: os._exit(job.wait()), daemon=True).start()
listener.listen()
while True:
    caller, _ = listener.accept()
    asked = caller.recv(4096).decode().split("\\n")
    done = subprocess.run([sys.executable, *asked], stdout=caller)
    caller.close()
"""
CALLER = """
import os, shutil, socket, sys
caller = socket.socket(socket.AF_UNIX)
if not os.path.exists(sys.argv[1]): sys.exit("no such host: " + os.path.basename(sys.argv[1]))
caller.connect(sys.argv[1])
caller.sendall("\\n".join(sys.argv[2:]).encode())
shutil.copyfileobj(caller.makefile("rb"), sys.stdout.buffer)
"""


class Hosts:
    """A job of two ranks on each of two hosts. `by` runs Python on one of them, as ssh does."""

    def __init__(self, hocket: Hocket, text: str) -> None:
        (port,) = free_ports(1)
        self._hocket, script = hocket, hocket.script(BEGIN + text)
        node, caller = hocket.folder / "node.py", hocket.folder / "caller.py"
        node.write_text(NODE), caller.write_text(CALLER)
        secret, meeting = {"HOCKET_SECRET": "of this test", "HOCKET_TRANSPORT": "tcp"}, f"tcp://127.0.0.1:{port}"
        self.by = f"{sys.executable} {caller} {hocket.folder}/{{host}}"
        self.pids: dict[int, int] = {}
        for rank in range(2):
            name = f"node{rank}"
            words = [name, str(hocket.folder / name), "--node-rank", str(rank), "--rendezvous", meeting, script]
            hocket.begin([*HOST, sys.executable, str(node), *words], environ=secret)
        for process in hocket.started:
            self.pids |= dict(map(int, line.split()) for line in lines(process, 2))  # type: ignore[misc]

    def status(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As a third host tells it, which has no ranks."""
        process = self._hocket.begin([*HOST, sys.executable, "-m", "hocket", "status", "--by", self.by, *words])
        out, err = process.communicate(timeout=30)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_several_hosts_are_asked_at_once(hocket: Hocket) -> None:
    """And their ranks are one group, of which those come first that hold up the others."""
    job = Hosts(hocket, "group.recv(0, tag=7) if rank == 3 else group.all_reduce(np.ones(3))")
    told: list[str] = []

    def seen() -> bool:
        done = job.status("--on", "node0,node1", "--on", "node9")
        assert done.returncode == 0
        assert done.stderr == "hocket status: node9 was not seen: exit code 1: no such host: node9\n"
        told[:] = done.stdout.splitlines()
        return len([line for line in told if "in all_reduce" in line]) == 2

    until(seen, "all in their last calls")
    head, first, *others = told
    assert " of 4 ranks on node0, node1, formed " in head
    assert first.startswith(f"  rank 3 (pid {job.pids[3]} on node1) is in recv(src=0, tag=7) at ")
    assert [line.partition(" are in ")[0].partition(" is in ")[0] for line in others] == [
        f"  rank 2 (pid {job.pids[2]} on node1)",
        f"  ranks 0, 1 (pids {job.pids[0]}, {job.pids[1]} on node0)",
    ]


def test_a_host_that_is_not_asked(hocket: Hocket) -> None:
    job = Hosts(hocket, "forever()")
    (group,) = json.loads(job.status("--on", "node1", "--json", "-").stdout)
    assert group["elsewhere"] == [0, 1]
    assert [(rank["rank"], rank["host"], rank["pid"]) for rank in group["ranks"]] == [
        (rank, "node1", job.pids[rank]) for rank in (2, 3)
    ]


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("echo {host}", "another version of hocket is there, or something else was printed, too"),
        ("true", "exit code 0"),
        ("/nonexistent/shell {host}", "[Errno 2] No such file or directory: '/nonexistent/shell'"),
        ('ssh "{host}', "No closing quotation"),
        ("sh -c 'echo [{}]'", "another version of hocket is there, or something else was printed, too"),
    ],
)
def test_a_host_that_cannot_be_asked(hocket: Hocket, by: str, why: str) -> None:
    job = Job(hocket, 1, "forever()")
    done = hocket.run("status", str(job.pids[0]), "--on", "there", "--by", by)
    assert (done.returncode, done.stderr) == (0, f"hocket status: there was not seen: {why}\n")
    assert f"  rank 0 (pid {job.pids[0]}) is " in done.stdout


def test_no_group(hocket: Hocket) -> None:
    done = hocket.run("status", str(os.getpid()))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no group of process {os.getpid()} was found" in done.stderr
    nobody = hocket.begin([*HOST, sys.executable, "-m", "hocket", "status", "--on", "a,b", "--by", "echo [] {host} #"])
    _, said = nobody.communicate(timeout=30)
    assert nobody.returncode == 1
    assert said.endswith("hocket status: no group of your processes on this machine, nor on a, nor on b was found\n")


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
