"""TLS between ranks: nothing goes in clear, and who has no certificate of the job's authority gets nowhere."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from launching import SECRET, Hocket, until

from certificates import certified
from hocket._core import Credentials
from hocket.config import Config, job_sockets
from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import Address, dial, listen
from hocket.rendezvous.store import SocketStore
from hocket.rendezvous.tls import TlsSocket, credentials


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def variables(folder: Path) -> dict[str, str]:
    return certified(folder)


@pytest.fixture(scope="module")
def shown(variables: dict[str, str]) -> Credentials:
    return of(variables)


@pytest.fixture(scope="module")
def strange(folder: Path) -> Credentials:
    """Those of another authority."""
    return of(certified(folder, "strange"))


def of(variables: dict[str, str]) -> Credentials:
    made = credentials(job_sockets(variables).tls)
    assert made is not None
    return made


@contextmanager
def joined() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one TCP connection, without blocking."""
    with (
        listen("tcp://127.0.0.1:0#") as listener,
        socket.create_connection(listener.getsockname()) as one,
        listener.accept()[0] as other,
    ):
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


class Tap:
    """A listener that passes everything on to the one at `address`, and keeps it."""

    def __init__(self, address: str) -> None:
        self.heard = bytearray()
        self._listener = listen("tcp://127.0.0.1:0#")
        self.port: int = self._listener.getsockname()[1]
        self._onward = Address.of(address).place
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            onward = socket.create_connection(self._onward)
            for source, target in ((caller, onward), (onward, caller)):
                self._threads.append(threading.Thread(target=self._pass, args=(source, target)))
                self._threads[-1].start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.heard += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(20)


@contextmanager
def served(tls: Credentials | None) -> Iterator[str]:
    """The address of a store."""
    with closing(StoreServer("tcp://127.0.0.1:0#s", secret=SECRET, tls=tls).start()) as server:
        yield f"tcp://127.0.0.1:{server._listeners[0].getsockname()[1]}#s"


@pytest.mark.parametrize("hidden", [False, True], ids=["clear", "tls"])
def test_nothing_of_the_store_goes_in_clear(shown: Credentials, hidden: bool) -> None:
    tls, value = (shown if hidden else None), os.urandom(500)
    with (
        served(tls) as address,
        closing(Tap(address)) as tap,
        closing(SocketStore(f"tcp://127.0.0.1:{tap.port}#s", SECRET, 20.0, tls)) as store,
    ):
        store.set("what nobody is to read", value)
        assert store.get("what nobody is to read", 20.0) == value
    assert (value in tap.heard) != hidden
    assert (b"what nobody is to read" in tap.heard) != hidden
    assert tap.heard.startswith(b"\x16\x03") == hidden  # a handshake of TLS


def test_long_values_and_many_at_once(shown: Credentials) -> None:
    """More than a socket takes at once, or TLS in one record."""
    with served(shown) as address, ExitStack() as stack:
        values = [os.urandom(1_000_000 + i) for i in range(4)]
        stores = [stack.enter_context(closing(SocketStore(address, SECRET, 20.0, shown))) for _ in values]
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(stores[i].get, str((i + 1) % 4), 20.0) for i in range(4)]
            for i, value in enumerate(values):
                with closing(SocketStore(address, SECRET, 20.0, shown)) as store:
                    store.set(str(i), value)
            for i in range(4):
                assert waiting[i].result(20) == values[(i + 1) % 4]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ("strange", "shown", "TLS: .*certificate verify failed"),
        ("shown", "strange", "TLS: .*certificate verify failed"),
        (None, "shown", "the other end speaks TLS, and this rank was not told to: set HOCKET_TLS_CERT"),
        ("shown", None, "TLS: .*does the other end use TLS, too"),
    ],
)
def test_who_has_no_certificate_is_told(
    request: pytest.FixtureRequest, ours: str | None, theirs: str | None, words: str
) -> None:
    mine, its = (request.getfixturevalue(name) if name else None for name in (ours, theirs))
    with served(its) as address, pytest.raises(RendezvousError, match=words):
        dial(address, SECRET, Deadline(20.0), mine)


def test_a_caller_without_a_certificate_is_refused(shown: Credentials, variables: dict[str, str]) -> None:
    """By the other end: OpenSSL's own client, which believes the authority and shows nothing."""
    context = ssl.create_default_context(cafile=variables["HOCKET_TLS_CA"])
    context.check_hostname = False
    with (
        served(shown) as address,
        socket.create_connection(Address.of(address).place) as sock,
        context.wrap_socket(sock) as wrapped,
    ):
        assert wrapped.version() == "TLSv1.3"
        with pytest.raises(ssl.SSLError, match=r"certificate.required"):
            wrapped.recv(1)


