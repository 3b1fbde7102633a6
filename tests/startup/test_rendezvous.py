"""The meeting: real sockets, one thread or process per rank, and everyone who should not be there."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import msgpack
import pytest
from launching import SECRET, check_linked, client, open_descriptors

from hocket.config import Config
from hocket.errors import RendezvousError
from hocket.rendezvous.cards import Card, exchange
from hocket.rendezvous.join import join
from hocket.rendezvous.links import Links, Terms, connect
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import listen
from hocket.rendezvous.store import SocketStore
from ports import free_ports

SIZES = (2, 3, 5, 8)


def outcomes(ranks: dict[int, Callable[[], Any]]) -> dict[int, Any]:
    """Each rank's result or error, of calls that run at the same time."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RendezvousError as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return dict(zip(ranks, pool.map(outcome, ranks.values()), strict=True))


@contextmanager
def memory(text: str) -> Iterator[int]:
    fd = os.memfd_create("test")
    try:
        os.write(fd, text.encode())
        yield fd
    finally:
        os.close(fd)


def meet(config: Config) -> Links:
    with memory(f"memory of rank {config.rank}") as fd:
        return join(config, fd)


def configs(address: str, size: int, timeout: float = 10.0, launcher: str = "hocket run") -> list[Config]:
    return [Config(r, size, r, size, address, SECRET, launcher, timeout) for r in range(size)]


# ---- exchange and connect ----


@pytest.mark.parametrize("size", SIZES)
def test_exchange(address: str, server: StoreServer, size: int) -> None:
    def rank(r: int) -> list[bytes]:
        with client(address) as store:
            return exchange(store, r, size, f"blob {r}".encode(), 10.0)

    found = outcomes({r: lambda r=r: rank(r) for r in range(size)})  # type: ignore[misc]
    assert found == {r: [f"blob {q}".encode() for q in range(size)] for r in range(size)}


@pytest.mark.parametrize("launcher", ["hocket run", "torchrun"])
@pytest.mark.parametrize("size", SIZES)
def test_all_ranks_are_linked_in_pairs(address: str, launcher: str, size: int) -> None:
    server = StoreServer(address, secret=SECRET).start() if launcher == "hocket run" else None
    found = outcomes({c.rank: lambda c=c: meet(c) for c in configs(address, size, launcher=launcher)})  # type: ignore[misc]
    if server is not None:
        server.close()
    for r, links in found.items():
        assert isinstance(links, Links), links
        assert [os.pread(fd, 99, 0).decode() for fd in links.fds] == [f"memory of rank {q}" for q in range(size)]
        assert not any(os.get_inheritable(fd) for fd in links.fds)
        assert links.pids == [os.getpid()] * size
        assert links.hosts == [socket.gethostname()] * size
        assert links.sockets[r] is None
    check_linked([found[r] for r in range(size)])
    for links in found.values():
        links.close()


def test_a_world_of_one_meets_nobody() -> None:
    links = meet(Config())
    assert os.pread(links.fds[0], 99, 0) == b"memory of rank 0"
    assert (links.sockets, links.pids) == ([None], [os.getpid()])
    links.close()


@pytest.mark.parametrize("launcher", ["hocket run", "torchrun"])
def test_the_missing_ranks_are_named_by_all(address: str, launcher: str) -> None:
    server = StoreServer(address, secret=SECRET).start() if launcher == "hocket run" else None
    there = [c for c in configs(address, 5, timeout=3.0, launcher=launcher) if c.rank in (0, 2, 3)]
    found = outcomes({c.rank: lambda c=c: meet(c) for c in there})  # type: ignore[misc]
    if server is not None:
        server.close()
    for rank, error in found.items():
        assert isinstance(error, RendezvousError)
        assert "ranks 1, 4 did not arrive within 3 s; ranks 0, 2, 3 did. Every rank must make this call" in str(error)
        assert f"(said by rank {rank} of 5, started by {launcher})" in str(error)


def test_rank_0_is_missing_under_another_launcher(address: str) -> None:
    with pytest.raises(
        RendezvousError,
        match=r"nobody opened .* Rank 0 does: it may .* run on another host: across hosts the ranks meet over TCP",
    ):
        meet(Config(1, 2, 1, 2, address, SECRET, "srun", 0.05))


def test_rank_0_is_missing_on_another_host() -> None:
    (port,) = free_ports(1)
    with pytest.raises(RendezvousError, match=r"Rank 0 does: it may be slow, .* hocket doctor --on HOST,HOST tries"):
        meet(Config(1, 2, 0, 1, f"tcp://127.0.0.1:{port}", SECRET, "srun", 0.05))


def test_two_processes_claim_one_rank(address: str, server: StoreServer) -> None:
    def twin() -> list[bytes]:
        with client(address) as store:
            return exchange(store, 1, 2, secrets.token_bytes(8), 0.3)

    found = outcomes({0: twin, 1: twin})
    assert any("two processes claim to be rank 1" in str(error) for error in found.values())


def test_two_jobs_of_different_size_met(address: str, server: StoreServer) -> None:
    with client(address) as store, memory("") as fd:
        store.set("size", b"3")
        with pytest.raises(RendezvousError, match="two jobs met at one address: one has 2 ranks, the other 3"):
            connect(store, 0, 2, fd, 10.0, terms=Terms(SECRET))


