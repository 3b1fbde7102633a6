"""What links carry, what nobody else learns of them, and meetings that fail and are tried again."""

from __future__ import annotations

import multiprocessing
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launching import SECRET, check_linked, is_gone, open_descriptors, until

from hocket.config import Config, job_route, job_secret
from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous import cards, mesh
from hocket.rendezvous.files import FileStore
from hocket.rendezvous.join import forget_doors, join
from hocket.rendezvous.links import Links, Terms, connect
from hocket.rendezvous.mesh import Gone, Mesh, Met
from hocket.rendezvous.parcels import Outgoing
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import dial, listen
from hocket.rendezvous.store import SocketStore


def meet(config: Config, timeout: float | None = None) -> Links:
    fd = os.memfd_create("test")
    try:
        return join(config, fd, timeout)
    finally:
        os.close(fd)


def configs(address: str, size: int, launcher: str) -> list[Config]:
    return [Config(r, size, r, size, address, SECRET, launcher, 20.0) for r in range(size)]


def readable(*fds: int, seconds: float = 0.0) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(seconds * 1000)]


def test_what_is_dropped_is_closed() -> None:
    """As by an interrupt, before there is a group that would close it."""
    fd = os.memfd_create("test")
    links = Links.alone(fd)
    inside, pidfd = links.fds[0], os.pidfd_open(os.getpid())
    links.pidfds = [pidfd]
    del links
    for each in (inside, pidfd):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
    os.close(fd)


# ---- pidfds ----


def _rank_with_child(config: Config, pipe: Any) -> None:
    """Meets, forks a child that holds all it has, and waits to be killed."""
    links = meet(config)
    child = os.fork()
    if child == 0:
        signal.pause()
    pipe.send((child, links.pids))
    signal.pause()


def test_a_pidfd_tells_of_a_death_that_the_socket_hides(address: str, server: StoreServer) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    mine, theirs = configs(address, 2, "hocket run")
    process = context.Process(target=_rank_with_child, args=(theirs, there))
    process.start()
    with closing(meet(mine)) as links:
        child, pids = here.recv()
        assert pids == links.pids == [os.getpid(), process.pid]
        assert links.pidfds[0] == -1
        assert not any(os.get_inheritable(fd) for fd in (links.pidfds[1], *links.fds))
        assert links.sockets[1] is not None
        assert not readable(links.pidfds[1], links.sockets[1].fileno())
        try:
            process.kill()
            begin = time.monotonic()
            assert readable(links.pidfds[1], seconds=20.0) == [links.pidfds[1]]
            print(f"the death was seen after {1000 * (time.monotonic() - begin):.1f} ms")
            assert not is_gone(child)
            assert not readable(links.sockets[1].fileno())  # which is why the pidfd is needed
        finally:
            os.kill(child, signal.SIGKILL)
            process.join(20)
            process.close()
            here.close()
            there.close()


def test_outboxes_can_be_closed_alone(address: str, server: StoreServer) -> None:
    before = open_descriptors()
    with ThreadPoolExecutor(2) as pool:
        for links in pool.map(meet, configs(address, 2, "hocket run")):
            links.close_outboxes()
            links.close_outboxes()
            assert links.fds == []
            assert len([fd for fd in links.pidfds if fd >= 0]) == 1
            links.close()
    until(lambda: len(open_descriptors()) <= len(before), "the server's ends closed")


# ---- the secret ----


class Recorder:
    """A store that everybody reads."""

    def __init__(self, store: SocketStore) -> None:
        self.store, self.seen = store, [b""]

    def set(self, key: str, value: bytes, timeout: float = 0.0) -> None:
        self.seen += [key.encode(), value]
        self.store.set(key, value, timeout)

    def get(self, key: str, timeout: float) -> bytes:
        value = self.store.get(key, timeout)
        self.seen.append(value)
        return value


