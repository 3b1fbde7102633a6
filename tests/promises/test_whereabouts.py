"""An error says where every rank is: its call, its line of the program, and for how long."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.calls import session
from hocket.calls.whereabouts import Whereabouts, describe
from hocket.places import place, place_of, users_part
from hocket.words import named
from moments import Signs, asleep
from worlds import World

Own = Callable[[int], World]


def here(mark: str) -> str:
    """The line of this file that ends in that comment, as errors name it."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [i + 1 for i, line in enumerate(lines) if line.endswith(f"# {mark}")]
    return f"{Path(__file__).name}:{number}"


def told(text: str) -> dict[str, str]:
    """What an error says of which ranks. The places are without their folders, and without the times."""
    lines = re.findall(r"^  (ranks? [\d, -]+) (?:is|are) (.*)$", text, flags=re.MULTILINE)
    return {
        ranks: re.sub(r", for [\d.]+( to [\d.]+)? s$", "", re.sub(r"at \S*/", "at ", words)) for ranks, words in lines
    }


def lasting(text: str, ranks: str) -> float:
    """For how many seconds an error says that they have been there, at most."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"  {ranks} ")]
    return float(re.findall(r"([\d.]+) s$", line)[0])


# ---- what errors say -------------------------------------------------------------------------------------------------


def differ(group: Any) -> Any:
    session.PATIENCE = 20.0  # all ranks come to their calls, however busy the machine is
    if group.rank == 2:
        return group.all_reduce(np.ones(4, np.float32))  # another
    return group.all_reduce(np.ones(3, np.float32))  # usual


def test_ranks_that_differ(own: Own) -> None:
    outcomes = own(4).outcomes(differ)
    assert {type(outcome) for outcome in outcomes} == {hocket.MismatchError}
    for outcome in outcomes:
        places = told(str(outcome))
        one = f"in all_reduce(float32[3], op='sum') (call 1) at {here('usual')}"
        two = f"in all_reduce(float32[4], op='sum') (call 1) at {here('another')}"
        assert places == {"ranks 0, 1, 3": one, "rank 2": two}


def waiting(world: World, signs: Signs, *ranks: int) -> None:
    """Give the sign "all wait" when each of these has said that it will, and sleeps."""
    for rank in ranks:
        signs.wait(f"near {rank}")
        asleep(world.processes[rank].pid, world.processes[rank].pid)
    signs.give("all wait")


def late(group: Any, signs: Signs) -> Any:
    group.barrier()
    if group.rank == 1:
        signs.give("near 1")
        try:
            return group.recv(0, out=np.empty(2), tag=9, timeout=30)  # waits
        finally:
            signs.give("heard")
    if group.rank == 2:
        return signs.wait("heard")
    signs.wait("all wait")
    return group.all_reduce(np.ones(2), timeout=0.7)  # gives up


def test_a_deadline(own: Own, signs: Signs) -> None:
    """Rank 1 is in another call, and rank 2 in none."""
    world = own(3)
    world.start(late, signs)
    waiting(world, signs, 1)
    outcomes = world.finish()
    assert [type(outcome) for outcome in outcomes[:2]] == [hocket.CollectiveTimeout] * 2
    assert str(outcomes[0]) == str(outcomes[1])
    places = told(str(outcomes[0]))
    assert places["rank 0"] == f"in all_reduce(float64[2], op='sum') (call 2) at {here('gives up')}"
    assert places["rank 1"] == f"in recv(src=0, tag=9) at {here('waits')}"
    assert places["rank 2"] == "in no call of this group, after barrier() (call 1)"
    assert 0.5 < lasting(str(outcomes[0]), "rank 0") < 5


def probes(group: Any, signs: Signs) -> Any:
    group.barrier()
    if group.rank == 1:
        signs.give("near 1")
        return group.probe(0, tag=9, timeout=30)  # probes
    signs.wait("all wait")
    return group.all_reduce(np.ones(2), timeout=0.7)  # is alone


def test_who_waits_in_a_probe_says_so(own: Own, signs: Signs) -> None:
    world = own(2)
    world.start(probes, signs)
    waiting(world, signs, 1)
    outcomes = world.finish()
    assert told(str(outcomes[0]))["rank 1"] == f"in probe(src=0, tag=9) at {here('probes')}"


def die(group: Any, signs: Signs) -> Any:
    group.all_reduce(np.ones(2))
    if group.rank == 1:
        signs.wait("all wait")
        signal.raise_signal(signal.SIGKILL)
    signs.give(f"near {group.rank}")
    return group.all_reduce(np.ones(3))  # survives


def test_a_rank_that_dies(own: Own, signs: Signs) -> None:
    world = own(3)
    world.start(die, signs)
    waiting(world, signs, 0, 2)
    outcomes = world.finish()
    for rank in (0, 2):
        assert isinstance(outcomes[rank], hocket.PeerLost)
        assert told(str(outcomes[rank])) == {
            "ranks 0, 2": f"in all_reduce(float64[3], op='sum') (call 2) at {here('survives')}",
            "rank 1": "dead or out of reach, after all_reduce(float64[2], op='sum') (call 1)",
        }


def refuse(a: Any, b: Any, out: Any) -> None:
    raise ZeroDivisionError("as it tends to do")


def fail(group: Any) -> Any:
    return group.all_reduce(np.ones(2), refuse)  # folds


def test_an_operator_that_raises(own: Own) -> None:
    """Who is told of it learns which call of the program it was in."""
    outcomes = own(3).outcomes(fail)
    told_of_it = [str(outcome) for outcome in outcomes if isinstance(outcome, hocket.HocketError)]
    for text in told_of_it:
        assert re.search(
            rf"failed with ZeroDivisionError: as it tends to do in .* at \S*{re.escape(here('folds'))}$", text
        )


def go_on(group: Any, signs: Signs) -> list[str]:
    """Waits long in vain, without harm; then is somewhere else."""
    if group.rank == 0:
        with pytest.raises(hocket.CollectiveTimeout):
            group.recv(1, timeout=0.6)
        signs.give("given up")
        return []
    signs.wait("given up")
    with pytest.raises(hocket.CollectiveTimeout) as caught:
        group.recv(0, timeout=0.3)
    return [str(caught.value)]


def test_what_is_over_is_told_no_more(own: Own, signs: Signs) -> None:
    outcomes = own(2).run(go_on, signs)
    assert told(outcomes[1][0])["rank 0"] == "in no call of this group yet"


def several(group: Any, signs: Signs) -> str:
    """A thread that computes something else does not hide the one that waits."""
    if group.rank == 0:
        signs.wait("asleep")
        with pytest.raises(hocket.CollectiveTimeout) as caught:
            group.all_reduce(np.ones(1), timeout=0.5)
        signs.give("over")
        return str(caught.value)

    def receive() -> None:
        with pytest.raises(hocket.HocketError):
            group.recv(0, tag=1, timeout=30)  # in a thread

    thread = threading.Thread(target=receive)
    thread.start()
    assert thread.native_id is not None
    asleep(thread.native_id)
    signs.give("asleep")
    signs.wait("over")
    group.close()
    thread.join()
    return ""


def test_a_thread_that_waits(own: Own, signs: Signs) -> None:
    outcomes = own(2).run(several, signs)
    assert told(outcomes[0])["rank 1"] == f"in recv(src=0, tag=1) at {here('in a thread')}"


def wait_for_it(group: Any) -> Any:
    session.PATIENCE = 20.0  # both come to their calls
    if group.rank == 0:
        return group.barrier()  # waits already
    work = group.all_reduce(np.ones(5), async_op=True)
    return work.wait()  # of the work


def test_an_asynchronous_call_is_where_it_is_waited_for(own: Own) -> None:
    outcomes = own(2).outcomes(wait_for_it)
    places = told(str(outcomes[0]))
    assert places["rank 0"] == f"in barrier() (call 1) at {here('waits already')}"
    assert places["rank 1"].startswith("in all_reduce(float64[5], op='sum') (call 1)")


# ---- the parts of it -------------------------------------------------------------------------------------------------


def test_ranks_are_named_in_runs() -> None:
    assert [named(ranks) for ranks in ([], [3], [0, 1], [2, 0, 1], [0, 2, 3, 4, 7])] == [
        "none",
        "rank 3",
        "ranks 0, 1",
        "ranks 0-2",
        "ranks 0, 2-4, 7",
    ]


IDLE = Whereabouts("", 0.0, 0, "", False, False, True)


def test_many_places_are_cut() -> None:
    ranks = [IDLE._replace(doing=f"recv(src={r}, tag=0)", seconds=r) for r in range(20)]
    lines = describe(ranks, 3, "barrier()").splitlines()
    assert len(lines) == 9
    assert lines[4] == "  rank 3 is in barrier(), for 3.0 s"
    assert lines[-1] == "  and ranks in 13 other places"


def test_what_is_said_of_others() -> None:
    ranks = [
        IDLE._replace(call=5, title="all_reduce(...)"),
        IDLE._replace(call=5, title="all_reduce(...)", silent=False),
        IDLE._replace(call=5, title="all_reduce(...)"),
        IDLE._replace(call=4, title="barrier()"),
        IDLE._replace(left=True),
        IDLE._replace(gone=True),
        IDLE._replace(doing="barrier() (call 5) at a.py:1", seconds=9.0, silent=True),
        IDLE._replace(doing="barrier() (call 5) at a.py:1", seconds=1.0),
        IDLE._replace(doing="barrier() (call 5) at a.py:1", seconds=2.0),
    ]
    assert describe(ranks, 0, "all_reduce(...) (call 5) at b.py:2").splitlines()[1:] == [
        "  rank 0 is in all_reduce(...) (call 5) at b.py:2",
        "  rank 1 is in all_reduce(...) (call 5)",
        "  rank 2 is in all_reduce(...) (call 5), busy there or stopped",
        "  rank 3 is in no call of this group, after barrier() (call 4)",
        "  rank 4 is gone, having left the group",
        "  rank 5 is dead or out of reach",
        "  ranks 6-8 are in barrier() (call 5) at a.py:1, busy there or stopped, for 1.0 to 9.0 s",
    ]
    assert "ranks 1, 2 are in no call of this group, after all_reduce(...) (call 5)" in describe(
        ranks, 0, "recv(src=1, tag=0)"
    )


def test_a_place_is_the_users_line() -> None:
    line = f" at {here('asked')}"
    assert re.sub(r"at \S*/", "at ", place()) == line  # asked
    with pytest.raises(ValueError, match="size is 0") as caught:
        hocket.spawn(here, 0)  # raised
    assert re.sub(r"at \S*/", "at ", place_of(caught.value)) == f" at {here('raised')}"
    assert caught.value.__traceback__ is not None
    assert caught.value.__traceback__.tb_next is not None
    kept = users_part(caught.value.__traceback__)
    assert kept is not None
    assert kept.tb_next is None
    assert kept.tb_frame.f_code.co_name == "test_a_place_is_the_users_line"