def test_older_versions_are_refused(shown: Credentials, variables: dict[str, str]) -> None:
    context = ssl.create_default_context(cafile=variables["HOCKET_TLS_CA"])
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        served(shown) as address,
        socket.create_connection(Address.of(address).place) as sock,
        pytest.raises(ssl.SSLError, match=r"protocol.version"),
    ):
        context.wrap_socket(sock)


def test_what_is_said_before_the_handshake_is_over_arrives(shown: Credentials) -> None:
    """And in order, with what is said later, in pieces of any size."""
    with joined() as (one, other):
        caller, host = TlsSocket(one, shown, True), TlsSocket(other, shown, False)
        with caller, host:
            sent, said = bytearray(), {caller: bytearray(), host: bytearray()}
            for i in range(300):
                piece = os.urandom(1 + i * 37 % 5000)
                sent += piece
                for sock in (caller, host):
                    sock.sendall(piece)
                    said[sock] += _heard(sock, 1 + i % 4000)

            def all_heard() -> bool:
                for sock in said:
                    said[sock] += _heard(sock)
                return all(len(data) == len(sent) for data in said.values())

            until(all_heard, "all of it heard")
            assert said[caller] == said[host] == sent
            host.close()
            assert caller.recv(1) == b""


def test_a_socket_that_takes_no_more_says_so_and_loses_nothing(shown: Credentials) -> None:
    with joined() as (one, other):
        caller, host = TlsSocket(one, shown, True), TlsSocket(other, shown, False)
        with caller, host:
            for sock, word in ((caller, b"!"), (host, b"?")):
                sock.send(word)
            heard = {caller: b"", host: b""}

            def both() -> bool:
                for sock in heard:
                    heard[sock] += _heard(sock)
                return heard == {caller: b"?", host: b"!"}

            until(both, "the handshake done")
            data, sent = os.urandom(32 << 20), 0
            with suppress(BlockingIOError):
                while sent < len(data):
                    sent += caller.send(data[sent : sent + 300_000])
            assert sent < len(data)
            got = bytearray()
            while len(got) < len(data):
                with suppress(BlockingIOError):
                    sent += caller.send(data[sent : sent + 300_000]) if sent < len(data) else 0
                got += _heard(host)
            assert got == data


def _heard(sock: socket.socket, most: int = 1 << 20) -> bytes:
    try:
        return sock.recv(most)
    except BlockingIOError:
        return b""


# ---- what the user says ----


def test_files_that_are_no_good_are_named(folder: Path, variables: dict[str, str]) -> None:
    other = certified(folder, "other")
    empty = folder / "empty.pem"
    empty.touch()
    for name, file, words in (
        ("HOCKET_TLS_CERT", "/nowhere.pem", "/nowhere.pem, which TLS needs, cannot be read: No such file"),
        ("HOCKET_TLS_CERT", str(empty), "the certificate .*empty.pem cannot be used"),
        ("HOCKET_TLS_KEY", other["HOCKET_TLS_KEY"], "the key .*other-key.pem cannot be used with the certificate"),
        ("HOCKET_TLS_CA", str(empty), "the authority's certificate .*empty.pem cannot be used"),
    ):
        with pytest.raises(RendezvousError, match=words):
            of({**variables, name: file})


def test_half_of_it_is_an_error() -> None:
    with pytest.raises(RendezvousError, match="HOCKET_TLS_KEY and HOCKET_TLS_CA names none"):
        Config.from_env({"HOCKET_TLS_CERT": "here.pem"})
    with pytest.raises(RendezvousError, match='HOCKET_INTEGRITY is "yes"'):
        Config.from_env({"HOCKET_INTEGRITY": "yes"})
    assert not Config.from_env({"HOCKET_INTEGRITY": "0"}).sockets.integrity


def test_ranks_must_agree_on_integrity(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket\n"
        "try: hocket.init(3, integrity=rank == 1)\n"
        "except hocket.RendezvousError as error: say(rank, error)\n"
    )
    done = hocket.run("run", "-n", "2", script, environ={"HOCKET_TRANSPORT": "tcp"})
    assert "2 with integrity" in done.stdout or "2 ranks with integrity" in done.stdout, done
    assert "do all agree on integrity?" in done.stdout, done
