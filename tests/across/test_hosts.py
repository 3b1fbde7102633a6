"""Groups across hosts: what works on one works there, and what goes wrong there is named. Hosts are namespaces."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobs import PROGRAMS, SECRET, Job

from certificates import certified
from hosts import Host, hosts, reason
from moments import until

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")
LAYOUTS = {"1+1": (0, 1), "2+2": (0, 0, 1, 1), "3+1": (0, 0, 0, 1), "mixed": (0, 1, 0, 1), "1+1+1": (0, 1, 2)}


@pytest.mark.parametrize("program", ["collectives", "hierarchical", "bits", "subgroups", "both_ways", "unclaimed"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_works_on_one_host_works_across(three: list[Host], layout: tuple[int, ...], program: str) -> None:
    Job(three, layout, program).good()


def test_hosts_that_meet_in_a_folder(three: list[Host], tmp_path: Path) -> None:
    """No address is given to anybody: each tells the one that it has."""
    job = Job(three, (0, 0, 1, 2), "again", HOCKET_RENDEZVOUS=f"file://{tmp_path}/notes")
    job.good()
    assert list((tmp_path / "notes").iterdir()) == []


def urls(hosts: list[Host], layout: tuple[int, ...]) -> list[str]:
    """Of each rank: by TCP, and within its host."""
    Job.port += len(layout)
    return [f"tcp://{hosts[host].address}:{Job.port - rank} ipc://{rank}" for rank, host in enumerate(layout)]


@pytest.mark.parametrize(("program", "layout"), [("collectives", (0, 0, 1)), ("subgroups", (0, 1, 1, 2))])
def test_hosts_whose_ranks_have_urls_of_their_own(three: list[Host], program: str, layout: tuple[int, ...]) -> None:
    Job(three, layout, program, PEERS=",".join(urls(three, layout))).good()


def test_a_rank_that_has_no_url_for_other_hosts(three: list[Host]) -> None:
    """And one that was started on another host than its URL says."""
    every = urls(three, (0, 1))
    for end in Job(three, (0, 1), "busy", PEERS=f"{every[0]},ipc://1").ends():
        assert "nothing tells how they can reach each other" in end["text"], end
        assert "a tcp:// URL for each rank of peers" in end["text"], end
    zero, one = Job(three, (0, 2), "busy", PEERS=",".join(every), SECONDS="3").ends()
    assert "rank 1 did not arrive" in zero["text"]
    assert f"rank 1 cannot listen at @hocket-0-1 and tcp://{three[1].address}" in one["text"]


def test_hosts_that_meet_in_a_store_of_torch(three: list[Host]) -> None:
    pytest.importorskip("torch")
    Job(three, (0, 1), "subgroups", STORE=three[0].address).good()


@pytest.mark.parametrize(("layout", "two_shot"), [((0, 0, 1, 1), 2), ((0, 0, 0, 1), 1.5), ((0, 0, 1, 1, 2, 2), 8 / 3)])
def test_the_wire_carries_what_was_counted(three: list[Host], layout: tuple[int, ...], two_shot: float) -> None:
    """Within 5%, by the counters of the hosts' interfaces: headers and beats are in there, too."""
    job = Job(three, layout, "wire")
    sent = [job.line(rank)["sent"] for rank in range(len(layout))]
    hosts = len(set(layout))
    counted = {"two_shot": two_shot, "hierarchical": 2 * (hosts - 1) / hosts, "hierarchical_chain": min(hosts - 1, 2)}
    for algorithm, expected in counted.items():
        found = max(each[algorithm] for each in sent)
        assert expected < found < 1.05 * expected, (algorithm, found)
    job.good()


@pytest.mark.parametrize("program", ["busy", "again"])
def test_life_across_hosts(three: list[Host], program: str) -> None:
    Job(three, (0, 1, 1), program, HOCKET_HEARTBEAT_TIMEOUT="1").good()


SNIFFER = """
import signal, socket, sys
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
sock.bind(("eth0", 0))
print("ready", flush=True)
frames = marks = 0
while (frame := sock.recv(1 << 17)) != b"end of it" * 9:
    frames, marks = frames + 1, marks + (b"not for others!!" in frame)
print(frames, marks, flush=True)
"""
LAST = "import socket; s = socket.socket(17, 3); s.bind(('eth0', 3)); s.send(b'end of it' * 9)"


