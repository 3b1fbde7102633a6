"""Bad weather at a meeting over TCP: other versions, other jobs at one port, who repeats what others said, crowds."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from launching import SECRET, client, until

import hocket
from hocket.config import Config
from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous import doors
from hocket.rendezvous.join import forget_doors, join
from hocket.rendezvous.links import Links
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import Address, dial, listen, read
from ports import free_ports


def meet(config: Config) -> Links:
    fd = os.memfd_create("test")
    try:
        return join(config, fd)
    finally:
        os.close(fd)


def job(port: int, size: int, secret: bytes = SECRET, timeout: float = 20.0, *, alone: bool = False) -> list[Config]:
    at = f"tcp://127.0.0.1:{port}"
    return [Config(r, size, r, size, at, secret, "HOCKET_RENDEZVOUS", timeout, alone) for r in range(size)]


def outcome(config: Config) -> str:
    """What a rank says."""
    try:
        meet(config).close()
    except RendezvousError as error:
        return str(error)
    return "met"


# ---- another version ----

VERSIONED = """
import sys
import hocket, hocket.rendezvous.cards as cards
rank, version, where = int(sys.argv[1]), sys.argv[2], sys.argv[3]
cards.VERSION = version
try:
    hocket.init(20, rank=rank, size=3, rendezvous=where, secret="known to all")
except hocket.RendezvousError as error:
    print(error)
