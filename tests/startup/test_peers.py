"""Ranks that each have a URL of their own, and no store beside them."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from launching import check_linked, until

import hocket
from certificates import certified
from hocket.addresses import Peer, peers
from hocket.config import Config, Given
from hocket.errors import RendezvousError
from hocket.rendezvous.join import forget_doors, join
from hocket.rendezvous.links import Links
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import listen
from hocket.rendezvous.store import SocketStore
from ports import free_ports

USER = os.geteuid()


def urls(kinds: str) -> list[str | list[str]]:
    """A URL for each rank: "i" of a Unix socket, "t" of TCP, "b" both."""
    job, ports = secrets.token_hex(4), free_ports(len(kinds))
    every: list[str | list[str]] = []
    for rank, (kind, port) in enumerate(zip(kinds, ports, strict=True)):
        ipc, tcp = f"ipc://{job}.{rank}", f"tcp://127.0.0.1:{port}"
        every.append({"i": [ipc], "t": tcp, "b": [ipc, tcp]}[kind])
    return every


def config(given: Sequence[Any], rank: int, secret: str | None = "known to all", **environ: str) -> Config:
    return Config.among(given, Given(rank, secret=secret), environ)


def meet(config: Config, timeout: float = 20.0) -> Links:
    fd = os.memfd_create("test")
    try:
        return join(config, fd, timeout)
    finally:
        os.close(fd)


def families(calls: Sequence[Callable[[], Links]]) -> set[int]:
    """Of the sockets between these ranks, of which every two hold the two ends of one."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return check_linked([each.result(60) for each in [pool.submit(call) for call in calls]])


@pytest.mark.parametrize("kinds", ["iii", "ttt", "bbb", "tib", "it"])
def test_ranks_meet_at_their_urls(kinds: str) -> None:
    """Several times in a row. They are on one host, so what links them are Unix sockets."""
    given = urls(kinds)
    for _ in range(3):
        assert families([partial(meet, config(given, r)) for r in range(len(kinds))]) == {socket.AF_UNIX}


@pytest.mark.parametrize("kinds", ["iii", "ttt"])
def test_a_rank_that_is_ahead_waits_for_the_others_next_meeting(kinds: str) -> None:
    """It may find the meeting point of the one before, which is about to close."""
    given = urls(kinds)

    def rank(rank: int) -> None:
        for _ in range(20):
            meet(config(given, rank)).close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(rank, range(3)))


def test_where_no_memory_is_shared_they_are_linked_by_tcp_between_their_ports() -> None:
    given = urls("ttt")
    configs = [config(given, r, HOCKET_TRANSPORT="tcp") for r in range(3)]
    ports = {int(str(url).rpartition(":")[2]): rank for rank, url in enumerate(given)}
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(meet, configs))
    for rank, links in enumerate(found):
        for peer, sock in enumerate(links.sockets):
            if sock is not None:
                ends = [sock.getsockname()[1], sock.getpeername()[1]]
                assert ports[ends[rank < peer]] == max(rank, peer)  # the higher one's, where it was dialled
        links.close()


def test_a_secret_is_needed_for_tcp_and_not_within_a_host() -> None:
    with pytest.raises(RendezvousError, match=r"at URLs of peers, and anybody can reach that: give them all one"):
        config(urls("it"), 0, None)
    given = urls("ii")
    assert families([partial(meet, config(given, r, None)) for r in range(2)]) == {socket.AF_UNIX}


def test_nobody_listens_anywhere_else() -> None:
    """Of TCP, while they meet: rank 0 for the store, and each other rank for those below it."""

    def listening() -> set[str]:
        with open("/proc/self/net/tcp") as table:  # noqa: PTH123
            rows = [line.split() for line in table][1:]
        return {row[1] for row in rows if row[3] == "0A" and row[9] in own()}

    def own() -> set[str]:
        links = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            with suppress(OSError):
                links.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        return {link[8:-1] for link in links if link.startswith("socket:[")}

    given = urls("btb")
    ports = {f"0100007F:{int(str(url).rstrip(']').rstrip(chr(39)).rpartition(':')[2]):04X}" for url in given}
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(meet, config(given, rank), 20.0) for rank in (0, 1)]
        until(lambda: len(listening()) == 2, "two of them")
        assert listening() < ports
        meet(config(given, 2)).close()
        for each in waiting:
            each.result(20).close()


