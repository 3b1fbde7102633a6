"""Targets in Python: what reads bytes, or texts, that come from elsewhere. Each takes any bytes at all.

What a target's function raises is a finding, and so is more memory than two frames and a hundred times its input.

    python tests/fuzz/parsers.py card FOLDER [options of libFuzzer]
"""

from __future__ import annotations

import gc
import os
import selectors
import socket
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import atheris
import msgpack

from hocket import addresses, config
from hocket.errors import RendezvousError
from hocket.rendezvous import interfaces, mesh, seal, server, sockets, store
from hocket.rendezvous.cards import Card, places

SECRET, LABEL = b"the job's secret", "0/1"
LEAST, MOST = 2 * sockets.MAX_FRAME, 100  # bytes that a parser may use in any case, and for each that it was given


class Target(NamedTuple):
    """A parser, and inputs as they come in good weather."""

    parse: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection that never wait."""
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


def pieces(data: bytes) -> Iterator[bytes]:
    """All but the first byte of it, in pieces of a length that this tells."""
    length = data[0] * 8 + 1 if data else 1
    yield from (data[at : at + length] for at in range(1, len(data), length))


# ---- who holds the store, and who asks it ----

STORE = server.StoreServer(f"@hocket-fuzz-{os.getpid()}", secret=SECRET)


def parse_questions(data: bytes) -> None:
    """A member of the job may say anything: that costs it its place, and no other what it wrote and waits for."""
    with pair() as (bad, there), pair() as (good, here), pair() as (_, behind):
        STORE._notes = {"kept": b"as it is"}
        for end in (there, here, behind):
            STORE._welcome(end)
        rascal, member, writer = sorted(STORE._clients, key=lambda client: (there, here, behind).index(client.sock))
        try:
            good.send(sockets.frame(["get", "awaited", 1000.0]))
            STORE._hear(member)
            for piece in pieces(data):
                with suppress(OSError):
                    bad.send(piece)
                STORE._hear(rascal)
                assert len(rascal.asked) <= 4 + sockets.MAX_FRAME + (1 << 16), "it hoards what is asked"
                with suppress(OSError):
                    bad.recv(1 << 16)
            STORE._expire()
            assert STORE._notes["kept"] == b"as it is", "a note was changed"
            STORE._obey(writer, ["set", "awaited", b"value"])
            assert sockets.unpack(good.recv(1 << 16)[4:]) == ["ok", STORE._notes["awaited"]], "another answer"
        finally:
            for client in list(STORE._clients):
                STORE._drop(client)


def questions() -> list[bytes]:
    asked: list[list[object]] = [
        ["set", "0/1", b"card"],
        ["get", "0/1", 0.0],
        ["get", "0/2", 3.5],
        ["set", "awaited", b""],
    ]
    frames = [sockets.frame(each) for each in asked]
    return [b"\xff" + each for each in frames] + [b"\2" + b"".join(frames), b"\xff" + frames[0] + frames[1]]


def parse_answers(data: bytes) -> None:
    """Whoever holds the store may answer anything: a note comes of it, or a RendezvousError."""
    with pair() as (here, there):
        asks = store.SocketStore.__new__(store.SocketStore)
        asks._socket, asks._answered = here, bool(data[:1] > b"\x7f")
        with suppress(BlockingIOError):
            there.send(data[1:])
        there.shutdown(socket.SHUT_WR)
        with suppress(RendezvousError):
            assert type(asks.get("0/1", 0.0)) is bytes


def answers() -> list[bytes]:
    said: list[list[object]] = [["ok", b"card"], ["absent", b""], ["taken", b"other"], ["closed", b"it gave up"]]
    return [b"\0" + sockets.frame(each) for each in said] + [b"\xff" + sockets.frame(said[0])]


# ---- proofs and greetings ----


def parse_proof(data: bytes) -> None:
    """Who does not know the secret proves nothing, and nothing beyond a proof is read."""
    role = "host" if data[:1] < b"\x80" else "caller"
    with pair() as (here, there):
        handshake = sockets.Handshake(here, SECRET, role)
        try:
            for piece in pieces(data):
                there.send(piece)
                assert not handshake.advance(), "proved without the secret"
            there.shutdown(socket.SHUT_WR)
            assert not handshake.advance(), "proved without the secret"
        except (EOFError, RendezvousError):
            rest = b""
            with suppress(BlockingIOError):
                rest = here.recv(1 << 16)
            sent = sum(len(piece) for piece in pieces(data))
            assert len(rest) <= max(0, sent - 48), "more was read than a proof"


def proofs() -> list[bytes]:
    return [b"\xff" + bytes(range(48)), b"\1" + bytes(60), b"\x7f\x15\x03" + bytes(20)]


class _Mesh(mesh.Mesh):
    """That of rank 1 of 3, of which the loop is ours. With rank 0 it has two lines."""

    def __init__(self, fds: list[int], selector: selectors.BaseSelector) -> None:
        super().__init__([], ["rank 0", "rank 1", "rank 2"], ["@a", "@b", "@c"], 1, SECRET, counts=[2, 1, 1])
        self._fds, self._selector, self._halls = fds, selector, []


def parse_greetings(data: bytes) -> None:
    """Members that greet twice, as somebody else, with too few or too many descriptors: none of those is left open.

    Each part of the input is the number of a line, that of descriptors, and that of the bytes that follow.
    """
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with ExitStack() as stack:
        null = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, null)
        selector = stack.enter_context(selectors.DefaultSelector())
        here = _Mesh([null, null], selector)
        with here._undo:
            ends = []
            for dialled in (None, mesh.Strand(0, 0), None):
                ours, theirs = socket.socketpair()
                ours.setblocking(False)
                theirs.setblocking(False)
                ends.append(stack.enter_context(theirs))
                here._open(ours, dialled)
            with suppress(RendezvousError, OSError, EOFError):  # those that `Mesh.run` explains
                at = 0
                while at + 3 <= len(data):
                    which, count, length = data[at] % 3, data[at + 1] % 5, data[at + 2] % 32
                    text, at = data[at + 3 : at + 3 + length], at + 3 + length
                    with suppress(OSError):
                        socket.send_fds(ends[which], [text], [null] * count) if text else ends[which].shutdown(1)
                    for key, _ in selector.select(0):
                        key.data()
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor is left open"  # noqa: PTH208


def greetings() -> list[bytes]:
    def greeting(line: int, rank: int, number: int = 0, place: int = 0) -> bytes:
        return bytes([line, 2, mesh.GREETING.size]) + mesh.GREETING.pack(rank, place, number, number)

    met = b"".join(bytes([line, 0, 1, 1]) for line in range(3))
    good = greeting(0, 2) + greeting(1, 0) + greeting(2, 0, place=1) + met
    return [
        good,
        greeting(0, 2) + greeting(2, 2, 1) + greeting(1, 0) + met,
        greeting(1, 0) + greeting(0, 0, 1, 1) + greeting(2, 0, 1) + met,
        greeting(0, 2) + b"\0\0\0" + greeting(1, 2),
    ]


# ---- cards, and what they are sealed in ----

CARD = Card(1, "host", 4711, "boot", "net:[4026531840]", "@hocket-name", "tcp://127.0.0.1:4711#name")


def parse_card(data: bytes) -> None:
    """A card, or a RendezvousError; and what a card says is looked at as it is where ranks meet. What was not sealed is
    refused: what opens is what sealing it gives."""
    with suppress(RendezvousError):
        assert seal.seal(SECRET, LABEL, seal.unseal(SECRET, LABEL, data)) == data
    with suppress(RendezvousError):
        Card.read(data, SECRET, LABEL, 1, 0)
    with suppress(RendezvousError):
        card = Card.unpack(data)
        assert Card.unpack(card.pack()) == card, "a card that is passed on is another one"
        assert len(str(card)) < 200 + len(data)
        with suppress(RendezvousError):
            assert len(places([CARD, card])) == 2
        for address in (card.address, card.remote):
            with suppress(RendezvousError):
                sockets.Address.of(address)


def cards() -> list[bytes]:
    return [
        *(CARD.pack(), CARD.note(SECRET, LABEL), CARD.pack() + bytes(40), msgpack.packb([[], {}, 1.5, None])),
        *(seal.seal(SECRET, LABEL, text) for text in (b"", bytes(100))),
    ]


# ---- texts of users, launchers and other ranks ----

FOUND = [
    interfaces.Interface("lo", "127.0.0.1"),
    interfaces.Interface("eth0", "10.0.0.1"),
    interfaces.Interface("eth1", "fe80::1"),
]


def _numeric(host: str, port: int, **more: object) -> object:
    return _getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **more)  # type: ignore[arg-type]


_getaddrinfo, socket.getaddrinfo = socket.getaddrinfo, _numeric  # type: ignore[assignment]  # nobody is asked for names


def parse_address(data: bytes) -> None:
    """An address means something, or there is an error that says so."""
    text = os.fsdecode(data)
    addresses.shared_folder(text)
    with suppress(RendezvousError):
        addresses.host_and_port(text)
    with suppress(RendezvousError):
        sockets.Address.of(text)
    with suppress(RendezvousError):
        assert interfaces.fitting(text, FOUND, None) in {each.address for each in FOUND}
    with suppress(ValueError):
        addresses.peers(text.split("\n"))


def some_addresses() -> list[bytes]:
    texts = ["tcp://first:4711", "tcp://[::1]:1#name", "file:///shared/a%20b", "@hocket-1000-job7", "^=eth0,lo"]
    return [*map(str.encode, texts), b"ipc://job7\ntcp://127.0.0.1:5000", b"ipc://job7\nrdma://node3:5000"]


def parse_environment(data: bytes) -> None:
    """What a launcher set makes sense, or a RendezvousError says which variable does not."""
    words = (os.fsdecode(line).partition("=") for line in data.split(b"\0"))
    environ = {name: value for name, _, value in words}
    with suppress(RendezvousError):
        job = config.Config.from_env(environ)
        assert 0 <= job.rank < job.size
        assert 0 <= job.local_rank < job.size
    config.job_secret(environ)


def environments() -> list[bytes]:
    place = b"RANK=1\0WORLD_SIZE=2\0LOCAL_RANK=1\0LOCAL_WORLD_SIZE=2\0"
    return [
        place + b"HOCKET_RENDEZVOUS=tcp://first:4711\0HOCKET_SECRET=s\0HOCKET_TIMEOUT=3.5\0HOCKET_INTEGRITY=1",
        place + b"HOCKET_ADDRESS=@hocket-a\0HOCKET_SECRET=abcd\0HOCKET_TRANSPORT=tcp",
        place + b"MASTER_ADDR=first\0MASTER_PORT=29500\0TORCHELASTIC_RUN_ID=x",
        b"OMPI_COMM_WORLD_RANK=0\0OMPI_COMM_WORLD_SIZE=2\0PMIX_NAMESPACE=prterun-1\0HOCKET_TLS_CERT=a",
        b"PMI_RANK=0\0PMI_SIZE=2\0MPI_LOCALNRANKS=2\0MPI_LOCALRANKID=0",
        b"SLURM_PROCID=0\0SLURM_STEP_NUM_TASKS=1\0SLURM_JOB_ID=7\0SLURM_STEP_ID=0\0SLURM_STEP_NUM_NODES=2",
    ]


TARGETS = {
    "questions": Target(parse_questions, questions),
    "answers": Target(parse_answers, answers),
    "proof": Target(parse_proof, proofs),
    "greetings": Target(parse_greetings, greetings),
    "card": Target(parse_card, cards),
    "address": Target(parse_address, some_addresses),
    "environment": Target(parse_environment, environments),
}


def bounded(parse: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The same, and it uses no more memory than it may."""
    tracemalloc.start()

    def watched(data: bytes) -> None:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        parse(data)
        used = tracemalloc.get_traced_memory()[1] - before
        assert used <= LEAST + MOST * len(data), f"{used} bytes of memory for an input of {len(data)}"

    return watched


def instrument(*rooms: str) -> None:
    """Have all functions there tell of their branches. (Atheris' own way, while they are imported, leaves most of them
    out where a package is installed to be edited.)"""
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__module__ and each.__module__.startswith(rooms):
            atheris.instrument_func(each)


def write_seeds(target: str, folder: Path) -> None:
    """A file for each."""
    for number, seed in enumerate(TARGETS[target].seeds()):
        (folder / f"seed-{number}").write_bytes(seed)


def main() -> None:
    name, *options = sys.argv[1:]
    instrument("hocket.addresses", "hocket.config", "hocket.launchers", "hocket.rendezvous")
    atheris.Setup([sys.argv[0], *options], bounded(TARGETS[name].parse))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
