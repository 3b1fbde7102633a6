"""A way to another host breaks while that lives: what was on it goes on over another one, and nobody notices."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Job

from certificates import certified
from hosts import Host, hosts, reason

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")


@pytest.fixture
def joined() -> Iterator[list[Host]]:
    """Two hosts with a cable of their own between them, beside the network."""
    with hosts(2) as (one, other):
        one.ip("link", "add", "spare0", "type", "veth", "peer", "name", "spare0", "netns", str(other.pid))
        for number, host in enumerate((one, other)):
            host.ip("address", "add", f"10.214.77.{number + 1}/24", "dev", "spare0")
            host.ip("link", "set", "spare0", "up")
        yield [one, other]


OPTIONS = [{}, {"HOCKET_TCP_STREAMS": "3"}, {"HOCKET_INTEGRITY": "1"}]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options), "plain"))
@pytest.mark.parametrize("layout", [(0, 1), (0, 0, 1, 1)], ids=str)
def test_a_cable_is_pulled(joined: list[Host], layout: tuple[int, ...], options: dict[str, str]) -> None:
    job = Job(joined, layout, "falls_back", HOCKET_FALLBACK_IFNAME="=spare0", **options)
    job.line(0)
    joined[1].cut()
    by = [job.line(rank)["by"] for rank in range(len(layout))]
    far = [[layout[peer] != layout[rank] for peer in range(len(layout))] for rank in range(len(layout))]
    assert [[name == "fallback" for name in names] for names in by] == far
    job.good()


def test_over_tls(joined: list[Host], tmp_path: Path) -> None:
    job = Job(joined, (0, 1), "falls_back", HOCKET_FALLBACK_IFNAME="=spare0", **certified(tmp_path))
    job.line(0)
    joined[1].cut()
    assert [job.line(rank)["by"] for rank in range(2)] == [["self", "fallback"], ["fallback", "self"]]
    job.good()


def test_both_are_pulled(joined: list[Host]) -> None:
    job = Job(joined, (0, 1), "falls_back", HOCKET_FALLBACK_IFNAME="=spare0")
    job.line(0)
    for host in joined:
        host.ip("link", "set", "spare0", "down")
    joined[1].cut()
    for end in job.ends():
        assert end["error"] == "PeerLost", end


def test_who_died_is_lost_all_the_same(joined: list[Host]) -> None:
    job = Job(joined, (0, 1), "falls_back", HOCKET_FALLBACK_IFNAME="=spare0")
    os.kill(job.line(0)["pid"], signal.SIGKILL)
    out, err = job.ranks[1].communicate(timeout=60)
    assert "rank 0 (pid" in out, err
    assert "died" in out, out


def test_peers_with_a_second_url(joined: list[Host]) -> None:
    """Of each rank's addresses the last is for when the others break."""
    port = 20_000 + secrets.randbelow(10_000)
    urls = [f"tcp://{host.address}:{port} tcp://10.214.77.{n + 1}:{port}" for n, host in enumerate(joined)]
    job = Job(joined, (0, 1), "falls_back", PEERS=",".join(urls))
    job.line(0)
    joined[1].cut()
    assert [job.line(rank)["by"] for rank in range(2)] == [["self", "fallback"], ["fallback", "self"]]
    job.good()


def test_no_such_interface(joined: list[Host]) -> None:
    for end in Job(joined, (0, 1), "falls_back", HOCKET_FALLBACK_IFNAME="=spare9", SECONDS="2").ends():
        assert end["error"] == "RendezvousError", end
        assert 'HOCKET_FALLBACK_IFNAME is "=spare9", and no interface with an address of IPv4 fits' in end["text"], end
