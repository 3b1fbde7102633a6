"""How long ranks of other hosts may be silent: which times there are, and that all agree on one."""

from __future__ import annotations

import pytest
from launching import Hocket

from hocket.config import Config
from hocket.errors import RendezvousError
from hocket.rendezvous.cards import Card, connections

TCP = {"HOCKET_TRANSPORT": "tcp"}


def test_it_is_a_time_in_seconds() -> None:
    for text, seconds in (("", 2.0), ("6", 6.0), ("0.5", 0.5), ("86400", 86400.0), ("1e1", 10.0)):
        assert Config.from_env({"HOCKET_HEARTBEAT_TIMEOUT": text}).sockets.life == seconds
    for text in ("soon", "0", "-1", "0.49", "86401", "inf", "nan", "2s"):
        words = f'HOCKET_HEARTBEAT_TIMEOUT is "{text}", which is no number of seconds from 0.5 to 86400'
        with pytest.raises(RendezvousError, match=words):
            Config.from_env({"HOCKET_HEARTBEAT_TIMEOUT": text})


def test_ranks_must_agree_on_it(hocket: Hocket) -> None:
    """All of them are told, at once, who says what."""
    script = hocket.script(
        "import hocket\n"
        "if rank == 1: os.environ['HOCKET_HEARTBEAT_TIMEOUT'] = '2.5'\n"
        "try: hocket.init(20)\n"
        "except hocket.RendezvousError as error: say(rank, error)\n"
    )
    done = hocket.run("run", "-n", "3", script, environ=TCP)
    said = sorted(done.stdout.splitlines())
    assert [line[:7] for line in said] == ["0 rank ", "1 rank ", "2 rank "], done
    for line in said:
        first, second = line[2:].split(", and ")
        assert first.endswith(" has HOCKET_HEARTBEAT_TIMEOUT=2"), done
        assert second.startswith("rank 1 "), done
        assert " has HOCKET_HEARTBEAT_TIMEOUT=2.5 (it is 2 where it is not set)" in second, done


def test_on_one_host_nobody_need_agree() -> None:
    card = Card(0, "host", 4711, "boot", "net", "@a")
    other = card._replace(rank=1, life=300)
    assert connections([card, other], [(), ()]) == [1, 1]
    for ways in ([(), ("tcp",)], [(), ("ucx", "tcp")]):
        with pytest.raises(RendezvousError, match=r"rank 0 .*=2, and rank 1 .*=0\.3 "):
            connections([card, other], ways)


def test_it_holds_for_the_groups_of_a_group(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket\n"
        "part = hocket.init(20).split(0)\n"
        "part.barrier()\n"
        "if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "try: part.recv(1, timeout=15)\n"
        "except hocket.PeerLost as error: say(error)\n"
        "os.kill(part._links.pids[1], signal.SIGKILL)\n"
    )
    done = hocket.run("run", "-n", "2", script, environ={**TCP, "HOCKET_HEARTBEAT_TIMEOUT": "0.75"})
    assert done.stdout.startswith("rank 1 (pid "), done
    assert " was silent for 0.75 s, being stopped or cut off, " in done.stdout, done
