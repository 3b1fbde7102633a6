"""Which of a host's addresses others are told: HOCKET_SOCKET_IFNAME in NCCL's forms."""

from __future__ import annotations

import socket

import pytest

from hocket.config import Config
from hocket.errors import RendezvousError
from hocket.rendezvous import interfaces as module
from hocket.rendezvous.doors import Door
from hocket.rendezvous.interfaces import Interface, fitting, interfaces, own_address

FOUND = [
    Interface("lo", "127.0.0.1"),
    Interface("lo", "::1"),
    Interface("docker0", "172.17.0.1"),
    Interface("eth0", "10.0.0.5"),
    Interface("eth0", "fd00::5"),
    Interface("eth01", "10.0.1.5"),
    Interface("ib0", "10.1.0.5"),
]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ("eth", "10.0.0.5"),
        ("ib,eth", "10.1.0.5"),  # in the order of the wish
        ("wl,ib", "10.1.0.5"),
        ("=eth01", "10.0.1.5"),
        ("=ib0,eth0", "10.1.0.5"),
        ("lo", "127.0.0.1"),
        ("^docker,eth", "10.1.0.5"),  # and never the loopback
        ("^=docker0,eth0", "10.0.1.5"),
        ("^=eth0", "172.17.0.1"),
    ],
)
def test_a_wish_in_the_forms_of_nccl(wish: str, expected: str) -> None:
    assert fitting(wish, FOUND, v6=False) == expected


def test_addresses_are_of_the_family_by_which_the_ranks_meet() -> None:
    assert fitting("eth", FOUND, v6=True) == "fd00::5"
    with pytest.raises(
        RendezvousError, match=r'IFNAME is "ib", and .* of IPv6 fits: there are lo .*, ib0 \(10.1.0.5\)'
    ):
        fitting("ib", FOUND, v6=True)


@pytest.mark.parametrize("wish", ["=eth", "wl", "^lo,docker,eth,ib", "=", "eth1"])
def test_a_wish_that_nothing_fits_says_what_there_is(wish: str) -> None:
    with pytest.raises(RendezvousError, match=r"there are lo \(127.0.0.1\), lo \(::1\), docker0 \(172.17.0.1\)"):
        fitting(wish, FOUND, v6=False)


def test_the_kernel_is_asked() -> None:
    """One can listen at each address that is told."""
    found = interfaces()
    assert Interface("lo", "127.0.0.1") in found
    for interface in found:
        with socket.create_server(
            (interface.address, 0), family=socket.AF_INET6 if interface.is_v6 else socket.AF_INET
        ):
            pass
    assert own_address("tcp://127.0.0.1:1") == "tcp://127.0.0.1:0" == own_address("tcp://192.0.2.1:1", "=lo")


def test_where_the_ranks_meet_at_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wish, else the way to the world, else any, of IPv4 first; a host without a network has none, and a door."""

    def nowhere(at: object) -> str:
        raise OSError(101, "Network is unreachable")

    v6 = [found for found in FOUND if found.is_v6]
    monkeypatch.setattr(module, "_on_the_way", lambda at: "tcp://10.9.9.9:0")
    monkeypatch.setattr(module, "interfaces", lambda: FOUND)
    assert own_address("file:///shared/job") == "tcp://10.9.9.9:0"
    assert own_address("file:///shared/job", "ib") == "tcp://10.1.0.5:0"
    monkeypatch.setattr(module, "_on_the_way", nowhere)
    for there, expected in ((FOUND, "tcp://172.17.0.1:0"), (v6, "tcp://[fd00::5]:0"), (FOUND[:2], "")):
        monkeypatch.setattr(module, "interfaces", lambda there=there: there)
        assert own_address("file:///shared/job") == expected
    door = Door.open("file:///shared/job")
    assert (door.remote, door.remote_address) == (None, "")
    door.close()
    monkeypatch.setattr(module, "interfaces", lambda: v6)
    assert own_address("file:///shared/job", "eth") == "tcp://[fd00::5]:0"
    with pytest.raises(RendezvousError, match=r"no interface with an address fits: there are lo"):
        own_address("file:///shared/job", "ib")


def test_the_wish_is_read_from_the_environment() -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "HOCKET_RENDEZVOUS": "tcp://a:1", "HOCKET_SECRET": "x"}
    assert Config.from_env({**given, "HOCKET_SOCKET_IFNAME": "^docker"}).sockets.interface == "^docker"
    assert Config.from_env(given).sockets.interface == ""
