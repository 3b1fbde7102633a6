"""What links between hosts carry in the time of a round: given or measured, and the same on all ranks."""

from __future__ import annotations

import pytest
from launching import Hocket

from hocket.config import Config
from hocket.errors import RendezvousError

TCP = {"HOCKET_TRANSPORT": "tcp"}


def test_what_is_given_holds_for_the_groups_of_a_group(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket\n"
        "group = hocket.init(20)\n"
        "half = group.split(rank % 2)\n"
        "say(group.topology.wire, half.topology.wire, half.split(0).topology.wire, group.topology.places)\n"
    )
    done = hocket.run("run", "-n", "4", script, environ={**TCP, "HOCKET_WIRE": "48K"})
    assert done.stdout.splitlines() == [f"{48 << 10} {48 << 10} {48 << 10} (0, 1, 2, 3)"] * 4, done


def test_what_is_measured_is_the_same_everywhere_and_stays(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket\ngroup = hocket.init(20)\nsay(group.topology.wire, group.subgroup([2, 0, 1]).topology.wire)\n"
    )
    done = hocket.run("run", "-n", "3", script, environ=TCP)
    found = {int(word) for word in done.stdout.split()}
    assert len(done.stdout.splitlines()) == 3, done
    assert len(found) == 1, done
    assert found <= {1 << bit for bit in range(11, 19)}, done


def test_ranks_must_agree_on_it(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket\n"
        "if rank: os.environ['HOCKET_WIRE'] = '64K'\n"
        "try: hocket.init(3)\n"
        "except hocket.RendezvousError as error: say(rank, error)\n"
    )
    done = hocket.run("run", "-n", "2", script, environ=TCP)
    assert "with HOCKET_WIRE=65536" in done.stdout, done
    assert "do all agree on HOCKET_WIRE?" in done.stdout, done


def test_who_leaves_meanwhile_is_named(hocket: Hocket) -> None:
    script = hocket.script(
        "import hocket.group\n"
        "if rank == 1: hocket.group.measure = lambda *_: 1 / 0\n"
        "try: hocket.init(20)\n"
        "except (hocket.RendezvousError, ZeroDivisionError) as error: say(rank, type(error).__name__, error)\n"
    )
    done = hocket.run("run", "-n", "3", script, environ=TCP)
    first, second, third = sorted(done.stdout.splitlines())
    assert second == "1 ZeroDivisionError division by zero", done
    for said in (first, third):
        assert "RendezvousError the ranks met, but not for long: rank 1 " in said, done
        assert "left with ZeroDivisionError: division by zero" in said, done


def test_it_is_a_number_of_bytes() -> None:
    for text, nbytes in (("", 0), ("1500", 1500), ("64K", 64 << 10), ("1M", 1 << 20)):
        assert Config.from_env({"HOCKET_WIRE": text}).sockets.wire == nbytes
    for text in ("fast", "-1", "64KiB", "1e3"):
        with pytest.raises(RendezvousError, match=f'HOCKET_WIRE is "{text}", which is no number of bytes'):
            Config.from_env({"HOCKET_WIRE": text})
