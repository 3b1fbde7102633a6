"""Who is gone, and who is not: deaths, silence and bad weather between hosts, which are namespaces."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from jobs import Job

from certificates import certified
from hosts import Host, hosts, reason
from moments import until

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")


# ---- deaths ----


@pytest.mark.parametrize(
    ("count", "streams", "victims"), [("1000", "1", (0, 3)), ("200_000", "1", (0, 3)), ("200_000", "3", (3,))]
)
def test_a_killed_rank_is_named_by_all(three: list[Host], count: str, streams: str, victims: tuple[int, ...]) -> None:
    """Where all speak to all, and along the chain, where some never speak to it."""
    for victim in victims:
        job = Job(three, (0, 0, 1, 1), "endless", COUNT=count, HOCKET_TCP_STREAMS=streams)
        pids = [job.line(rank)["pid"] for rank in range(4)]
        begin = time.monotonic()
        os.kill(pids[victim], signal.SIGKILL)
        for rank, end in enumerate(job.ends(without=victim)):
            if rank != victim:
                assert end["error"] == "PeerLost", (rank, end)
                assert f"rank {victim} " in end["text"], (rank, end)
                assert end["at"] - begin < 2, (rank, end)


@pytest.mark.parametrize(("how", "setting"), [("stopped", ""), ("cut", ""), ("stopped", "0.7"), ("cut", "6")], ids=str)
def test_who_is_silent_is_named(two: list[Host], how: str, setting: str) -> None:
    """When it was silent for 2 s, or for as long as was set; and no sooner."""
    job = Job(two, (0, 0, 1), "endless", HOCKET_HEARTBEAT_TIMEOUT=setting)
    pids = [job.line(rank)["pid"] for rank in range(3)]
    begin = time.monotonic()
    if how == "cut":
        two[1].cut()
    else:
        os.kill(pids[2], signal.SIGSTOP)
    ends = job.ends(without=2)
    for rank in (0, 1):
        assert ends[rank]["error"] == "PeerLost", ends[rank]
        assert "rank 2 " in ends[rank]["text"], ends[rank]
        assert f"was silent for {setting or 2} s, " in ends[rank]["text"], ends[rank]
        waited = ends[rank]["at"] - begin - float(setting or 2)
        assert -0.5 < waited < 3, ends[rank]  # it may have spoken last a moment before
    os.kill(pids[2], signal.SIGCONT)
    end = json.loads(job.ranks[2].communicate(timeout=30)[0].splitlines()[-1])
    assert end["error"] == "PeerLost", end


@pytest.mark.parametrize(
    ("how", "hidden", "streams"),
    [("cut", False, "1"), ("cut", False, "2"), ("cut", True, "1"), ("killed", False, "1")],
    ids=["cut", "cut-two", "cut-tls", "killed"],
)
def test_who_did_not_wait_is_told_why(two: list[Host], tmp_path: Path, how: str, hidden: bool, streams: str) -> None:
    """When it comes to need whose connection the kernel has ended long ago: because of a death, or as nothing that it
    sent was acknowledged."""
    certificates = certified(tmp_path) if hidden else {}
    job = Job(two, (0, 1), "cut_off", HOCKET_HEARTBEAT_TIMEOUT="1", HOCKET_TCP_STREAMS=streams, **certificates)
    pids = [job.line(rank)["pid"] for rank in (0, 1)]
    if how == "cut":
        two[1].cut()
    else:
        os.kill(pids[1], signal.SIGKILL)
    took = job.line(0)["took"]
    assert 0.5 < took < 5 if how == "cut" else took < 1
    end = job.ends(without=1)[0]
    assert "rank 1 " in end["text"], end
    words = " acknowledged nothing, being stopped or cut off, " if how == "cut" else " died "
    assert words in end["text"], end


# ---- bad weather ----


def lose(host: Host, one_in: int) -> None:
    try:
        host.lose(one_in)
    except OSError as error:
        pytest.skip(f"packets cannot be dropped in one direction here: {error}")


def test_one_of_fifty_packets_is_lost_in_one_direction(two: list[Host]) -> None:
    """Of those that rank 1's host sends. It takes longer, and is not wrong, and nobody is taken for dead."""
    lose(two[1], 50)
    before = two[1].dropped()
    Job(two, (0, 1, 1), "lossy").good()
    assert two[1].dropped() > before