# ---- bad weather ----


def test_who_is_missing_is_named_and_meets_them_late() -> None:
    given = urls("tib")

    def early(rank: int) -> Links:
        words = "rank 2 did not arrive within|gave up: rank 2 did not arrive"
        with pytest.raises(RendezvousError, match=words):
            meet(config(given, rank), 2.0)
        ready.wait(20)
        return meet(config(given, rank))

    def late() -> Links:
        ready.wait(20)
        return meet(config(given, 2))

    ready = threading.Barrier(3)
    families([partial(early, 0), partial(early, 1), late])
    with pytest.raises(RendezvousError, match=r"nobody opened the meeting point tcp://127.* within .* s\. Rank 0 does"):
        meet(config(given, 1), 0.05)
    with pytest.raises(RendezvousError, match=r"nobody opened the meeting point @hocket.* or tcp://127.* Rank 0 does"):
        meet(config(given[::-1], 1), 0.05)
    forget_doors()


def test_a_port_that_is_taken_and_a_host_that_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = urls("ttt")
    monkeypatch.setattr("hocket.rendezvous.doors.SLACK", 0.05)
    with closing(listen(str(given[1]))):
        with pytest.raises(RendezvousError, match=rf"something else listens at {given[1]}: was rank 1 started twice\?"):
            meet(config(given, 1))
        with pytest.raises(RendezvousError, match=rf"another job holds the meeting point {given[1]}: was this one"):
            meet(config(given[1:], 0), 0.05)
    given[1] = "tcp://192.0.2.1:4711"
    with pytest.raises(RendezvousError, match=r"rank 1 cannot listen at tcp://192.0.2.1:4711: .*Cannot assign"):
        meet(config(given, 1))


def test_lists_of_another_length() -> None:
    """Whoever comes first: no rank goes without an error."""
    given = urls("ttt")
    with ThreadPoolExecutor(1) as pool:
        zero = pool.submit(meet, config(given, 0), 2.0)
        with pytest.raises(RendezvousError, match=r"two jobs met at one address: one has \d ranks, the other \d"):
            meet(config(given[:2], 1))
        with pytest.raises(RendezvousError, match=r"two jobs met at one address|ranks 1, 2 did not arrive"):
            zero.result(20)
    forget_doors()


def test_another_secret_is_refused_and_harms_nobody() -> None:
    given = urls("tt")
    with ThreadPoolExecutor(1) as pool:
        zero = pool.submit(meet, config(given, 0))
        with pytest.raises(RendezvousError, match="does not know this job's secret"):
            meet(config(given, 1, "another"))
        meet(config(given, 1)).close()
        zero.result(20).close()


