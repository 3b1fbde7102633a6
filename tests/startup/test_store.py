"""The store: notes, deadlines, and everyone who should not be there."""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import msgpack
import pytest
from launching import SECRET, client

from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous.files import FileStore
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import MAX_FRAME, dial, listen
from hocket.rendezvous.store import Absent, SocketStore, Taken


def test_a_note_is_read_by_who_waits_for_it(address: str, server: StoreServer) -> None:
    with client(address) as one, client(address) as other, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.get, "key", 10.0)
        one.set("key", b"\0value")
        assert waiting.result() == b"\0value"
        assert one.get("key", 0.0) == b"\0value"


def test_who_holds_the_store_sees_what_is_there(address: str, server: StoreServer) -> None:
    assert not server.has("key")
    with client(address) as store:
        store.set("key", b"")
        assert server.has("key")
        assert not server.has("other")


def test_a_key_is_written_once(address: str, server: StoreServer) -> None:
    with client(address) as store:
        store.set("key", b"1")
        store.set("key", b"1")
        with pytest.raises(Taken, match='"key" holds another value already') as caught:
            store.set("key", b"2")
        assert caught.value.value == b"1"


def test_a_note_that_does_not_come(address: str, server: StoreServer) -> None:
    with client(address) as store, pytest.raises(Absent, match=r'nobody wrote "key" within 0\.1 s'):
        store.get("key", 0.1)


def test_who_waits_is_told_why_the_store_closed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    class Notes(dict[str, bytes]):
        def __contains__(self, key: object) -> bool:
            asked.set()
            return super().__contains__(key)

    server = StoreServer(address, secret=SECRET).start()
    monkeypatch.setattr(server, "_notes", Notes())
    with client(address) as store, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "key", 30.0)
        assert asked.wait(20.0)
        server.close("the reason")
        with pytest.raises(RendezvousError, match="the reason"):
            waiting.result()
        server.close("a second time is nothing")


def test_the_last_word_of_a_closed_store_is_heard(address: str) -> None:
    server = StoreServer(address, secret=SECRET).start()
    with client(address) as store:
        store.set("key", b"")
        server.close("the reason")
        with pytest.raises(RendezvousError, match="the reason"):
            store.get("key", 10.0)
        with pytest.raises(RendezvousError, match="the meeting point went away"):
            store.get("key", 10.0)


def test_nobody_listens(address: str) -> None:
    with pytest.raises(Absent, match=f"nobody opened the meeting point {address} within 0.1 s"):
        SocketStore(address, SECRET, 0.1)


def test_the_address_is_held_by_another_job(address: str, server: StoreServer) -> None:
    with pytest.raises(RendezvousError, match="another job holds the meeting point"):
        StoreServer(address, secret=SECRET, timeout=0.05)


def test_an_early_client_waits_for_the_server(address: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(SocketStore, address, SECRET, 10.0)
        with closing(StoreServer(address, secret=SECRET).start()), closing(early.result()) as store:
            store.set("key", b"")


def test_another_jobs_secret_is_refused(address: str, server: StoreServer) -> None:
    with pytest.raises(RendezvousError, match="does not know this job's secret"):
        SocketStore(address, b"another secret", 10.0)
    with client(address) as store:  # and the server goes on
        store.set("key", b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("stranger", ["caller", "host"])
def test_another_user_is_refused(address: str, stranger: str) -> None:
    """The kernel tells the uid, at both ends, whatever the other one knows."""

    def be_the_stranger() -> None:
        os.setresuid(65534, 65534, 65534)
        if stranger == "host":
            with closing(listen(address)) as listener:
                listener.settimeout(20)
                listener.accept()
        else:
            with pytest.raises(RendezvousError, match=r"belongs to user id 0, not to 65534"):
                SocketStore(address, SECRET, 10.0)

    context = multiprocessing.get_context("fork")
    process = context.Process(target=be_the_stranger)
    if stranger == "host":
        process.start()
        with pytest.raises(RendezvousError, match=r"belongs to user id 65534, not to 0: it is no part of this job"):
            SocketStore(address, SECRET, 10.0)
    else:
        server = StoreServer(address, secret=SECRET)  # not started: no thread of ours at the fork
        process.start()
        with closing(server.start()):
            process.join(20)
    process.join(20)
    assert process.exitcode == 0
    process.close()


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("<I", MAX_FRAME + 1) + b"x",
        struct.pack("<I", 3) + b"\xc1\xc1\xc1",
        struct.pack("<I", 4) + msgpack.packb([1, 2, 3]),
        struct.pack("<I", 5) + msgpack.packb(["set", 1]) + b"\0",
        struct.pack("<I", 20) + b"short",
    ],
    ids=["too long", "not msgpack", "no request", "trailing byte", "cut off"],
)
def test_nonsense_ends_only_its_own_connection(address: str, server: StoreServer, frame: bytes) -> None:
    with closing(dial(address, SECRET, Deadline(10.0))) as sock:
        sock.sendall(frame)
        sock.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # what it left unread
            assert sock.recv(1) == b""
    with client(address) as store:
        store.set("key", b"")


def test_a_caller_that_says_nothing_holds_nobody_up(address: str, server: StoreServer) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.connect("\0" + address[1:])
        with client(address) as store:
            store.set("key", b"")


def test_a_value_beyond_the_cap_is_refused_before_it_is_sent(address: str, server: StoreServer) -> None:
    with client(address) as store:
        with pytest.raises(RendezvousError, match=f"at most {MAX_FRAME} are allowed"):
            store.set("key", bytes(MAX_FRAME))
        store.set("key", b"")


# ---- in a folder ----


def test_notes_in_a_folder_appear_whole_and_once(tmp_path: Path) -> None:
    """Many write one key at once: one is heard, all others are told what it said. Readers see nothing else."""
    folder = tmp_path / "not" / "there"
    stores = [FileStore(folder) for _ in range(8)]
    values = [bytes([rank]) * 100_000 for rank in range(8)]

    hints: list[str] = []

    def write(rank: int) -> bytes:
        try:
            stores[rank].set("0/size", values[rank])
        except Taken as taken:
            hints.append(taken.hint)
            return taken.value
        return values[rank]

    with ThreadPoolExecutor(16) as pool:
        seen = [pool.submit(store.get, "0/size", 20.0) for store in stores]
        heard = {*pool.map(write, range(8)), *(each.result(20) for each in seen)}
    assert len(heard) == 1
    assert heard < set(values)
    assert len(hints) == 7
    assert all(f"left its notes in {folder}" in hint for hint in hints)
    stores[0].set("0/size", *heard)  # once more the same
    assert [path.name for path in folder.iterdir()] == ["0.size"]


def test_a_note_in_a_folder_is_waited_for_and_cleared_away(tmp_path: Path) -> None:
    one, other = FileStore(tmp_path / "notes"), FileStore(tmp_path / "notes")
    with pytest.raises(Absent, match=rf'nobody wrote "0/1" in {tmp_path}/notes within 0.05 s'):
        one.get("0/1", 0.05)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.get, "0/1", 20.0)
        one.set("0/1", b"here")
        assert waiting.result(20) == b"here"
    one.set("1/1", b"next")
    one.clear("0/")
    with pytest.raises(Absent):
        other.get("0/1", 0.0)
    assert other.get("1/1", 0.0) == b"next"
    one.clear("1/")
    assert list((tmp_path / "notes").iterdir()) == []
