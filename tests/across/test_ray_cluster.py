"""hocket.ray on a Ray cluster of two nodes, which are hosts of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hosts import Host, hosts, reason
from moments import until

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")
DRIVER = Path(__file__).with_name("ray_driver.py")
PORT = 6379
ENVIRON = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    # Who looks after nodes does so often; one that answers late may still do so as late as ever.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_failure_threshold": "2",
}
OPTIONS = (
    '--num-cpus 2 --num-gpus 0 --resources {"slot":4} --object-store-memory 80000000 '
    "--include-log-monitor false --disable-usage-stats"
)
# Ray starts many processes. All of a node's are in a space of process ids, whose first one dies with this process:
# then the kernel kills the others.
ALONE = "setpriv --pdeathsig KILL unshare --pid --mount-proc --fork --kill-child"


class Cluster:
    """The nodes, and a driver on the first."""

    def __init__(self, made: list[Host], folder: str) -> None:
        self.folder = Path(folder)
        ray = [*ALONE.split(), str(Path(sys.executable).with_name("ray")), "start", "--block", *OPTIONS.split()]
        first = f"{made[0].address}:{PORT}"
        head = f"--head --port {PORT} --include-dashboard false --no-monitor --temp-dir {folder}".split()
        self.nodes = []
        for host, role in zip(made, [head, ["--address", first]], strict=True):
            command = [*ray, *role, "--node-ip-address", host.address]
            with Path(folder, host.name).open("w") as log:
                self.nodes.append(host.start(command, ENVIRON, stdout=log, stderr=log))
            until(made[0].listening, "the cluster at its address")
        inside = ["nsenter", "-t", str(children(self.nodes[0].pid)[0]), "-p", "-n", "-u", "-i", "-m", "--"]
        self.driver = subprocess.Popen(
            [*ALONE.split()[:3], *inside, sys.executable, str(DRIVER), first, "2"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRON},
        )
        assert self.hear() == {"ready": True}

    def hear(self) -> dict[str, Any]:
        assert self.driver.stdout is not None
        said: dict[str, Any] = json.loads(self.driver.stdout.readline() or "{}")
        return said

    def tell(self, command: str) -> None:
        assert self.driver.stdin is not None
        self.driver.stdin.write(f"{command}\n")
        self.driver.stdin.flush()

    def ask(self, command: str) -> dict[str, Any]:
        self.tell(command)
        said = self.hear()
        while "begun" in said:
            said = self.hear()
        assert "error" not in said, said["error"]
        return said

    def nothing_left(self) -> None:
        """No rank runs, and no room is kept for one."""
        until(lambda: not self.ranks(), "all ranks gone")
        until(lambda: self.ask("left")["left"] == [], "no placement group")

    def ranks(self) -> list[int]:
        """The processes of these nodes that are ranks. Ray names them by what they do."""
        return [pid for pid in self.members() if name_of(pid).startswith("ray::_Actor")]

    def members(self) -> list[int]:
        """All processes of these nodes."""
        spaces = {space(children(node.pid)[0]) for node in self.nodes if node.poll() is None and children(node.pid)}
        return [
            int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and space(path.name) in spaces
        ]

    def close(self) -> None:
        members = self.members()
        for process in (*self.nodes, self.driver):
            process.kill()
        for process in (*self.nodes, self.driver):
            process.communicate()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in members), "all of Ray's processes gone")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def space(pid: int | str) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # names of sockets are short
    try:
        with hosts(2) as made:
            it = Cluster(made, folder)
            yield it
            it.close()
    finally:
        shutil.rmtree(folder)


def test_results_and_sums_of_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """And one that hangs on its way out, behind Ray's back, is killed."""
    said = cluster.ask(f"results: {tmp_path}")
    assert sorted(said["hosts"]) == ["host0", "host0", "host1", "host1"]
    assert said["hosts"][0] == said["hosts"][1], "ranks of one node are neighbours"
    assert said["places"] == [0, 0, 1, 1], "and share memory"
    assert said["place"] == [[0, 4, 0, 2], [1, 4, 1, 2], [2, 4, 0, 2], [3, 4, 1, 2]]
    cluster.nothing_left()
    kept = [path for path in cluster.folder.rglob("*") if path.is_file()]
    assert len(kept) > 10, "Ray's logs"
    assert not any(said["secret"].encode() in path.read_bytes() for path in kept)


