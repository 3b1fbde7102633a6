"""Over what ranks of different hosts talk: what may be asked for, and what every two of them agree on.

What then goes through UCX is in tests/promises/test_ucx.py.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from hocket.addresses import Peer, peers
from hocket.config import Config, Given, SocketOptions, job_sockets
from hocket.errors import RendezvousError
from hocket.rendezvous import ucx
from hocket.rendezvous.cards import Card
from hocket.rendezvous.ucx import Crossing, agreed
from worlds import raised

# ---- what is asked for -----------------------------------------------------------------------------------------------


def of(**variables: str) -> SocketOptions:
    return job_sockets(variables)


def test_what_may_be_asked_for() -> None:
    assert of().ways == ("tcp",)
    assert of(HOCKET_TRANSPORT="shm, tcp,ucx").ways == ("ucx", "tcp")
    found = Config.from_env({"HOCKET_TRANSPORT": "shm,ucx"})
    assert (found.sockets.ways, found.alone, found.sockets.libucp) == (("ucx",), False, "libucp.so.0")
    for text in ("shm", "rdma", "ucx;tcp"):
        with pytest.raises(RendezvousError, match=f'HOCKET_TRANSPORT is "{text}"; it is a list'):
            Config.from_env({"HOCKET_TRANSPORT": text})


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("", "^tcp"),
        ("all", "^tcp"),
        ("rc,all", "^tcp"),
        ("^cma", "^cma,tcp"),
        ("rc_x,self", "rc_x,self"),
        ("rc,tcp,tcp:aux,sm", "rc,sm"),
        ("tcp", ""),
    ],
)
def test_ucx_never_gets_its_tcp(given: str, used: str) -> None:
    assert of(UCX_TLS=given).ucx_transports == used


def test_urls() -> None:
    found = peers(["rdma://node1:1", ["tcp://node2:1", "rdma://node2:1"], ["ipc://a", "rdma://[fd00::1]:5"]])
    assert found[:2] == (Peer("", "tcp://node1:1", ("ucx",)), Peer("", "tcp://node2:1", ("ucx", "tcp")))
    assert found[2][1:] == ("tcp://[fd00::1]:5", ("ucx",), "")
    twice = ["rdma://node1:1", "tcp://node1:1", "tcp://node1-b:1"]
    assert peers([twice, "tcp://node2:1"])[0] == Peer("", "tcp://node1:1", ("ucx", "tcp"), "tcp://node1-b:1")
    with pytest.raises(ValueError, match="its rdma:// and tcp:// are one host and port"):
        peers([["rdma://a:1", "tcp://a:2"]])
    with pytest.raises(ValueError, match="one ipc://, rdma:// and tcp:// each are enough"):
        peers([["rdma://a:1", "rdma://a:2"]])
    given = Given(0, secret="text")
    urls = [["rdma://a:1", "tcp://a:1"], ["rdma://b:1", "tcp://b:1"]]
    assert Config.among(urls, given, {}).sockets.ways == ("ucx", "tcp")
    assert Config.among(urls, given, {"HOCKET_TRANSPORT": "shm,tcp"}).sockets.ways == ("tcp",)
    with pytest.raises(ValueError, match="HOCKET_TRANSPORT=shm,ucx does not go with rank 0 of peers, which has tcp://"):
        Config.among(["tcp://a:1", "tcp://b:1"], given, {"HOCKET_TRANSPORT": "shm,ucx"})


# ---- what ranks agree on ---------------------------------------------------------------------------------------------


def card(rank: int, *ways: str, ucx: str = "1.22.0", lacks: str = "") -> Card:
    return Card(rank, f"host{rank // 2}", 100 + rank, "", "", "", "", False, ways, ucx, lacks)


def test_every_two_ranks_agree() -> None:
    """Four ranks on two hosts; rank 3 has no libucp."""
    cards = [card(0, "ucx", "tcp"), card(1, "tcp"), card(2, "ucx", "tcp"), card(3, "ucx", "tcp", lacks="no libucp")]
    table = [agreed(cards, [0, 0, 1, 1], rank) for rank in range(4)]
    both, tcp = ("ucx", "tcp"), ("tcp",)
    assert table == [[(), (), both, tcp], [(), (), tcp, tcp], [both, tcp, (), ()], [tcp, tcp, (), ()]]


def test_what_cannot_be_is_the_same_error_everywhere() -> None:
    places = [0, 0, 1, 1]
    lame = [card(0, "ucx"), card(1, "ucx"), card(2, "ucx"), card(3, "ucx", lacks="no libucp")]
    older = [card(0, "ucx"), card(1, "ucx"), card(2, "ucx", ucx="1.22.1"), card(3, "ucx", ucx="1.15.0")]
    apart = [card(0, "ucx"), card(1, "ucx"), card(2, "ucx"), card(3, "tcp")]
    for cards, words in (
        (lame, "rank 3 .* cannot: no libucp; .* would fall back"),
        (older, "has UCX 1.22.0, and rank 3 .* has 1.15.0: they must be of one version"),
        (apart, "over ucx, and rank 3 .* over tcp: give all"),
    ):
        told = {str(raised(RendezvousError, agreed, cards, places, rank)) for rank in range(4)}
        assert len(told) == 1
        with pytest.raises(RendezvousError, match=words):
            raise RendezvousError(told.pop())
        near = [each._replace(host="one") for each in cards]
        assert agreed(near, [0] * 4, 1) == [()] * 4


class Way:
    """What UCX offers one end, which is told of errors or not."""

    def __init__(self, tells: bool, _: int) -> None:
        self.tells, self.is_open = tells, True

    def address(self) -> bytes:
        return b"here"

    def connect(self, _: bytes) -> bool:
        return self.tells

    def greeted(self) -> bool:
        return True

    def close(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize("tells", [(True, True), (False, False), (True, False)])
def test_both_ends_are_told_of_errors_or_none(
    tells: tuple[bool, bool], optional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is told and one that is not would use UCX in different ways: then both go on over TCP, or none can."""
    monkeypatch.setattr(ucx, "Ucx", Way)
    sockets = socket.socketpair()
    for sock in sockets:
        sock.setblocking(False)
    ends: list[Any] = [Crossing(told, sock, optional=optional) for told, sock in zip(tells, sockets, strict=True)]  # type: ignore[arg-type]
    pipes = [end.pipe for end in ends]
    assert not ends[0].advance()  # the other has not answered
    if tells[0] == tells[1] or optional:
        assert ends[1].advance()
        assert ends[0].advance()
    else:
        for end in reversed(ends):
            assert "the two ends chose different transports of UCX; HOCKET_TRANSPORT=shm,ucx,tcp" in str(
                raised(RendezvousError, end.advance)
            )
    assert [pipe.is_open for pipe in pipes] == [tells[0] == tells[1]] * 2
    assert [end.pipe is not None for end in ends] == [tells[0] == tells[1]] * 2
    for sock in sockets:
        sock.close()