@pytest.mark.parametrize(("hidden", "streams"), [(False, "1"), (True, "1"), (True, "2")], ids=["clear", "tls", "tls:2"])
def test_who_reads_along_sees_nothing(three: list[Host], tmp_path: Path, hidden: bool, streams: str) -> None:
    """All the packets that pass: those of the meeting, the links, the messages and a subgroup."""
    reader = three[0].start([sys.executable, "-c", SNIFFER])
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    job = Job(three, (0, 1, 1), "marked", HOCKET_TCP_STREAMS=streams, **(certified(tmp_path) if hidden else {}))
    job.good()
    subprocess.run(three[0].within([sys.executable, "-c", LAST]), check=True)
    frames, marks = map(int, reader.communicate(timeout=20)[0].split())
    assert frames > 50
    assert marks == 0 if hidden else marks > 2


@pytest.mark.parametrize(
    ("program", "streams"), [("collectives", "3"), ("subgroups", "1"), ("both_ways", "2"), ("unclaimed", "1")]
)
def test_all_of_it_encrypted_and_checked(three: list[Host], tmp_path: Path, program: str, streams: str) -> None:
    """Over one connection, and over several."""
    protected = {"HOCKET_INTEGRITY": "1", **certified(tmp_path)}
    Job(three, LAYOUTS["mixed"], program, HOCKET_TCP_STREAMS=streams, **protected).good()


def test_links_of_three_connections(three: list[Host]) -> None:
    Job(three, (0, 1), "collectives", HOCKET_TCP_STREAMS="3").good()


def test_whose_certificate_is_another_authoritys_is_told(three: list[Host], tmp_path: Path) -> None:
    job = Job(three, (0, 1), "endless", SECONDS="3", **certified(tmp_path))
    job.ranks[1].kill()
    job.ranks[1].communicate()
    job.ranks[1] = job.start(1, **certified(tmp_path, "other"))
    told = job.ends()
    assert "TLS: " in told[1]["text"], told
    assert "certificate verify failed" in told[1]["text"], told
    assert "rank 1 did not arrive" in told[0]["text"], told


# ---- meeting ----


def test_a_meeting_needs_a_secret(three: list[Host]) -> None:
    for end in Job(three, (0, 1), "busy", HOCKET_SECRET="").ends():
        assert end["error"] == "RendezvousError"
        assert "HOCKET_SECRET" in end["text"]


def test_another_secret_is_refused(three: list[Host]) -> None:
    job = Job(three, (0,), "busy", WORLD_SIZE="2", SECONDS="3")
    job.layout = (0, 1)
    job.ranks.append(job.start(1, HOCKET_SECRET="another"))
    first, second = job.ends()
    assert "rank 1 did not arrive" in first["text"], first
    assert "does not know this job's secret" in second["text"], second


def test_who_is_missing_is_named(three: list[Host]) -> None:
    (end,) = Job(three, (0,), "busy", WORLD_SIZE="3", SECONDS="2").ends()
    assert end["error"] == "RendezvousError"
    assert "ranks 1, 2 did not arrive within 2 s" in end["text"], end


def test_the_same_rank_twice(three: list[Host]) -> None:
    job = Job(three, (0, 1), "busy", WORLD_SIZE="3", SECONDS="3")
    job.layout = (0, 1, 2)
    job.ranks.append(job.start(1))
    texts = [end["text"] for end in job.ends()]
    assert "two processes claim to be rank 1" in texts[1] + texts[2], texts
    assert "rank 2 did not arrive" in texts[0], texts


def test_another_size(three: list[Host]) -> None:
    """Whichever comes first."""
    job = Job(three, (0,), "busy", WORLD_SIZE="3", SECONDS="3")
    job.layout = (0, 1)
    job.ranks.append(job.start(1, WORLD_SIZE="4"))
    texts = [end["text"] for end in job.ends()]
    assert any(f"one has {n} ranks, the other {7 - n}: do all agree on the size?" in "".join(texts) for n in (3, 4)), (
        texts
    )


def test_a_port_that_is_taken_and_a_host_that_is_not_there(three: list[Host]) -> None:
    with hosts(1) as (alone,):
        taken = alone.start([sys.executable, "-m", "http.server", "4799"])
        assert taken.stderr is not None
        wait = alone.start(
            [
                sys.executable,
                "-c",
                "import socket,time\nwhile socket.socket().connect_ex(('127.0.0.1', 4799)): time.sleep(.01)",
            ]
        )
        wait.communicate(timeout=20)
        job = Job([alone], (0,), "busy", WORLD_SIZE="2", SECONDS="1", HOCKET_RENDEZVOUS=f"tcp://{alone.address}:4799")
        assert "holds the meeting point tcp://" in job.ends()[0]["text"]
    job = Job(three, (0,), "busy", WORLD_SIZE="2", RANK="1", SECONDS="2", HOCKET_RENDEZVOUS="tcp://10.213.77.99:4711")
    job.ranks[0].communicate()
    job.ranks = [job.start(0, RANK="1")]
    assert "tcp://10.213.77.99:4711" in job.ends()[0]["text"]