class Told:
    """A store in which all others have left their cards already."""

    def __init__(self, **cards: bytes) -> None:
        self.notes = cards

    def set(self, key: str, value: bytes, timeout: float = 0.0) -> None:
        self.notes[key] = value

    def get(self, key: str, timeout: float) -> bytes:
        return self.notes[key]


def own_card(fd: int) -> Card:
    """The card that this process leaves as rank 0."""
    store = Told(**{"1": b"no card"})
    with pytest.raises(RendezvousError, match="no card"):
        connect(store, 0, 2, fd, 10.0, terms=Terms(SECRET))
    return Card.read(store.notes["0"], SECRET, "0", 0, 0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"boot": "another"}, "are on different hosts"),
        ({"network": "net:[1]"}, r"are in different network namespaces \(containers\)"),
    ],
)
def test_another_host_is_one_clear_sentence(changed: dict[str, str], words: str) -> None:
    with memory("") as fd:
        far = own_card(fd)._replace(rank=1, host="faraway", pid=42, **changed)  # type: ignore[arg-type]
        with pytest.raises(
            RendezvousError,
            match=rf"rank 0 .* and rank 1 \(pid 42 on faraway\) {words}, and nothing tells how they can reach",
        ):
            connect(Told(**{"1": far.note(SECRET, "1")}), 0, 2, fd, 10.0, terms=Terms(SECRET))


@pytest.mark.parametrize("host", ["no..name", "n" * 64, "\udce9", "nowhere.invalid"])
def test_a_host_that_cannot_be(host: str) -> None:
    with pytest.raises(RendezvousError, match=f"the host of tcp://{host}:4711 is unknown here"):
        join(Config(1, 2, 0, 1, f"tcp://{host}:4711", SECRET, "x", 5.0), -1)


@pytest.mark.parametrize("blob", [b"", b"\xc1", b"no card", msgpack.packb([1, 2, 3]), msgpack.packb({"rank": 1})])
def test_a_note_that_is_no_card(blob: bytes) -> None:
    with memory("") as fd, pytest.raises(RendezvousError, match=r"no card: do all ranks have one version of hocket\?"):
        connect(Told(**{"1": blob}), 0, 2, fd, 10.0, terms=Terms(SECRET))


def test_a_rank_that_arrived_and_left_is_named(address: str) -> None:
    with memory("") as fd, closing(listen(address)) as listener:
        gone = own_card(fd)._replace(host="host", pid=42, address=address)
        leaver = threading.Thread(target=lambda: listener.accept()[0].close())
        leaver.start()
        with pytest.raises(RendezvousError, match=r"rank 0 \(pid 42 on host\) arrived, but could not be connected: "):
            connect(Told(**{"0": gone.note(SECRET, "0")}), 1, 2, fd, 0.5, terms=Terms(SECRET))
        leaver.join()


def test_a_rank_that_arrived_and_died_is_not_waited_for(address: str) -> None:
    with memory("") as fd:
        dead = own_card(fd)._replace(host="host", pid=42, address=address)
        with pytest.raises(RendezvousError, match=r"rank 0 \(pid 42 on host\) arrived, but .*: .*Connection refused"):
            connect(Told(**{"0": dead.note(SECRET, "0")}), 1, 2, fd, 1000.0, terms=Terms(SECRET))


# ---- whole processes ----


def _join_often(config: Config, times: int, pipe: Any) -> None:
    for _ in range(times):
        links = meet(config)
        pipe.send([os.pread(fd, 99, 0) for fd in links.fds])
        links.close()
    pipe.send((len(open_descriptors()), threading.active_count()))


@pytest.mark.parametrize("launcher", ["hocket run", "torchrun"])
def test_a_process_may_join_again_and_again(address: str, launcher: str) -> None:
    server = StoreServer(address, secret=SECRET).start() if launcher == "hocket run" else None
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for config in configs(address, 3, launcher=launcher):
        here, there = context.Pipe()
        processes.append(context.Process(target=_join_often, args=(config, 3, there)))
        processes[-1].start()
        there.close()
        pipes.append(here)
    expected = [f"memory of rank {r}".encode() for r in range(3)]
    for pipe, process in zip(pipes, processes, strict=True):
        assert [pipe.recv() for _ in range(3)] == [expected] * 3
        fds, threads = pipe.recv()
        assert fds < 12  # the standard ones, multiprocessing's, and none of ours
        assert threads == 1
        process.join(20)
        assert process.exitcode == 0
        process.close()
        pipe.close()
    if server is not None:
        server.close()


def _die_on_arrival(address: str) -> None:
    store = SocketStore(address, SECRET, 10.0)
    store.set("arrived", b"")
    signal.pause()


def test_the_store_survives_a_client_killed(address: str, server: StoreServer) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_die_on_arrival, args=(address,))
    process.start()
    with client(address) as store:
        store.get("arrived", 20.0)
        process.kill()
        process.join(20)
        process.close()
        store.set("key", b"")


def _hold_a_store(address: str, pipe: Any) -> None:
    with closing(StoreServer(address, secret=SECRET).start()):
        pipe.send("open")
        signal.pause()


def test_a_killed_store_leaves_no_name_behind(address: str) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_hold_a_store, args=(address, there))
    process.start()
    assert here.recv() == "open"
    with client(address) as store:
        process.kill()
        process.join(20)
        with pytest.raises(RendezvousError, match="the meeting point went away"):
            store.get("key", 10.0)
    with closing(StoreServer(address, secret=SECRET, timeout=1.0)):  # the address is free
        pass
    process.close()
    here.close()
    there.close()
