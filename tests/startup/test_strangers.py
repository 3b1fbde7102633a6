"""Who connects to a job and does not belong to it: it gets nowhere, and the job does not notice."""

from __future__ import annotations

import os
import resource
import selectors
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from unittest import mock

import msgpack
import pytest
from launching import SECRET, client, open_descriptors, until

from hocket.config import Config
from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous import doors, reception
from hocket.rendezvous.cards import Card
from hocket.rendezvous.join import join
from hocket.rendezvous.links import Links
from hocket.rendezvous.reception import Reception
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import MAX_FRAME, Handshake, dial, listen, read, unpack
from hocket.rendezvous.sockets import _digest as digest

PROMPT = 3.0  # seconds: less than the five that one silent stranger would be waited for


def connect(address: str) -> socket.socket:
    """A stranger's socket."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect("\0" + address[1:])
    return sock


@contextmanager
def silent(address: str, count: int) -> Iterator[list[socket.socket]]:
    """So many who say nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(connect(address))) for _ in range(count)]


def take(sock: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    return read(sock, count, Deadline(20.0))


def is_closed(sock: socket.socket) -> bool:
    """Read to the end of the file, or fail."""
    with suppress(ConnectionResetError):
        while sock.recv(1 << 16):
            pass
    return True


def join_all(address: str, size: int, launcher: str) -> list[Links]:
    """The ranks are threads here, each with a memory file."""

    def rank(config: Config) -> Links:
        fd = os.memfd_create("test")
        try:
            os.write(fd, f"memory of {config.rank}".encode())
            return join(config, fd)
        finally:
            os.close(fd)

    configs = [Config(r, size, r, size, address, SECRET, launcher, 60.0) for r in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, configs))


# ---- the silent ----


@pytest.mark.parametrize("count", [4, 200, 1000])
def test_silent_callers_of_the_store_do_not_hold_up_a_rendezvous(address: str, server: StoreServer, count: int) -> None:
    threads = threading.active_count()
    with silent(address, count):
        begin = time.monotonic()
        found = join_all(address, 3, "hocket run")
        assert time.monotonic() - begin < PROMPT
        assert threading.active_count() == threads
        for links in found:
            assert [os.pread(fd, 99, 0) for fd in links.fds] == [f"memory of {r}".encode() for r in range(3)]
            links.close()