def test_one_direction_is_cut(two: list[Host]) -> None:
    """Rank 2 is not heard: the others say that it is silent. What it sends is not acknowledged, and soon it hears no
    more either: which of these it finds first is all the same."""
    job = Job(two, (0, 0, 1), "endless")
    for rank in range(3):
        job.line(rank)
    lose(two[1], 1)
    for rank, end in enumerate(job.ends()):
        assert end["error"] == "PeerLost", (rank, end)
        silent = "was silent for 2 s" in end["text"]
        assert silent or (rank == 2 and "acknowledged nothing" in end["text"]), (rank, end)
        assert end["took"] < 10, (rank, end)
        assert rank == 2 or "rank 2 " in end["text"], (rank, end)


def test_a_link_of_a_megabit_per_second() -> None:
    """What comes slowly is no silence, also where nothing is whole for two seconds."""
    with hosts(2, rate="1mbit") as narrow:
        before = narrow[1].received("eth0")
        Job(narrow, (0, 1), "narrow", COUNT="64_000").good()
        assert narrow[1].received("eth0") > before + 8 * 64_000 * 9 // 8


def test_what_is_on_its_way_arrives_though_its_sender_leaves() -> None:
    """Three seconds' worth, of which no second is without any of it."""
    with hosts(2, rate="1mbit") as narrow:
        Job(narrow, (0, 1), "last_word", COUNT="48_000").good()


def test_both_sides_send_at_once_what_no_buffer_holds(three: list[Host]) -> None:
    """256 MiB each; HOCKET_TEST_MIB=1024 makes it a gigabyte, which takes 6 GiB of memory."""
    Job(three, (0, 1), "at_once", MIB=os.environ.get("HOCKET_TEST_MIB", "256")).good()


def test_a_slow_reader_holds_up_nobody_else(three: list[Host], tmp_path: Path) -> None:
    Job(three, (0, 1, 2), "slow_reader", DONE=str(tmp_path / "done")).good()


def test_a_whole_job_may_be_stopped_for_a_while(two: list[Host]) -> None:
    """As by Ctrl-Z: nobody heard of anybody for longer than links may be silent, and nobody is gone. Also where buffers
    are full, so that the kernels, which do not stop, wait for each other in vain."""
    for host in two:
        host.told("sh", "-c", "echo 4096 131072 262144 > /proc/sys/net/ipv4/tcp_rmem")
    job = Job(two, (0, 1), "endless", COUNT="2_000_000", HOCKET_HEARTBEAT_TIMEOUT="1.5")
    pids = [job.line(rank)["pid"] for rank in range(2)]
    os.kill(pids[1], signal.SIGSTOP)
    until(lambda: unsent(pids[0]) > 100_000, "rank 0 sends what rank 1 does not take")
    os.kill(pids[0], signal.SIGSTOP)
    passes(3)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    passes(1)
    assert [process.poll() for process in job.ranks] == [None] * 2
    os.kill(pids[1], signal.SIGKILL)
    text = job.ends(without=1)[0]["text"]
    assert "rank 1 " in text
    assert "died" in text


def unsent(pid: int) -> int:
    """The most bytes that a connection of its host has not got rid of."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return max(int(row[4].split(":")[0], 16) for row in rows)


def passes(seconds: float) -> None:
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, f"{seconds} s later")


def test_death_is_seen_behind_a_forked_child(three: list[Host]) -> None:
    job = Job(three, (0, 1), "endless", FORKED="1")
    pids = [job.line(rank)["pid"] for rank in range(2)]
    os.kill(pids[1], signal.SIGKILL)
    text = job.ends(without=1)[0]["text"]
    assert "rank 1 " in text
    assert "died" in text, "it was only silent"