def test_a_url_of_the_store_that_leads_elsewhere_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this host another job of this user holds the name; and rank 0, which is on another one, comes late."""
    given = urls("bt")
    tried: list[str] = []

    class Counted(SocketStore):
        def __init__(self, address: str, *words: Any) -> None:
            tried.append(address)
            super().__init__(address, *words)

    monkeypatch.setattr("hocket.rendezvous.store.SocketStore", Counted)
    zero, one = (config(given, r) for r in range(2))
    with closing(StoreServer(zero.own.near, secret=b"another").start()), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(meet, one)
        until(lambda: len(tried) > 4, "both tried twice")
        meet(replace(zero, peers=(Peer("", zero.own.far), zero.peers[1]))).close()
        waiting.result(20).close()


# ---- what is written there ----


def test_what_urls_mean() -> None:
    assert peers(["ipc://job7", ["tcp://node2:5000", "ipc://a_b.c-1"], ["tcp://[fd00::1]:5000"]]) == (
        Peer(f"@hocket-{USER}-job7"),
        Peer(f"@hocket-{USER}-a_b.c-1", "tcp://node2:5000"),
        Peer("", "tcp://[fd00::1]:5000"),
    )


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ("ipc://a", TypeError, "peers is a list of URLs, one for each rank, not 'ipc://a'"),
        (7, TypeError, "peers is a list of URLs"),
        ([], ValueError, "peers is empty"),
        (["ipc://a", 7], TypeError, "rank 1 of peers is a URL, or a list of URLs to fall back to, not 7"),
        (["ipc://a", []], TypeError, "rank 1 of peers is a URL"),
        (
            ["ipc://a", "rdma://node3"],
            ValueError,
            "does not tell how rank 1 .* like tcp://host:4711, rdma://host:4711,",
        ),
        ([["ipc://a", "ipc://b"]], ValueError, "rank 0 of peers has 2 URLs: one ipc://, rdma:// and tcp:// each"),
        (["ipc://a", ["tcp://a:1", "ipc://a"]], ValueError, "ranks 0 and 1 of peers have one URL"),
        (["ipc://"], ValueError, "does not tell how rank 0 of peers can be reached: it looks like tcp://host:4711"),
        (["ipc://a/b"], ValueError, "does not tell how rank 0"),
        (["tcp://a"], ValueError, "does not tell how rank 0"),
        (["tcp://a:0"], ValueError, "does not tell how rank 0"),
        (["tcp://a:1#b"], ValueError, "does not tell how rank 0"),
        (["tcp://[::]:1"], ValueError, "is every interface: rank 0 of peers needs an address by which others reach it"),
    ],
)
def test_urls_that_cannot_be_meant(given: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        hocket.init(rank=0, peers=given)


def test_places_that_do_not_go_with_peers() -> None:
    given = ["ipc://a", "ipc://b"]
    with pytest.raises(ValueError, match="peers has 2 ranks, and there are 3"):
        hocket.init(rank=0, size=3, peers=given)
    with pytest.raises(ValueError, match="peers has 2 ranks, and there are 4"):
        Config.among(given, Given(), {"RANK": "0", "WORLD_SIZE": "4"})
    with pytest.raises(ValueError, match="give rendezvous or peers, not both"):
        hocket.init(rank=0, peers=given, rendezvous="tcp://a:1")
    with pytest.raises(RendezvousError, match='RANK is "2", which is no whole number from 0 to 1'):
        hocket.init(rank=2, peers=given)
    with pytest.raises(
        ValueError, match="HOCKET_TRANSPORT=tcp shares no memory: each rank of peers needs a tcp:// or rdma:// URL"
    ):
        config(["ipc://a", "tcp://b:1"], 0, HOCKET_TRANSPORT="tcp")
    assert Config.among(given, Given(), {"RANK": "1", "WORLD_SIZE": "2"}).rank == 1


PROGRAM = """
import sys
import numpy as np
import hocket
rank, peers = int(sys.argv[1]), [url.split() for url in sys.argv[2:]]
with hocket.init(20, rank=rank, peers=peers, secret="known to all") as group:
    n = group.size
    for part in (group, group.split(rank % 2)):
        total = part.all_reduce(np.arange(70_000.0) + rank)
        ranks = range(n) if part is group else range(rank % 2, n, 2)
        assert (total == len(ranks) * np.arange(70_000.0) + sum(ranks)).all()
"""


@pytest.mark.parametrize("how", ["", "tcp"])
def test_programs_in_processes(how: str, tmp_path: Path) -> None:
    """Within a host; and as between hosts, with all that can be wished for there."""
    words = [url if isinstance(url, str) else " ".join(url) for url in urls("ttb" if how else "itb")]
    command = [sys.executable, "-c", PROGRAM]
    environ = {**os.environ, "HOCKET_TRANSPORT": how, "HOCKET_SECRET": "known to all"}
    environ["HOCKET_SOCKET_IFNAME"] = "=none"  # which the URLs tell, also to subgroups
    environ |= {"HOCKET_INTEGRITY": "1", **certified(tmp_path)} if how else {}
    ranks = [
        subprocess.Popen([*command, str(r), *words], stderr=subprocess.PIPE, text=True, env=environ) for r in range(3)
    ]
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], said