@pytest.mark.parametrize("count", [4, 200, 1000])
def test_silent_callers_of_a_rank_do_not_hold_up_a_rendezvous(
    address: str, server: StoreServer, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are there before the first rank calls."""
    with ExitStack() as stack:

        def listen_with_strangers(name: str) -> socket.socket:
            listener = listen(name)
            stack.enter_context(silent(name, count))
            return listener

        monkeypatch.setattr(doors, "listen", listen_with_strangers)
        begin = time.monotonic()
        for links in join_all(address, 3, "hocket run"):
            links.close()
        assert time.monotonic() - begin < PROMPT


def test_silent_callers_are_sent_away_when_their_time_is_over(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "Deadline", lambda seconds: Deadline(seconds / 50))
    with closing(StoreServer(address, secret=SECRET).start()), silent(address, 9) as strangers:
        strangers[4].sendall(bytes(16))  # half a handshake
        assert all(is_closed(stranger) for stranger in strangers)


def test_of_too_many_the_longest_silent_has_to_go(address: str, server: StoreServer) -> None:
    """Not one that has begun to prove itself."""
    with closing(connect(address)) as early, silent(address, reception.STRANGERS - 1) as first:
        early.sendall(bytes(16))
        assert len(take(early, 48)) == 48  # it was heard: nonce and proof
        with silent(address, 10):
            assert all(is_closed(stranger) for stranger in first[:10])
            first[10].sendall(bytes(16))
            assert len(take(first[10], 48)) == 48
            early.setblocking(False)
            with pytest.raises(BlockingIOError):
                early.recv(1)


# ---- the dishonest ----


def garbage(sock: socket.socket) -> None:
    sock.sendall(bytes(range(256)) * 4)


def half(sock: socket.socket) -> None:
    sock.sendall(bytes(16))
    sock.shutdown(socket.SHUT_WR)


def wrong_secret(sock: socket.socket) -> None:
    mine = bytes(16)
    sock.sendall(mine)
    theirs = take(sock, 16)
    sock.sendall(digest(b"a wrong secret", "caller", sock.getpeername(), mine, theirs))


def reflected(sock: socket.socket) -> None:
    """Says what the listener says: its nonce, and its proof."""
    theirs = take(sock, 16)
    sock.sendall(theirs)
    sock.sendall(take(sock, 32))


def passed_on(sock: socket.socket) -> None:
    """A proof that was meant for another listener of the job."""
    mine = bytes(16)
    sock.sendall(mine)
    theirs = take(sock, 16)
    sock.sendall(digest(SECRET, "caller", b"\0another", mine, theirs))


def proven_then(data: bytes) -> Callable[[socket.socket], None]:
    def stranger(sock: socket.socket) -> None:
        handshake = Handshake(sock, SECRET, "caller")
        while not handshake.advance():
            pass
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    return stranger


ASK = msgpack.packb(["get", "nobody's", 1000.0])
DISHONEST: dict[str, Callable[[socket.socket], None]] = {
    "garbage": garbage,
    "half a handshake": half,
    "wrong secret": wrong_secret,
    "reflected": reflected,
    "passed on": passed_on,
    "oversized frame": proven_then(struct.pack("<I", MAX_FRAME + 1)),
    "asks twice": proven_then((struct.pack("<I", len(ASK)) + ASK) * 2),
    "asks and leaves": proven_then(struct.pack("<I", len(ASK)) + ASK),
}


@pytest.mark.parametrize("what", DISHONEST)
def test_the_dishonest_are_refused_and_the_job_is_unharmed(address: str, server: StoreServer, what: str) -> None:
    threads = threading.active_count()
    for _ in range(5):
        with closing(connect(address)) as sock:
            with suppress(BrokenPipeError, ConnectionResetError):
                DISHONEST[what](sock)
            assert is_closed(sock)
            assert threading.active_count() == threads
    with client(address) as store:
        store.set("key", b"value")
        assert store.get("key", 1.0) == b"value"


@pytest.mark.parametrize(("read", "refused"), [(unpack, ValueError), (Card.unpack, RendezvousError)])
def test_no_list_is_made_because_its_length_is_told(read: Callable[[bytes], object], refused: type[Exception]) -> None:
    """Of lists within lists, each of as many as there are bytes: megabytes, for a few thousand bytes of a member."""
    length = struct.pack(">BI", 0xDD, 4000)
    tracemalloc.start()
    try:
        with pytest.raises(refused):
            read(length * 800)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_right_proof_by_hand_is_accepted(address: str, server: StoreServer) -> None:
    """Which shows that those above were refused for what is wrong with them."""
    mine = bytes(range(16))
    with closing(connect(address)) as sock:
        sock.sendall(mine)
        theirs = take(sock, 16)
        sock.sendall(digest(SECRET, "caller", sock.getpeername(), mine, theirs))
        proof = take(sock, 32)
        assert proof == digest(SECRET, "host", sock.getpeername(), theirs, mine)
        request = msgpack.packb(["set", "key", b"by hand"])
        sock.sendall(struct.pack("<I", len(request)) + request)
        (length,) = struct.unpack("<I", take(sock, 4))
        assert msgpack.unpackb(take(sock, length)) == ["ok", b""]


def test_a_thousand_waits_cost_no_thread(address: str, server: StoreServer) -> None:
    threads = threading.active_count()
    body = msgpack.packb(["get", "key", 1000.0])
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(dial(address, SECRET, Deadline(20.0)))) for _ in range(1000)]
        for sock in clients:
            sock.sendall(struct.pack("<I", len(body)) + body)
        with client(address) as store:
            store.set("key", b"value")
        assert threading.active_count() == threads
        answer = msgpack.packb(["ok", b"value"])
        for sock in clients:
            sock.settimeout(20)
            assert sock.recv(99) == struct.pack("<I", len(answer)) + answer


def test_an_answer_that_is_not_taken_holds_nobody_up(address: str, server: StoreServer) -> None:
    """More than a socket's buffer holds, for one who does not read; it may still take it later."""
    value = os.urandom(MAX_FRAME - 100)
    body = msgpack.packb(["get", "key", 0.0])
    with closing(dial(address, SECRET, Deadline(20.0))) as slow, client(address) as store:
        store.set("key", value)
        slow.sendall(struct.pack("<I", len(body)) + body)
        assert store.get("key", 1.0) == value
        answer = msgpack.packb(["ok", value])
        slow.settimeout(20)
        assert take(slow, 4 + len(answer)) == struct.pack("<I", len(answer)) + answer


# ---- without descriptors ----


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open none."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_survives_that_descriptors_are_used_up(address: str, server: StoreServer) -> None:
    """It neither ends nor spins, and goes on when there are some again."""
    late = socket.socket(socket.AF_UNIX)
    late.settimeout(20)
    with closing(late), client(address) as store:
        with no_descriptors():
            late.connect("\0" + address[1:])
            begin, busy = time.monotonic(), time.process_time()
            while time.monotonic() - begin < 0.5:
                store.set("key", b"")
                with pytest.raises(RendezvousError):
                    store.get("absent", 0.05)
            assert time.process_time() - busy < 0.4
        assert len(take(late, 16)) == 16  # the nonce


def test_silent_strangers_go_first_where_descriptors_are_used_up(address: str, server: StoreServer) -> None:
    member = socket.socket(socket.AF_UNIX)
    member.setblocking(False)
    with closing(member), silent(address, 3) as strangers:
        assert all(len(take(stranger, 16)) == 16 for stranger in strangers)
        with no_descriptors():
            member.connect("\0" + address[1:])
            handshake = Handshake(member, SECRET, "caller")
            until(handshake.advance, "the member proven")
        assert is_closed(strangers[0])


def test_one_that_is_not_patient_gives_up_and_says_why(address: str) -> None:
    with (
        closing(StoreServer(address, secret=SECRET, patient=False).start()),
        client(address) as store,
        closing(socket.socket(socket.AF_UNIX)) as late,
        ThreadPoolExecutor(1) as pool,
    ):
        store.set("key", b"")
        waiting = pool.submit(store.get, "absent", 1000.0)
        with no_descriptors():
            late.connect("\0" + address[1:])
            with pytest.raises(RendezvousError, match=r"used up its file descriptors: \d+ are allowed \(ulimit -n\)"):
                waiting.result(20)


def test_a_reception_leaves_nothing(address: str) -> None:
    before = open_descriptors()
    with closing(listen(address)) as listener, selectors.DefaultSelector() as selector, silent(address, 5):
        hall = Reception(listener, SECRET, selector, lambda sock: None)
        for key, _ in selector.select(0):
            key.data()
        assert 0 < hall.tick() < 6  # type: ignore[operator]
        hall.close()
    assert open_descriptors() <= before


def test_an_interrupt_as_somebody_comes(address: str) -> None:
    """It is not lost in what closes the door."""
    with closing(listen(address)) as listener, selectors.DefaultSelector() as selector, silent(address, 1):
        hall = Reception(listener, SECRET, selector, lambda sock: None)
        (key, _), *_ = selector.select()
        with mock.patch.object(selector, "register", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            key.data()
        hall.close()