def test_nothing_in_the_store_helps_to_speak_to_a_rank(address: str, server: StoreServer) -> None:
    """The links are proved with the secret, with nothing else, and the store does not hold it."""
    secret = b"\1" + os.urandom(31)

    def rank(rank: int, secret: bytes = secret, timeout: float = 20.0) -> tuple[list[bytes], Links]:
        fd = os.memfd_create("test")
        with closing(SocketStore(address, SECRET, 20.0)) as plain:
            store = Recorder(plain)
            try:
                return store.seen, connect(store, rank, 2, fd, timeout, f"{secret[:1].hex()}/", terms=Terms(secret))
            finally:
                os.close(fd)

    with ThreadPoolExecutor(2) as pool:
        for seen, links in pool.map(rank, range(2)):
            everything = b"\n".join(seen)
            assert len(seen) > 4
            for length in (32, 16, 8):
                pieces = [secret[i : i + length] for i in range(0, 33 - length, 8)]
                assert not any(piece in everything or piece.hex().encode() in everything for piece in pieces)
            links.close()
        # One who only knows what the store holds: all values of it, as secrets.
        waiting = pool.submit(rank, 0, b"\0" + secret, 6.0)
        with closing(SocketStore(address, SECRET, 20.0)) as plain:
            card = plain.get("00/0", 20.0)
            told = cards.Card.read(card, b"\0" + secret, "00/0", 0, 0)
            one = told._replace(rank=1, address="@nobody")
            plain.set("00/1", one.note(b"\0" + secret, "00/1"))  # so that rank 0 waits for links
            name = told.address
            for known in [card, *seen]:
                with pytest.raises((RendezvousError, TimeoutError)):
                    dial(name, known, Deadline(1.0)).close()
            dial(name, b"\0" + secret, Deadline(5.0)).close()  # as it is done
        with pytest.raises(RendezvousError):
            waiting.result(20)


RUN = {"HOCKET_ADDRESS": "@hocket-1", "HOCKET_SECRET": "00ff" * 8}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}


def test_the_secret_that_the_environment_tells() -> None:
    assert job_secret(RUN | TORCHRUN) == bytes.fromhex("00ff" * 8) == Config.from_env(RUN | TORCHRUN).secret
    assert job_secret(TORCHRUN) == Config.from_env(TORCHRUN).secret != b""
    given = TORCHRUN | {"HOCKET_SECRET": "a text"}
    assert job_secret(given) not in (job_secret(TORCHRUN), job_secret(TORCHRUN | {"HOCKET_SECRET": "b"}), b"")
    assert (job_route(given), job_route(given | {"MASTER_ADDR": "::1"})) == ("tcp://here:1", "tcp://[::1]:1")
    assert job_route(TORCHRUN) == job_route(RUN | TORCHRUN) == job_route({"HOCKET_SECRET": "a text"}) == ""
    assert job_secret(TORCHRUN) == job_secret(TORCHRUN | {"RANK": "0"}) != job_secret(TORCHRUN | {"MASTER_PORT": "1"})
    for nothing in (
        {},
        {"RANK": "1"},
        {"HOCKET_ADDRESS": "@a", "HOCKET_SECRET": "no hex"},
        {"OMPI_COMM_WORLD_SIZE": "2"},
    ):
        assert job_secret(nothing) == b""


# ---- meetings that fail ----


@pytest.mark.parametrize("early", [0, 1, 2])
@pytest.mark.parametrize("launcher", ["hocket run", "torchrun"])
def test_a_rank_that_gave_up_too_early_tries_again_and_meets(address: str, launcher: str, early: int) -> None:
    """And so do the ranks of the next meeting."""
    ranks = configs(address, 3, launcher)
    gave_up = threading.Event()

    def impatient() -> Links:
        for timeout in (0.05, 0.1):
            with pytest.raises(RendezvousError):
                meet(ranks[early], timeout)
        gave_up.set()
        return meet(ranks[early])

    def patient(config: Config) -> Links:
        if config.rank == (early + 1) % 3:  # one waits all along, the other comes late
            assert gave_up.wait(20)
        for _ in range(3):  # rank 0 may hold the meeting point, and give up: that ends the meeting for all
            with suppress(RendezvousError):
                return meet(config)
        raise AssertionError("never met")

    with closing(StoreServer(address, secret=SECRET).start()), ThreadPoolExecutor(3) as pool:
        found = [pool.submit(impatient if c.rank == early else lambda c=c: patient(c)) for c in ranks]  # type: ignore[misc]
        check_linked([each.result(60) for each in found])
        check_linked(list(pool.map(meet, ranks)))


def test_ranks_meet_in_a_folder_and_leave_nothing_there(tmp_path: Path) -> None:
    """One that gives up tries again; and notes that a job has left are told from those of a second one."""
    ranks = configs(f"file://{tmp_path}/notes", 3, "HOCKET_RENDEZVOUS")
    with pytest.raises(RendezvousError, match="ranks 0, 2 did not arrive"):
        meet(ranks[1], 0.05)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            check_linked(list(pool.map(meet, ranks)))
            assert list((tmp_path / "notes").iterdir()) == []
    FileStore(tmp_path / "notes").set("3/1", b"that of a job which was killed")
    with pytest.raises(RendezvousError, match=r"claim to be rank 1: .* Or an earlier job has left its notes in"):
        meet(ranks[1], 1.0)
    with pytest.raises(
        RendezvousError, match=r"one has 4 ranks, the other 3: do all agree on the size\? Or an earlier job"
    ):
        meet(replace(ranks[0], size=4, timeout=1.0))
    forget_doors()


