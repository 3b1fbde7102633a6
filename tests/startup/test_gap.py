"""A moment without a network is borne wherever a group is formed, and no longer than that."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hocket.deadline import Deadline
from hocket.errors import RendezvousError
from hocket.rendezvous import gap, interfaces, mesh, porch, sockets
from hocket.rendezvous.cards import Card, whereabouts
from hocket.rendezvous.doors import Door
from hocket.rendezvous.gap import NO_NETWORK, Gap
from hocket.rendezvous.mesh import Mesh
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.sockets import listen
from hocket.rendezvous.store import reach_store

SECRET = b"of this test"
HERE = "tcp://127.0.0.1:0"


def fails(function: Callable[..., Any], times: float, number: int) -> Callable[..., Any]:
    """So many times there is no network, before it does what it does."""
    left = [times]

    def failing(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(number, os.strerror(number))
        return function(*args, **options)

    return failing


@pytest.mark.parametrize("number", NO_NETWORK)
@pytest.mark.parametrize("place", [(interfaces, "_on_the_way"), (socket.socket, "bind")], ids=["way", "own address"])
def test_a_door_is_opened_when_there_is_a_way(
    monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], number: int
) -> None:
    there = fails(getattr(*place), 3, number)
    monkeypatch.setattr(*place, lambda *args: there(*args))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    door = Door.open(HERE)
    assert door.url.startswith("tcp://127.0.0.1:")
    door.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_store_is_reached_when_there_is_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """At one address, and at one of several."""
    with listen(HERE) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    server = StoreServer(address, secret=SECRET).start()
    for addresses, times in (([address], 3), ([address, address], 40)):
        monkeypatch.setattr(sockets, "reach", fails(sockets.reach, times, errno.ENETUNREACH))
        store = reach_store(addresses, SECRET, Deadline(20.0))
        store.set("key", b"value")
        store.close()
    server.close()


def unanswered(times: float) -> Callable[..., Any]:
    """So many times nobody answers who knows the addresses of names."""
    left, ask = [times], socket.getaddrinfo

    def asking(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ask(*args, **options)

    return asking


def test_the_store_is_reached_when_its_name_has_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen(HERE) as free:
        port = free.getsockname()[1]
    server = StoreServer(f"tcp://127.0.0.1:{port}", secret=SECRET).start()
    monkeypatch.setattr(socket, "getaddrinfo", unanswered(3))
    store = reach_store([f"tcp://localhost:{port}"], SECRET, Deadline(20.0))
    store.set("key", b"value")
    store.close()
    server.close()


def test_who_never_learns_of_an_address_is_told_how_long_it_was_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap, "LONGEST", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", unanswered(float("inf")))
    with pytest.raises(RendezvousError) as caught:
        reach_store(["tcp://somewhere:1"], SECRET, Deadline(20.0))
    assert str(caught.value) == (
        "the meeting point tcp://somewhere:1 cannot be reached: [Errno -3] the host of tcp://somewhere:1 is unknown "
        "here: Temporary failure in name resolution, for 0.1 s"
    )


def test_a_name_that_is_none_is_not_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*args: Any, **options: Any) -> Any:
        asked.append(args)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(RendezvousError, match="the host of tcp://nowhere:1 is unknown here: Name or service not known"):
        reach_store(["tcp://nowhere:1"], SECRET, Deadline(20.0))
    assert len(asked) == 1


def linked(monkeypatch: pytest.MonkeyPatch, times: float, *, later: bool) -> list[Any]:
    """What two ranks find that meet over TCP, of which the higher one has no network so many times, or for good: as it
    dials, or where that is known `later`. The error, if there is one."""
    with listen(HERE) as one, listen(HERE) as other:
        addresses = [f"tcp://127.0.0.1:{sock.getsockname()[1]}#{place}" for place, sock in enumerate((one, other))]
        name = "finish" if later else "reach"
        monkeypatch.setattr(mesh, name, fails(getattr(mesh, name), times, errno.EHOSTUNREACH))
        meshes = [
            Mesh([(sock, str(rank).encode())], ["rank 0", "rank 1"], addresses, rank, SECRET)
            for rank, sock in enumerate((one, other))
        ]
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(each.run, [], Deadline(20.0 if rank else 2.0)) for rank, each in enumerate(meshes)]
            found = [each.exception(30) or each.result() for each in running]
    for each in found:
        if isinstance(each, dict):
            for met in each.values():
                met.sock.close()
    return found


@pytest.mark.parametrize("later", [False, True], ids=["as it dials", "later"])
def test_ranks_link_when_there_is_a_way(monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    zero, one = linked(monkeypatch, 3, later=later)
    assert set(zero) == {1}
    assert set(one) == {0}


@pytest.mark.parametrize("later", [False, True], ids=["as it dials", "later"])
def test_who_never_has_one_is_told_how_long_it_was_borne(monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    monkeypatch.setattr(gap, "LONGEST", 0.1)
    _, error = linked(monkeypatch, float("inf"), later=later)
    assert isinstance(error, RendezvousError)
    assert str(error) == "rank 0 arrived, but could not be connected: [Errno 113] No route to host, for 0.1 s"


def test_another_error_is_none_of_these() -> None:
    over = Gap(Deadline(20.0))
    with pytest.raises(PermissionError):
        over.bear(PermissionError(errno.EACCES, "Permission denied"))
    assert not over.left()


def test_a_gap_that_is_over_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap, "LONGEST", 0.0)
    gone, there = OSError(errno.ENETUNREACH, "Network is unreachable"), Gap(Deadline(20.0))
    with pytest.raises(OSError, match="Network is unreachable, for 0 s"):
        there.bear(gone)
    there.over()
    monkeypatch.setattr(gap, "LONGEST", 20.0)
    there.bear(gone)
    assert 0 < there.left() <= 20
    with pytest.raises(OSError, match="for 0 s"):
        Gap(Deadline(0.0)).bear(gone)


def test_who_waits_to_join_is_not_gone_because_it_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(0, "host", 1, "another boot", "net", "@x", "tcp://192.0.2.1:1#x")
    monkeypatch.setattr(porch, "reach", fails(porch.reach, 1, errno.ENETUNREACH))
    assert porch._is_there(card, whereabouts())