def test_an_error_comes_back_as_it_was(cluster: Cluster) -> None:
    said = cluster.ask("raises")
    assert (said["kind"], said["text"]) == ("KeyError", "'the key'")
    assert re.match(r"rank 1 \(pid \d+ on host\d\) raised it:\n\nTraceback", said["cause"])
    assert "in raises\n" in said["cause"]
    assert "/hocket/" not in said["cause"]
    cluster.nothing_left()


def test_a_killed_rank_is_named(cluster: Cluster) -> None:
    """And not only by the other one, which hocket has told of it."""
    said = cluster.ask("dies")
    assert said["kind"] == "PeerLost", said
    assert re.match(r"rank 1 \(pid \d+ on host\d\) died before it returned: ", said["text"]), said
    cluster.nothing_left()


def test_who_returned_too_early_is_named(cluster: Cluster) -> None:
    said = cluster.ask("leaves_early")
    assert said["kind"] == "PeerLost", said
    who = r"rank 0 \(pid \d+ on host\d\) raised it, after rank 1 \(pid \d+ on host\d\) had returned while"
    assert re.match(who, said["cause"]), said
    cluster.nothing_left()


def test_a_cluster_without_room_says_so(cluster: Cluster) -> None:
    said = cluster.ask("no room")
    assert said["kind"] == "RendezvousError", said
    assert said["text"].startswith("Ray found no room for 5 ranks with 1 CPU each (strategy PACK) within 1 s: "), said
    assert said["text"].endswith("of 4 CPU are free on the nodes, of which there are 2"), said
    said = cluster.ask("no such thing")
    assert (
        "no room for 1 ranks with 2 anvil and 0.5 CPU each (strategy STRICT_SPREAD) within 1 s: 0 of 0 anvil"
        in said["text"]
    )
    cluster.nothing_left()


def test_ranks_that_do_not_start_in_time(cluster: Cluster) -> None:
    said = cluster.ask("slow start")
    assert said["kind"] == "RendezvousError", said
    assert said["text"] == "Ray placed all ranks, and 2 of 2 did not start within 0 s"
    cluster.nothing_left()


def test_what_ray_cannot_do_is_said(cluster: Cluster) -> None:
    for command, word in (("no strategy", "SOMEHOW"), ("no resources", "resources")):
        said = cluster.ask(command)
        assert said["kind"] == "ValueError", said
        assert word in said["text"], said
    cluster.nothing_left()


def test_the_deadline_names_who_had_not_returned(cluster: Cluster) -> None:
    said = cluster.ask("late")
    assert said["kind"] == "CollectiveTimeout", said
    assert re.fullmatch(
        r"ray.run timed out after 0.1 s, and these had not returned: rank 0 \(pid \d+ on host\d\)", said["text"]
    )
    cluster.nothing_left()


def test_a_ctrl_c_ends_the_ranks(cluster: Cluster, tmp_path: Path) -> None:
    cluster.tell(f"pauses: {tmp_path}")
    assert cluster.hear() == {"begun": True}
    until(lambda: len(list(tmp_path.iterdir())) == 2, "two ranks that have met")
    os.kill(children(cluster.driver.pid)[0], signal.SIGINT)  # behind nsenter
    assert cluster.hear()["kind"] == "KeyboardInterrupt"
    cluster.nothing_left()
    assert cluster.ask("interrupted")["kind"] == "KeyboardInterrupt"
    cluster.nothing_left()


def test_a_dead_node_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """The last test: the cluster is smaller then."""
    cluster.tell(f"pauses: {tmp_path}")
    assert cluster.hear() == {"begun": True}
    until(lambda: len(list(tmp_path.iterdir())) == 2, "two ranks that have met")
    cluster.nodes[1].kill()
    said = cluster.hear()
    assert said["kind"] == "PeerLost", said
    assert re.match(r"rank \d \(pid \d+ on host1\) died before it returned: .*node", said["text"]), said
    cluster.nothing_left()