"""


@pytest.mark.parametrize("where", ["tcp", "folder"])
def test_another_version_of_hocket_is_named_by_every_rank_at_once(where: str, tmp_path: Path) -> None:
    """Both versions are, and whose they are."""
    place = f"tcp://127.0.0.1:{free_ports(1)[0]}" if where == "tcp" else f"file://{tmp_path}/notes"
    ours = hocket.__version__
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", VERSIONED, str(rank), version, place], stdout=subprocess.PIPE, text=True
        )
        for rank, version in enumerate((ours, ours, "99.1"))
    ]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    for rank in (0, 1):
        assert f"rank 2 has hocket 99.1, and rank {rank} has {ours}: all ranks need the same version" in said[rank] or (
            "gave up: rank 2 has hocket 99.1, and rank 0 has" in said[rank]
        ), said
    assert f"rank 0 has hocket {ours}, and rank 2 has 99.1" in said[2] or "gave up: rank 2 has hocket 99.1" in said[2]


# ---- two jobs at one port ----


def test_two_jobs_of_two_users_at_one_port() -> None:
    """The first one meets. Of the other, rank 0 says that the port is taken, and rank 1 whose it is."""
    (port,) = free_ports(1)
    ours, theirs = job(port, 2), job(port, 2, b"another secret")
    theirs[0] = replace(theirs[0], timeout=0.3)  # the other one is told at once
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(outcome, ours[0])
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "rank 0 at the port")
        refused = list(pool.map(outcome, theirs))
        assert f"another job holds the meeting point tcp://127.0.0.1:{port}: was this one started twice?" in refused[0]
        assert "does not know this job's secret: it belongs to another job" in refused[1]
        assert outcome(ours[1]) == first.result(20) == "met"
    forget_doors()


def test_a_job_that_is_started_twice() -> None:
    """With one secret, so that they cannot be told apart but by their ranks: four processes, of which two meet."""
    (port,) = free_ports(1)
    with ThreadPoolExecutor(4) as pool:
        every = [pool.submit(outcome, config) for config in job(port, 2, timeout=2.0)]
        twins = [pool.submit(in_a_process, rank, port) for rank in range(2)]
        said = [each.result(40) for each in every + twins]
    assert said.count("met") in (2, 4), said  # four, where the first two had met before the others came
    for text in said:
        assert text == "met" or "started twice" in text or "did not arrive" in text or "nobody opened" in text, said
    forget_doors()


def in_a_process(rank: int, port: int) -> str:
    """What a twin says, whose meetings are not counted together with ours."""
    script = (
        "import os, sys\n"
        "from hocket.config import Config\nfrom hocket.errors import RendezvousError\n"
        "from hocket.rendezvous.join import join\n"
        "try:\n"
        f"    join(Config({rank}, 2, 0, 1, 'tcp://127.0.0.1:{port}', {SECRET!r}, 'x', 2.0), os.memfd_create('x'))\n"
        "    print('met', end='')\n"
        "except RendezvousError as error: print(error)\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=40).stdout


# ---- who repeats what was said ----


def test_a_replayed_proof_is_refused() -> None:
    """Every byte that a member said to the store, said again to it, and to another listener."""
    addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(2)]
    said = bytearray()
    with ExitStack() as stack:
        for address in addresses:
            stack.enter_context(closing(StoreServer(address, secret=SECRET).start()))
        relay = stack.enter_context(listen("tcp://127.0.0.1:0"))
        via = f"tcp://127.0.0.1:{relay.getsockname()[1]}"
        with ThreadPoolExecutor(1) as pool:
            heard = pool.submit(overhear, relay, Address.of(addresses[0]).place, said)
            with client(via) as store:  # over TCP the listener's name is told to both, so a relay is as good as a cable
                store.set("key", b"value")
            heard.result(20)
        assert len(said) > 48
        for address in addresses:
            with socket.create_connection(Address.of(address).place, timeout=20) as sock:
                with suppress(ConnectionError):
                    sock.sendall(said)
                assert ends_after(sock) == 48  # a number and a proof of its own: no answer to what was asked
        with client(addresses[1]) as store, pytest.raises(RendezvousError, match="nobody wrote"):
            store.get("key", 0.0)


def overhear(relay: socket.socket, place: tuple[str, int], said: bytearray) -> None:
    """Stand between a caller and a listener, and write down what the caller says."""
    relay.settimeout(20)
    caller, _ = relay.accept()
    with caller, socket.create_connection(place, timeout=20) as host:
        back = threading.Thread(target=pass_on, args=(host, caller, bytearray()))
        back.start()
        pass_on(caller, host, said)
        host.shutdown(socket.SHUT_WR)
        back.join()


def pass_on(source: socket.socket, target: socket.socket, said: bytearray) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            said += data
            target.sendall(data)


def ends_after(sock: socket.socket) -> int:
    """How many bytes come before the other end closes."""
    count = 0
    with suppress(ConnectionResetError):
        while data := sock.recv(1 << 16):
            count += len(data)
    return count


def echo(sock: socket.socket) -> None:
    pass_on(sock, sock, bytearray())


def the_same_number(sock: socket.socket) -> None:
    """Says the caller's number as its own, and then the caller's proof."""
    theirs = read(sock, 16, Deadline(20.0))
    sock.sendall(theirs)
    sock.sendall(read(sock, 32, Deadline(20.0)))


@pytest.mark.parametrize("repeat", [echo, the_same_number])
def test_who_is_dialled_and_only_repeats_is_no_member(repeat: Callable[[socket.socket], None]) -> None:
    with listen("tcp://127.0.0.1:0") as listener, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock, suppress(EOFError):
                repeat(sock)

        answered = pool.submit(answer)
        with pytest.raises(RendezvousError, match="does not know this job's secret"):
            dial(f"tcp://127.0.0.1:{listener.getsockname()[1]}", SECRET, Deadline(20.0)).close()
        answered.result(20)


# ---- a crowd ----


def test_a_thousand_idle_callers_of_every_listener_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the meeting point, and of each rank's door; half of them have said half of a proof. They cost no thread."""
    (port,) = free_ports(1)
    with ExitStack() as stack:

        def crowd(at: tuple[str, int]) -> None:
            for number in range(1000):
                sock = stack.enter_context(socket.create_connection(at))
                if number % 2:
                    sock.send(secrets.token_bytes(16))

        def crowded(address: str) -> socket.socket:
            listener = listen(address)
            if address.startswith("tcp://"):
                crowd(listener.getsockname()[:2])
            return listener

        monkeypatch.setattr(doors, "listen", crowded)
        stack.enter_context(closing(StoreServer(f"tcp://127.0.0.1:{port}", secret=SECRET).start()))
        crowd(("127.0.0.1", port))
        threads = threading.active_count()
        ranks = [
            partial(meet, replace(config, launcher="hocket run"))  # rank 0 finds the meeting point as the others do
            for config in job(port, 2, alone=True)
        ]
        with ThreadPoolExecutor(2) as pool:
            found = [each.result(60) for each in [pool.submit(rank) for rank in ranks]]
            assert threading.active_count() <= threads + 2  # this pool's
        for links in found:
            assert {sock.family for sock in links.sockets if sock} == {socket.AF_INET}
            links.close()