def test_a_late_rank_meets_the_others(three: list[Host]) -> None:
    job = Job(three, (0,), "again", WORLD_SIZE="2")
    job.layout = (0, 1)
    until(three[0].listening, "rank 0 at the meeting point")
    end = time.monotonic() + 1
    until(lambda: time.monotonic() > end, "a second")
    assert job.ranks[0].poll() is None
    job.ranks.append(job.start(1))
    job.good()


def test_strangers_at_the_meeting_point_harm_nobody(three: list[Host]) -> None:
    job = Job(three, (0, 1), "collectives", WORLD_SIZE="3")
    job.layout = (0, 1, 2)
    noise = (
        "import os, socket, time\n"
        f"at = ({three[0].address!r}, {Job.port})\n"
        "held = []\n"
        "while len(held) < 300:\n"
        "    s = socket.socket()\n"
        "    if s.connect_ex(at): time.sleep(.01); continue\n"
        "    if len(held) % 2: s.send(os.urandom(200))\n"
        "    held.append(s)\n"
        "print('held', flush=True)\n"
        "time.sleep(100)\n"
    )
    stranger = three[2].start([sys.executable, "-c", noise])
    assert stranger.stdout is not None
    assert stranger.stdout.readline() == "held\n"
    job.ranks.append(job.start(2))
    job.good()
    stranger.kill()


def test_nothing_listens_on_every_interface(three: list[Host]) -> None:
    """Rank 0 where it was told to, for the job and for itself, and rank 1 on the same network; nobody anywhere else."""
    job = Job(three, (0, 1), "endless", WORLD_SIZE="3", SECONDS="20")
    for host, count in ((three[0], 2), (three[1], 1)):
        until(lambda host=host, count=count: len(host.listening()) == count, f"{host.name} listening")
        own = bytes(reversed(socket.inet_aton(host.address))).hex().upper()
        assert [at.split(":")[0] for at in host.listening()] == [own] * count
    for process in job.ranks:
        process.kill()


def test_a_rank_is_reached_by_the_interface_that_was_wished_for(two: list[Host]) -> None:
    """Also in subgroups, whose members meet anew. And a wish that no interface fits is told on that rank."""
    cable = ["link", "add", "data0", "type", "veth", "peer", "name", "data0", "netns", str(two[1].pid)]
    two[0].ip(*cable)
    for number, host in enumerate(two):
        host.ip("addr", "add", f"10.213.78.{number + 1}/24", "dev", "data0")
        host.ip("link", "set", "data0", "up")
    before = [host.received("data0") for host in two]
    Job(two, (0, 0, 1), "subgroups", HOCKET_SOCKET_IFNAME="=data0").good()
    assert all(host.received("data0") > 1_000_000 + count for host, count in zip(two, before, strict=True))
    job = Job(two, (0, 1), "busy", HOCKET_SOCKET_IFNAME="data9,^", SECONDS="2")
    for end in job.ends():
        assert end["error"] == "RendezvousError", end
        assert "data0 (10.213.78." in end["text"], end


# ---- started by ----