def test_a_meeting_without_this_rank_is_over_for_it(address: str, server: StoreServer) -> None:
    """The others' doors are closed; so the next try is for the next meeting."""
    with closing(SocketStore(address, SECRET, 20.0)) as store:
        fds = [os.memfd_create("test") for _ in range(2)]

        def first(rank: int) -> Links:
            with closing(SocketStore(address, SECRET, 20.0)) as own:
                return connect(own, rank, 2, fds[rank], 20.0, "0/", terms=Terms(SECRET))

        with ThreadPoolExecutor(2) as pool:
            for links in pool.map(first, range(2)):
                links.close()
        left = cards.Card.read(store.get("0/1", 1.0), SECRET, "0/1", 1, 0)
    with (
        closing(StoreServer(address + "x", secret=SECRET).start()),
        closing(SocketStore(address + "x", SECRET, 20.0)) as store,
    ):
        store.set("0/size", b"2")
        store.set("0/0", left.note(SECRET, "0/0"))
        ranks = configs(address + "x", 2, "hocket run")
        with pytest.raises(RendezvousError, match=r"could not be connected: .* is not there any more") as caught:
            meet(ranks[1])
        assert isinstance(caught.value.__cause__, Gone)
        store.set("1/size", b"2")
        with pytest.raises(RendezvousError, match="rank 0 did not arrive within"):
            meet(ranks[1], 0.05)
        assert store.get("1/1", 0.0)
    for fd in fds:
        os.close(fd)


class Tries:
    """One rank's tries to be linked with two others, in threads of their own. `missing` is whom it waits for."""

    def __init__(self, rank: int, listeners: list[socket.socket]) -> None:
        self.rank, self.own = rank, listeners[rank]
        self.addresses = [f"@{sock.getsockname()[1:].decode()}" for sock in listeners]
        self.missing: list[int] = []
        self.enough: list[int] | None = None  # it gives up when these are missing

    def look(self, missing: list[int]) -> None:
        self.missing = missing
        if missing == self.enough:
            raise RendezvousError("enough")

    def go(self, addresses: list[str] | None = None) -> dict[int, Met]:
        names = [f"rank {rank}" for rank in range(3)]
        own = Mesh([(self.own, None)], names, addresses or self.addresses, self.rank, SECRET)
        with descriptors() as fds:
            return own.run(fds, Deadline(20.0), self.look)


@contextmanager
def descriptors() -> Iterator[list[int]]:
    """What a rank gives to those of its host."""
    fds = [os.memfd_create("test"), os.pidfd_open(os.getpid())]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def close_all(found: list[dict[int, Met]]) -> None:
    for links in found:
        for sock, fds, *_ in links.values():
            sock.close()
            for fd in fds:
                os.close(fd)


def test_a_rank_that_comes_anew_while_another_is_missing_is_met() -> None:
    """Rank 1 had linked with both, and said so, before both left: it must say so again to each of them."""
    listeners = [listen(f"@hocket-test-{os.urandom(8).hex()}") for _ in range(4)]
    one, two, zero = (Tries(rank, listeners[:3]) for rank in (1, 2, 0))
    nowhere = f"@{listeners[3].getsockname()[1:].decode()}"  # it listens, and nobody answers
    before = open_descriptors()
    with ThreadPoolExecutor(3) as pool:
        all_along = pool.submit(one.go)
        first = pool.submit(two.go, [nowhere, *two.addresses[1:]])
        until(lambda: one.missing == [0] == two.missing, "ranks 1 and 2 linked")
        zero.enough = [2]
        with pytest.raises(RendezvousError, match="enough"):
            pool.submit(zero.go).result(20)
        two.enough = [0]
        with pytest.raises(RendezvousError, match="enough"):
            first.result(20)
        two.enough, two.missing = None, []
        second = pool.submit(two.go)
        until(lambda: one.missing == [0] == two.missing, "ranks 1 and 2 linked once more")
        zero.enough = None
        found = [pool.submit(zero.go).result(20), all_along.result(20), second.result(20)]
    close_all(found)
    assert open_descriptors() <= before
    for sock in listeners:
        sock.close()


