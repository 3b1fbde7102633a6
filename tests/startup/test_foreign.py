"""Ranks that meet in a store of somebody else's: torch.distributed's, or what has its methods."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from launching import SECRET, check_linked, client

import hocket
from hocket.config import ANYWHERE, Config, Given
from hocket.config.children import child_environ
from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous import porch
from hocket.rendezvous.cards import Card
from hocket.rendezvous.files import FileStore
from hocket.rendezvous.foreign import ForeignStore
from hocket.rendezvous.join import join
from hocket.rendezvous.links import Links
from hocket.rendezvous.porch import Admission, Porch
from hocket.rendezvous.seal import seal, unseal
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.store import Absent, Away, Store, Taken
from ports import free_ports


class Plain:
    """The least that will do; every wait in vain is an error of its own."""

    def __init__(self) -> None:
        self.notes: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self.changed:
            self.notes[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        return self.notes[key]

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.check(keys), timeout.total_seconds()):
                raise LookupError(keys)

    def add(self, key: str, amount: int) -> int:
        with self.changed:
            number = int(self.notes.get(key, b"0")) + amount
            self.notes[key] = b"%d" % number
            return number

    def check(self, keys: list[str]) -> bool:
        return all(key in self.notes for key in keys)


class Alias:
    """Another object for a store, as torch's PrefixStore is."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def torch_store(kind: str, folder: Path) -> Any:
    dist = pytest.importorskip("torch.distributed")
    if kind == "FileStore":
        return dist.FileStore(str(folder / "torch"), 3)
    return dist.PrefixStore("a", dist.HashStore()) if kind == "PrefixStore" else dist.HashStore()


KINDS = ["socket", "folder", "plain", "HashStore", "FileStore", "PrefixStore"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, address: str) -> Iterator[Store]:
    """One of each kind that ranks can meet in."""
    with ExitStack() as stack:
        if request.param == "socket":
            stack.enter_context(closing(StoreServer(address, secret=SECRET).start()))
            yield stack.enter_context(client(address))
        elif request.param == "folder":
            yield FileStore(tmp_path / "notes")
        else:
            yield ForeignStore(Plain() if request.param == "plain" else torch_store(request.param, tmp_path))


def test_every_store_keeps_what_the_protocol_says(store: Store) -> None:
    store.set("0/a", b"\xff\0", 5.0)
    store.set("0/a", b"\xff\0", 5.0)
    assert store.get("0/a", 5.0) == b"\xff\0"
    with pytest.raises(Taken, match='"0/a" holds another value already') as taken:
        store.set("0/a", b"other", 5.0)
    assert taken.value.value == store.get("0/a", 0.0) == b"\xff\0"
    for timeout in (0.0, 0.01):
        with pytest.raises(Absent, match=f'nobody wrote "0/b".* within {timeout:g} s'):
            store.get("0/b", timeout)


# ---- those that come later ----