def test_a_command_on_each_host() -> None:
    """What `make demo HOSTS=2` uses: each knows its number, the first one's address, and one secret."""
    said = "'{host} {first} ' + os.environ['HOCKET_SECRET'] + os.uname().nodename + '\\n'"
    script = f"import os; os.write(1, ({said}).encode())"
    tool = [sys.executable, str(Path(__file__).parents[1] / "hosts.py"), "2", sys.executable]
    environ = {**os.environ, "HOCKET_SECRET": "x"}
    done = subprocess.run([*tool, "-c", script], capture_output=True, text=True, timeout=60, env=environ)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 10.213.77.1 xhost0", "1 10.213.77.1 xhost1"]
    done = subprocess.run([*tool, "-c", "exit({host} * 3)"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3


def test_hocket_run_on_two_hosts(three: list[Host]) -> None:
    """As the README has it, over v6 too: four ranks on each, in the order of hosts."""
    for host in three[:2]:
        host.ip("addr", "replace", f"fd77::{host.address[-1]}/64", "dev", "eth0", "nodad")
    for number, first in enumerate([three[0].address, "[fd77::1]"]):
        rendezvous = f"tcp://{first}:{4900 + 2 * number}"
        nodes = [
            three[k].start(
                [
                    *(sys.executable, "-m", "hocket", "run", "-n", "2", "--nnodes", "2", "--node-rank", str(k)),
                    *("--rendezvous", rendezvous, str(PROGRAMS), "places"),
                ],
                {"HOCKET_SECRET": SECRET},
            )
            for k in (0, 1)
        ]
        said = [node.communicate(timeout=60) for node in nodes]
        assert [node.returncode for node in nodes] == [0, 0], said
        places = [json.loads(line) for out, _ in said for line in out.splitlines() if "place" in line]
        assert sorted(place["place"] for place in places) == [[0, 4, 0, 2], [1, 4, 1, 2], [2, 4, 0, 2], [3, 4, 1, 2]]
        assert {place["hosts"] for place in places} == {2}


def test_hocket_run_says_what_is_missing(three: list[Host]) -> None:
    for words, environ, text in (
        (["--nnodes", "2"], {"HOCKET_SECRET": "x"}, "goes with --rendezvous and a --node-rank below it"),
        (["--nnodes", "2", "--node-rank", "0", "--rendezvous", "tcp://a:1"], {}, "several hosts need a HOCKET_SECRET"),
        (
            ["--nnodes", "2", "--node-rank", "0", "--rendezvous", "file:///a"],
            {},
            "--rendezvous is tcp://host:port here",
        ),
    ):
        command = [sys.executable, "-m", "hocket", "run", "-n", "1", *words, str(PROGRAMS), "places"]
        process = three[0].start(command, environ)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 2, err
        assert text in " ".join(err.replace("│", " ").split()), err


TORCH = """
import torch, torch.distributed as dist, hocket.torch
dist.init_process_group("hocket")
rank, size = dist.get_rank(), dist.get_world_size()
for count in (1, 1000, 300_000):
    x = torch.arange(count, dtype=torch.float64) + rank
    dist.all_reduce(x)
    assert torch.equal(x, size * torch.arange(count, dtype=torch.float64) + sum(range(size)))
parts = [dist.new_group([0, 2]), dist.new_group([1, 3])]
x = torch.ones(5) * rank
dist.all_reduce(x, group=parts[rank % 2])
assert x[0] == 2 * (rank % 2) + 2
dist.barrier()
dist.destroy_process_group()
print("good")
"""


def test_torch_across_hosts(three: list[Host]) -> None:
    pytest.importorskip("torch")
    environ = {"MASTER_ADDR": three[0].address, "WORLD_SIZE": "4", "OMP_NUM_THREADS": "1"}
    apart, unknown = "nothing tells how they can reach each other", 'the congestion control "none" cannot be used'
    for port, secret, congestion, words in (
        ("4950", SECRET, "", ""),
        ("4951", "", "", apart),
        ("4952", SECRET, "none", unknown),
    ):
        environ |= {"MASTER_PORT": port, "HOCKET_SECRET": secret, "HOCKET_TCP_CONGESTION": congestion}
        command = [sys.executable, "-c", TORCH]
        ranks = [three[r // 2].start(command, {**environ, "RANK": str(r)}) for r in range(4)]
        for rank in ranks:
            out, err = rank.communicate(timeout=90)
            if words:
                assert words in err, err
            else:
                assert out == "good\n", err


RESTARTED = """
import os
import numpy as np, hocket
group = hocket.init(20)
assert group.all_reduce(1) == 4
try:
    os.close(os.open(os.environ["MARK"], os.O_CREAT | os.O_EXCL))
    os._exit(3)  # one of the first four
except FileExistsError:
    pass
total = group.all_reduce(np.full(300_000, group.rank + 1.0))
assert (total == 10).all()
os.write(1, f"good {group.rank}\\n".encode())  # in one piece, as all share a pipe
"""


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_torchrun_across_hosts(three: list[Host], tmp_path: Path, rendezvous: str) -> None:
    """With a secret, and nothing else. Under c10d a rank dies, and torchrun starts them all once more."""
    pytest.importorskip("torch")
    (tmp_path / "ranks.py").write_text(RESTARTED)
    mark = tmp_path / "mark"
    first = three[0].address
    way = f"--rdzv-backend c10d --rdzv-id 7 --rdzv-endpoint {first}:4970 --max-restarts 2"
    if rendezvous == "static":
        way = f"--master-addr {first} --master-port 4960"
        mark.touch()
    agents = [
        host.start(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"),
                *("--node-rank", str(k), *way.split(), str(tmp_path / "ranks.py")),
            ],
            {"HOCKET_SECRET": SECRET, "MARK": str(mark), "OMP_NUM_THREADS": "1"},
        )
        for k, host in enumerate(three[:2])
    ]
    said = []
    for agent in agents:
        out, err = agent.communicate(timeout=120)
        assert agent.returncode == 0, err
        said += [line for line in out.splitlines() if line.startswith("good")]
    assert sorted(said) == [f"good {rank}" for rank in range(4)]
    assert mark.exists()
