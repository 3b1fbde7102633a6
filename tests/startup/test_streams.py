"""Links of several TCP connections: how ranks come to them, what goes over which, and what happens to one of them."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launching import SECRET, Hocket, until

from certificates import certified
from hocket.config import Config
from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous.cards import Card, connections
from hocket.rendezvous.mesh import GREETING, Mesh
from hocket.rendezvous.sockets import dial

THREE = {"HOCKET_TRANSPORT": "tcp", "HOCKET_TCP_STREAMS": "3"}


@pytest.mark.parametrize("hidden", [False, True], ids=["clear", "tls"])
def test_all_connections_carry_as_much_and_are_alike(hocket: Hocket, tmp_path: Path, hidden: bool) -> None:
    """Also those of a subgroup, which has its own. The kernel tells what came over each."""
    script = hocket.script(
        "import socket, struct, numpy as np, hocket\n"
        "x = np.arange(1_000_000) * (rank + 1)\n"
        "def each(group):\n"
        "    assert (group.all_reduce(x) == np.arange(1_000_000) * 3).all()\n"
        "    sockets = group._links.all(1 - rank)\n"
        "    came = [struct.unpack_from('Q', s.getsockopt(6, socket.TCP_INFO, 256), 128)[0] for s in sockets]\n"
        "    assert sum(came) > 4_000_000, came\n"
        "    assert all(0.3 * sum(came) < one < 0.37 * sum(came) for one in came), came\n"
        "    return {(s.getsockopt(6, 1), s.getsockopt(6, socket.TCP_CONGESTION, 4)) for s in sockets}  # TCP_NODELAY\n"
        "group = hocket.init(20)\n"
        "for each_group in (group, group.split(0)):\n"
        "    say(each_group.transports[1 - rank], *each(each_group))\n"
    )
    certificates = certified(tmp_path) if hidden else {}
    done = hocket.run("run", "-n", "2", script, environ={**THREE, "HOCKET_TCP_CONGESTION": "reno", **certificates})
    way = "tls:3" if hidden else "tcp:3"
    assert done.stdout.splitlines() == [f"{way} (1, b'reno')"] * 4, done


def test_the_death_of_one_connection_is_that_of_the_link(hocket: Hocket) -> None:
    """Of one that nobody reads or writes: what keeps links alive goes over another one."""
    script = hocket.script(
        "import socket, struct, hocket\n"
        "group = hocket.init(20)\n"
        "if rank == 1:\n"
        "    torn = group._links.all(0)[2]\n"
        "    torn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n"
        "    os.dup2(os.open(os.devnull, os.O_RDWR), torn.fileno())\n"
        "try: group.recv(1 - rank, timeout=15)\n"
        "except hocket.HocketError as error: say(rank, type(error).__name__, error)\n"
    )
    done = hocket.run("run", "-n", "2", script, environ=THREE)
    first, second = sorted(line for line in done.stdout.splitlines() if not line.startswith(" "))
    assert first.startswith("0 PeerLost rank 1 "), done
    assert " died" in first, done
    assert second.startswith("1 PeerLost rank 0 "), done


def test_ranks_must_agree_on_the_number(hocket: Hocket) -> None:
    """All of them are told, at once, who says what."""
    script = hocket.script(
        "import hocket\n"
        "if rank == 1: os.environ['HOCKET_TCP_STREAMS'] = '2'\n"
        "try: hocket.init(20)\n"
        "except hocket.RendezvousError as error: say(rank, error)\n"
    )
    done = hocket.run("run", "-n", "3", script, environ={"HOCKET_TRANSPORT": "tcp"})
    said = sorted(done.stdout.splitlines())
    assert [line[:7] for line in said] == ["0 rank ", "1 rank ", "2 rank "], done
    for line in said:
        first, second = line[2:].split(", and ")
        assert first.startswith("rank 0 "), done
        assert first.endswith(" has HOCKET_TCP_STREAMS=1"), done
        assert second.startswith("rank 1 "), done
        assert " has HOCKET_TCP_STREAMS=2 " in second, done


def test_descriptors_that_they_use_up_are_told(hocket: Hocket) -> None:
    script = hocket.script(
        "import resource, hocket\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
        "try: hocket.init(2)\n"
        "except hocket.RendezvousError as error: say(error)\n"
    )
    done = hocket.run("run", "-n", "2", script, environ={**THREE, "HOCKET_TCP_STREAMS": "16"})
    assert "used up its file descriptors: 20 are allowed (ulimit -n)" in done.stdout, done


def test_how_many_there_are_with_whom() -> None:
    """With those of other hosts, where nothing but TCP may carry the link; on one host nobody need agree."""
    card = Card(0, "host", 4711, "boot", "net", "@a", streams=4)
    ways = [(), ("tcp",), ("ucx", "tcp"), ("ucx",)]
    assert connections([card] * 4, ways) == [1, 4, 1, 1]
    assert connections([card, card._replace(streams=1)], [(), ()]) == [1, 1]
    with pytest.raises(RendezvousError, match=r"rank 0 .*=4, and rank 1 .*=5"):
        connections([card, card._replace(rank=1, streams=5)], [(), ("tcp",)])


def test_it_is_a_number_up_to_sixteen() -> None:
    for text, number in (("", 1), ("1", 1), ("16", 16)):
        assert Config.from_env({"HOCKET_TCP_STREAMS": text}).sockets.streams == number
    for text in ("0", "17", "two", "-1"):
        with pytest.raises(
            RendezvousError, match=f'HOCKET_TCP_STREAMS is "{text}", which is no whole number from 1 to 16'
        ):
            Config.from_env({"HOCKET_TCP_STREAMS": text})


class Caller:
    """Rank 1, whose lines to rank 0 are said by hand. Rank 0 meets it in a thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{listener.getsockname()[1]}#name"
        self.held = [listener]
        self.known: list[tuple[int, bool]] = []  # of rank 0's lines: the greeting, and whether they were met
        self.mesh = Mesh([(listener, b"name")], ["0", "1"], [self.address] * 2, 0, SECRET, counts=[1, 2])
        self.met = pool.submit(self.mesh.run, [], Deadline(20.0), self.look)

    def look(self, _: list[int]) -> None:
        self.known = sorted((line.number, bool(line.met.data)) for line in self.mesh._lines.values())

    def greet(self, place: int, attempt: int, number: int, more: bytes = b"") -> socket.socket:
        sock = dial(self.address, SECRET, Deadline(20.0))
        self.held.append(sock)
        sock.send(GREETING.pack(1, place, attempt, number) + more)
        return sock

    def close(self) -> None:
        for sock in self.held:
            sock.close()


def test_of_an_earlier_attempt_no_connection_is_kept() -> None:
    """One of the two had been met. When its rank comes anew, by the other one first, that is over, too."""
    with ThreadPoolExecutor(1) as pool:
        caller = Caller(pool)
        caller.greet(0, 5, 6)
        caller.greet(1, 5, 7, b"\1")
        until(lambda: caller.known == [(6, False), (7, True)], "two lines")
        first = caller.greet(0, 8, 9, b"\1")
        until(lambda: caller.known == [(9, True)], "the new one alone")
        second = caller.greet(1, 8, 10, b"\1")
        met = caller.met.result(20)[1]
        for ours, theirs in ((met.sock, first), (*met.more, second)):
            assert ours.getpeername() == theirs.getsockname()
            ours.close()
        caller.close()


def test_a_connection_too_many_is_refused() -> None:
    with ThreadPoolExecutor(1) as pool:
        caller = Caller(pool)
        caller.greet(2, 5, 6)
        with pytest.raises(RendezvousError, match="somebody greeted as rank 1, with connection 2"):
            caller.met.result(20)
        caller.close()