@pytest.mark.parametrize("kind", ["plain", "HashStore"])
def test_a_letter_that_was_begun_and_never_written_holds_up_nobody(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer was killed just then: two that came, and one that let others in. If one of them was only stopped, it
    is told to come again."""
    monkeypatch.setattr(porch, "_BEGUN", 0.01)
    store = Plain() if kind == "plain" else torch_store(kind, tmp_path)
    begun = ["hocket/join/0", "hocket/join/1", f"hocket/{porch.ADMISSIONS}2/0"]
    for key in begun:
        store.add(f"{key}/writers", 1)
    config, foreign = Config.newcomer("file:///nowhere", Given(secret=SECRET)), ForeignStore(store)
    newcomer, group = Porch(config, foreign), Porch(config, foreign)
    admission = Admission(1, [b"a", b"b"], 5, 0, False, [])
    with closing(newcomer.door()) as door:
        assert newcomer._leave(foreign, newcomer.terms.card(door, 0), Deadline(20)) == 2
        (caller,) = group.waiting()
        group.admit(caller, admission)
        assert next(newcomer._told(foreign, 2, Deadline(20))) == admission
        for number in (0, 1):
            with pytest.raises(Away, match="not let in: it did not write its letter in time"):
                next(newcomer._told(foreign, number, Deadline(20)))
        store.set("hocket/join/0", b"late")  # no harm
        foreign.give_up("join/0")
        assert foreign.get("join/0", 0.0) == b"late"
    group.close()


# ---- meetings ----


def meet(store: Any, rank: int, size: int, timeout: float = 20.0, secret: bytes = SECRET) -> Links:
    config = Config(rank, size, 0, 1, "", secret, "a test", timeout, is_open=True)
    fd = os.memfd_create("test")
    try:
        return join(config, fd, foreign=ForeignStore(store))
    finally:
        os.close(fd)


def met(calls: list[Callable[[], Links]]) -> None:
    """All of them at once; every two ranks hold the two ends of one socket."""
    with ThreadPoolExecutor(len(calls)) as pool:
        check_linked([each.result(60) for each in [pool.submit(call) for call in calls]])


@pytest.mark.parametrize("kind", ["plain", "HashStore"])
def test_meetings_in_one_store_do_not_see_each_others_notes(kind: str, tmp_path: Path) -> None:
    """Also through another object each time."""
    whole = Plain() if kind == "plain" else torch_store(kind, tmp_path)
    for store in (whole, whole, Alias(whole), Alias(whole)):
        met([partial(meet, store, rank, 3) for rank in range(3)])


def test_a_meeting_that_failed_is_tried_again_and_so_is_the_next() -> None:
    """Through one object, and through another one each time."""
    store = Plain()
    for way in (lambda: store, lambda: Alias(store)):
        for _ in range(2):
            with pytest.raises(RendezvousError, match=r"ranks 0, 2 did not arrive within .* s; rank 1 did"):
                meet(way(), 1, 3, 0.05)
        for _ in range(2):
            met([partial(meet, way(), rank, 3) for rank in range(3)])


def test_a_rank_that_came_and_died_comes_again() -> None:
    """In a process that knows nothing of the one before. The others find its card, and not itself; then they meet."""
    store = Plain()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open(writer, "wb", 0) as said:  # noqa: PTH123
            try:
                meet(store, 0, 2, 0.05)
            except RendezvousError:
                for key, value in store.notes.items():
                    said.write(b"%s %s\n" % (key.encode(), value.hex().encode()))
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as heard:  # noqa: PTH123
        for line in heard.read().splitlines():
            key, value = line.split()
            store.notes[key.decode()] = bytes.fromhex(value.decode())
    os.waitpid(child, 0)
    assert "hocket/0/0" in store.notes

    def again() -> Links:
        with pytest.raises(RendezvousError, match=r"rank 0 .* is not there any more"):
            meet(store, 1, 2)
        return meet(store, 1, 2)

    met([lambda: meet(store, 0, 2), again])


def test_a_store_that_fails_is_said_so() -> None:
    class Gone(Plain):
        def check(self, keys: list[str]) -> bool:
            raise OSError("no route to it")

    with pytest.raises(RendezvousError, match="the store in which the ranks meet failed, or went away: no route to it"):
        meet(Gone(), 0, 2, 0.05)


@pytest.mark.parametrize("wrong", [7, Path("/shared/job"), b"tcp://a:1", Plain, {}])
def test_what_is_no_place_to_meet(wrong: Any) -> None:
    with pytest.raises(TypeError, match='rendezvous is "tcp://host:port", "file:///folder", or a torch'):
        hocket.init(rank=0, size=2, rendezvous=wrong)
    with pytest.raises(ValueError, match="give rank and size together"):
        hocket.init(rank=0, rendezvous=Plain())


def test_the_ranks_of_hocket_run_stay_on_their_host() -> None:
    """They have a secret of their launcher's, not of the user's; so nothing listens for others."""
    own = child_environ(0, 2, "@hocket-abc", b"key", 29501, environ={})
    found = Config.in_store(Given(), own)
    assert (found.rank, found.size, found.secret, found.towards) == (0, 2, b"key", "")
    assert Config.in_store(Given(0, 2, "known to both"), {}).towards == ANYWHERE
    assert Config.in_store(Given(), {"RANK": "0", "WORLD_SIZE": "2", "HOCKET_SECRET": "x"}).towards == ANYWHERE
    assert Config.in_store(Given(0, 2), {}).towards == ""


PROGRAM = """
import sys
import numpy as np, torch.distributed as dist
import hocket
rank, size, port, folder = int(sys.argv[1]), 2, int(sys.argv[2]), sys.argv[3]
tcp = dist.TCPStore("127.0.0.1", port, is_master=not rank)
for store in (tcp, dist.PrefixStore("a", tcp), dist.FileStore(folder + "/store", size)):
    for turn in range(3):
        secret = ("", "known to both")[turn % 2]  # on one host it works without
        with hocket.init(20, rank=rank, size=size, rendezvous=store, secret=secret) as group:
            total = group.all_reduce(np.arange(70_000.0) + rank)
            assert (total == 2 * np.arange(70_000.0) + 1).all()
assert "hocket.torch" not in sys.modules
"""


def test_numpy_programs_meet_in_stores_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    (port,) = free_ports(1)
    words = [str(port), str(tmp_path)]
    command = [sys.executable, "-c", PROGRAM]
    ranks = [subprocess.Popen([*command, str(r), *words], stderr=subprocess.PIPE, text=True) for r in range(2)]
    said = [rank.communicate(timeout=90)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said


# ---- what lies there ----


def test_a_seal_is_opened_by_nobody_else_and_shows_every_change() -> None:
    for length in (0, 1, 31, 200):
        text = bytes(range(length))
        sealed = seal(SECRET, "0/1", text)
        assert unseal(SECRET, "0/1", sealed) == text
        assert sealed == seal(SECRET, "0/1", text)
        assert not text or text not in sealed
        changed = [sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :] for i in range(len(sealed))]
        cut = [sealed[:i] for i in range(len(sealed))]
        for secret, label, wrong in [
            (b"another", "0/1", sealed),
            (SECRET, "0/2", sealed),
            (SECRET, "0/1", sealed + b"\0"),
            *((SECRET, "0/1", each) for each in changed + cut),
        ]:
            with pytest.raises(RendezvousError, match="not sealed with this job's secret, or has been changed"):
                unseal(secret, label, wrong)


def test_texts_that_differ_share_no_keystream() -> None:
    """Under one key, two sealed texts tell nothing of how the texts differ."""
    one, other = bytes(64), bytes(63) + b"\1"
    mixed = [seal(SECRET, "0/1", text)[32:] for text in (one, other)]
    assert sum(a == b for a, b in zip(*mixed, strict=True)) < 8


def test_nobody_reads_in_the_store_where_a_rank_listens() -> None:
    store = Plain()
    with pytest.raises(RendezvousError, match="rank 1 did not arrive"):
        meet(store, 0, 2, 0.05)
    card = Card.read(store.notes["hocket/0/0"], SECRET, "0/0", 0, 0)
    everything = b"\n".join(store.notes.values())
    for text in (card.address, card.remote, card.host, card.boot):
        assert text
        assert text.encode() not in everything


def tampered(note: bytes) -> bytes:
    return note[:-1] + bytes([note[-1] ^ 1])


NOTES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "changed": (tampered, "the card of rank 0 cannot be read: it was not sealed with this job's secret, or has been"),
    "another version": (
        lambda note: b"hocket 99.1.2\n" + note.partition(b"\n")[2],
        rf"rank 0 has hocket 99\.1\.2, and rank 1 has {hocket.__version__}: all ranks need the same version",
    ),
    "too long": (lambda note: note + bytes(4096), "rank 0 left what is no card"),
    "nonsense": (lambda note: b"\xff" + note, "rank 0 left what is no card"),
}


@pytest.mark.parametrize("what", NOTES)
def test_a_card_that_is_not_right(what: str) -> None:
    change, words = NOTES[what]
    store = Plain()
    with pytest.raises(RendezvousError, match="rank 1 did not arrive"):
        meet(store, 0, 2, 0.05)
    store.notes["hocket/0/0"] = change(store.notes["hocket/0/0"])
    with pytest.raises(RendezvousError, match=words):
        meet(store, 1, 2)


def test_ranks_with_two_secrets_do_not_meet_in_one_store() -> None:
    store = Plain()

    def rank(rank: int) -> str:
        with pytest.raises(RendezvousError, match=f"the card of rank {1 - rank} cannot be read: .* one HOCKET_SECRET"):
            meet(store, rank, 2, secret=b"%d" % rank)
        return "refused"

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(rank, range(2))) == ["refused"] * 2