def test_a_line_that_was_given_up_does_not_take_the_place_of_the_one_after_it() -> None:
    """What one who gave up had said may be read after what it said when it came anew."""
    (listener, door) = (listen(f"@hocket-test-{os.urandom(8).hex()}") for _ in range(2))
    addresses = [f"@{sock.getsockname()[1:].decode()}" for sock in (listener, door)]
    seen: list[list[int]] = []

    def look(_: list[int]) -> None:
        seen.append([line.number for line in meeting._lines.values()])

    meeting = Mesh([(listener, None)], ["0", "1"], addresses, 0, SECRET)
    with ThreadPoolExecutor(1) as pool, descriptors() as fds:
        running = pool.submit(meeting.run, fds, Deadline(20.0), look)
        old, new = (dial(addresses[0], SECRET, Deadline(20.0)) for _ in range(2))
        for sock, number in ((new, 8), (old, 7)):
            Outgoing(sock, mesh.GREETING.pack(1, 0, 0, number), fds).push()
            until(lambda: seen and seen[-1] == [8], "the later line known")
        old.settimeout(20.0)
        with suppress(ConnectionResetError):
            while old.recv(99):  # until it is closed
                pass
        new.send(b"\1")
        close_all([running.result(20)])
    for sock in (old, new, listener, door):
        sock.close()


def test_who_has_said_that_it_met_all_does_not_give_up_for_want_of_descriptors() -> None:
    """The others may be through already; and it needs none for itself."""
    (listener, door) = (listen(f"@hocket-test-{os.urandom(8).hex()}") for _ in range(2))
    addresses = [f"@{sock.getsockname()[1:].decode()}" for sock in (listener, door)]
    looks: list[int] = []

    def look(_: list[int]) -> None:
        looks.append(sum(line.said_met for line in meeting._lines.values()))

    meeting = Mesh([(listener, None)], ["0", "1"], addresses, 0, SECRET)
    with ThreadPoolExecutor(1) as pool, descriptors() as fds, socket.socket(socket.AF_UNIX) as stranger:
        running = pool.submit(meeting.run, fds, Deadline(20.0), look)
        peer = dial(addresses[0], SECRET, Deadline(20.0))
        Outgoing(peer, mesh.GREETING.pack(1, 0, 0, 0), fds).push()
        until(lambda: looks and looks[-1] == 1, "all met, as far as rank 0 knows")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            stranger.connect("\0" + addresses[0][1:])
            before = len(looks)
            until(lambda: running.done() or len(looks) > before + 5, "the stranger noticed")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        peer.send(b"\1")
        close_all([running.result(20)])
    for sock in (peer, listener, door):
        sock.close()


def test_a_connection_that_is_closed_as_it_is_made_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that runs out of descriptors, or gives up, drops whom it has accepted, however little they have said."""
    listener, door = listen(f"@hocket-test-{os.urandom(8).hex()}"), listen(f"@hocket-test-{os.urandom(8).hex()}")
    addresses = [f"@{sock.getsockname()[1:].decode()}" for sock in (listener, door)]
    reach = mesh.reach

    def reach_and_drop(address: str, *, early: bool = True) -> socket.socket | None:
        sock = reach(address, early=early)  # a connection to a listener of this host is there at once
        listener.accept()[0].close()
        monkeypatch.setattr(mesh, "reach", reach)  # from here on rank 0 may listen
        return sock

    monkeypatch.setattr(mesh, "reach", reach_and_drop)
    meshes = [Mesh([(sock, None)], ["0", "1"], addresses, rank, SECRET) for rank, sock in enumerate((listener, door))]
    with ThreadPoolExecutor(2) as pool, descriptors() as fds:
        caller = pool.submit(meshes[1].run, fds, Deadline(20.0))
        until(lambda: mesh.reach is reach, "the first connection")
        found = [pool.submit(meshes[0].run, fds, Deadline(20.0)).result(20), caller.result(20)]
    close_all(found)
    listener.close()
    door.close()


def test_a_failed_meeting_keeps_its_door_and_nothing_else(address: str, server: StoreServer) -> None:
    (config, _) = configs(address, 2, "hocket run")
    before = open_descriptors()
    for _ in range(20):
        with pytest.raises(RendezvousError):
            meet(config, 0.01)
    until(lambda: len(open_descriptors()) <= len(before) + 1, "all but the door closed")
    forget_doors()
    assert open_descriptors() <= before


def test_a_forked_child_does_not_keep_the_door_open(address: str, server: StoreServer) -> None:
    (config, _) = configs(address, 2, "hocket run")
    with pytest.raises(RendezvousError):
        meet(config, 0.01)
    with closing(SocketStore(address, SECRET, 20.0)) as store:
        name = cards.Card.read(store.get("0/0", 1.0), SECRET, "0/0", 0, 0).address[1:]
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        forget_doors()

        def closed() -> bool:
            with socket.socket(socket.AF_UNIX) as sock, suppress(ConnectionRefusedError):
                sock.connect("\0" + name)
                return False
            return True

        until(closed, "nobody listening")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_container_without_proc_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", missing)
        assert cards.whereabouts() == (socket.gethostname(), "")
