"""New ranks enter a group between its calls: the same group on all of them, or the old one.

The ranks of these worlds do not meet in their world's group: some found one in a folder, and the others join it there.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from working import works

import hocket
from hocket.calls import objects
from hocket.config import Config, Given
from hocket.deadline import Deadline
from hocket.group import growth
from hocket.group.growth import Commit, enter
from hocket.group.recovery import is_majority
from hocket.rendezvous import porch
from hocket.rendezvous.files import FileStore
from hocket.rendezvous.porch import Porch
from moments import Signs, held, last, until
from worlds import TRANSPORTS, Died, World, first_host, raised

Own = Callable[[int], World]
SECRET = "of those that meet here"


def found(folder: str, size: int) -> Any:
    """The group of the first `size` processes; the others have None."""
    me = int(os.environ["RANK"])
    if me >= size:
        return None
    return hocket.init(30, rank=me, size=size, rendezvous=f"file://{folder}", secret=SECRET)


def come(folder: str, timeout: float = 30) -> Any:
    return hocket.join(timeout, rendezvous=f"file://{folder}", secret=SECRET)


def me() -> int:
    """The number of this process, whatever its rank is."""
    return int(os.environ["RANK"])


def numbers(group: Any) -> list[int]:
    """Those of all of its processes, by rank."""
    return [int(number) for number in group.all_gather(np.array([me()]))]


def play(own: Own, size: int, program: Callable[..., Any], *args: Any) -> list[Any]:
    world = own(size)
    world.start_alone(program, *args)
    return world.finish()


def lose(group: Any) -> None:
    """Make calls until a rank is lost."""
    with contextlib.suppress(hocket.PeerLost, hocket.GroupBroken):
        while True:
            group.barrier()


def plays(own: Own, size: int, program: Callable[..., Any], *args: Any) -> list[Any]:
    """As `play`, where nothing may fail."""
    outcomes = play(own, size, program, *args)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


# ---- who is in -------------------------------------------------------------------------------------------------------


def grows(_: Any, folder: str, founders: int, size: int) -> list[int]:
    group = found(folder, founders)
    if group is None:
        group = come(folder)
    else:
        before = group
        group = group.grow(size)
        with pytest.raises(hocket.GroupBroken, match="closed"):
            before.barrier()
    while group.size < size:  # some came later than others
        group = group.grow(size)
    members = numbers(group)
    works(group, members)
    assert group.pending() == 0
    assert group.grow() is group
    group.close()
    return members


@pytest.mark.parametrize(("founders", "size"), [(1, 2), (2, 3), (1, 4), (3, 5)])
def test_newcomers_are_behind_the_others(own: Own, tmp_path: Path, founders: int, size: int) -> None:
    seen = plays(own, size, grows, str(tmp_path), founders, size)
    assert all(members == seen[0] for members in seen)
    assert seen[0][:founders] == list(range(founders))
    assert sorted(seen[0]) == list(range(size))


def down_and_up(_: Any, folder: str, turns: int) -> list[Any]:
    """The last rank leaves by an error, until one is alone; and they come again."""
    group = found(folder, 3)
    for _ in range(turns):
        while group.size > 1 and group.rank < group.size - 1:
            lose(group)
            group = group.recover(allow_minority=True)
        if group.rank > 0:
            group.__exit__(ValueError, ValueError("goes"), None)
            group = come(folder)
        while group.size < 3:
            group = group.grow(3)
        works(group, numbers(group))
    losses = [loss.ranks for loss in group.history]
    group.close()
    return losses


def test_down_to_one_and_up_again(own: Own, tmp_path: Path) -> None:
    losses = plays(own, 3, down_and_up, str(tmp_path), 3)
    assert losses[0] == [(2,), (1,)] * 3


def bad_at_first(_: Any, folder: str) -> list[int]:
    """A group that has ended recovers and takes in who waits, in one call."""
    group = found(folder, 3)
    if group is None:
        group = come(folder)
    else:
        if group.rank == 1:
            group.__exit__(ValueError, ValueError("goes"), None)
            group = come(folder)
        else:
            lose(group)
        while group.size < 4:
            group = group.grow(4)
    while group.size < 4:
        group = group.grow(4)
    works(group, members := numbers(group))
    group.close()
    return members


def test_shrink_and_grow_in_one_step(own: Own, tmp_path: Path, transport: str) -> None:
    seen = plays(own, 4, bad_at_first, str(tmp_path))
    assert all(members == seen[0] for members in seen)
    assert seen[0][:2] == [0, 2]
    assert sorted(seen[0]) == [0, 1, 2, 3]


def again_and_again(_: Any, folder: str) -> tuple[tuple[int, int, int], ...]:
    """Rank 1 leaves and comes ten times."""
    group = found(folder, 2)
    kept = []
    for _ in range(10):
        if group.rank == 1:
            group.close()
            group = come(folder)
        else:
            with pytest.raises(hocket.PeerLost):
                group.barrier()
            group = group.recover(allow_minority=True).grow(2)
        works(group, [0, 1])
        kept.append(held())
    group.close()
    return tuple(kept)


def test_nothing_is_left_of_earlier_groups(own: Own, tmp_path: Path) -> None:
    for kept in plays(own, 2, again_and_again, str(tmp_path)):
        assert max(kept[-1]) <= max(kept[2]) + 1, kept


# ---- nobody comes ----------------------------------------------------------------------------------------------------


def alone(_: Any) -> None:
    with hocket.init(30) as group:
        works(group, [0])
    with hocket.init(30, rank=0, size=1, rendezvous="tcp://127.0.0.1:1", secret=SECRET) as group:
        assert group.size == 1


def too_few(_: Any, folder: str, signs: Signs) -> str:
    group = found(folder, 2)
    if me() == 2:  # it is not taken in by a call that wants more, and is there until that has ended
        told = Porch._told

        def told_late(*args: Any) -> Any:
            signs.wait("in vain", 60)
            return told(*args)

        Porch._told = told_late  # type: ignore[method-assign]
        with pytest.raises(hocket.RendezvousError, match="no group let this rank in within"):
            come(folder, 1.5)
        return ""
    until(lambda: group.pending() == 1, "one that waits")
    with pytest.raises(hocket.CollectiveTimeout, match="of 4 ranks that were waited for there are 2, and 1 that wait"):
        group.grow(4, timeout=0.5)
    signs.give("in vain")
    works(group, [0, 1])
    with group.split(0) as part, pytest.raises(hocket.RendezvousError, match="nobody can join this group: only one"):
        part.pending()
    until(lambda: group.pending() == 0, "it went")
    assert group.grow() is group
    works(group, [0, 1])
    group.close()
    return "good"


def test_where_too_few_come_the_group_is_as_it_was(own: Own, tmp_path: Path, signs: Signs) -> None:
    assert plays(own, 3, too_few, str(tmp_path), signs) == ["good", "good", ""]


def test_a_world_of_one() -> None:
    with hocket.init(5) as group:
        assert group.pending() == 0
        assert group.grow() is group
        with pytest.raises(hocket.RendezvousError, match="nobody can join this world of one"):
            group.grow(2)
        assert group.all_reduce(3) == 3
    with pytest.raises(hocket.RendezvousError, match="there is no group to join"):
        hocket.join(5)


# ---- somebody is lost on the way -------------------------------------------------------------------------------------


def die(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def stop(*_: object, **__: object) -> Any:
    os.kill(os.getpid(), signal.SIGSTOP)


def lost_newcomer(_: Any, folder: str, how: Callable[..., Any], at: str, signs: Signs) -> Any:
    """Of two that come one is lost, before or while it links."""
    group = found(folder, 2)
    if group is None:
        if me() == 3:
            owner, name = at.rsplit(".", 1)
            setattr({"growth": growth, "Commit": growth.Commit}[owner], name, how)
            signs.give(f"pid {os.getpid()}")
        group = come(folder)
    else:
        until(lambda: group.pending() == 2, "both")
        group = group.grow()
        while group.size < 3:
            group = group.grow(3)
        if group.size == 4:  # it got through the commit
            with pytest.raises(hocket.PeerLost):
                group.barrier()
            group = group.recover(allow_minority=True)
    works(group, members := numbers(group))
    group.close()
    return members


@pytest.mark.parametrize("at", ["growth.link", "growth.meet_at", "Commit.make"])
@pytest.mark.parametrize("how", [die, stop], ids=["killed", "stopped"])
def test_a_newcomer_is_lost(own: Own, tmp_path: Path, how: Any, at: str, signs: Signs) -> None:
    world = own(4)
    world.start_alone(lost_newcomer, str(tmp_path), how, at, signs)
    seen = world.finish(without=3)
    assert seen[:3] == [[0, 1, 2]] * 3, "\n".join(map(str, seen))
    world.close()


def lost_member(_: Any, folder: str, victim: int, at: str, when: int) -> Any:
    group = found(folder, 3)
    if group is None:
        group = come(folder)
    else:
        until(lambda: group.pending() == 1, "it")
        last(group, victim)
        if group.rank == victim:
            owner, name = {
                "tell": (group._objects, "tell"),
                "collect": (group._objects, "collect"),
                "meet": (growth, "meet_at"),
                "commit": (growth.Commit, "make"),
            }[at]
            real, steps = getattr(owner, name), iter(range(100))
            setattr(owner, name, lambda *args, **how: die() if next(steps) == when else real(*args, **how))
        group = group.grow()
        if group.size == 4:
            lose(group)
            group = group.recover(allow_minority=True)
    members = numbers(group)
    works(group, members)
    group.close()
    return members


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("at", "when"), [("tell", 0), ("tell", 1), ("collect", 0), ("collect", 1), ("meet", 0), ("commit", 0)]
)
def test_a_member_is_lost(own: Own, tmp_path: Path, victim: int, at: str, when: int) -> None:
    outcomes = play(own, 4, lost_member, str(tmp_path), victim, at, when)
    assert isinstance(outcomes[victim], Died)
    left = [r for r in range(3) if r != victim]
    assert [outcomes[r] for r in (*left, 3)] == [[*left, 3]] * 3, outcomes


def interrupted(_: Any, folder: str, at: str, then: str) -> list[int]:
    """A Ctrl-C in the commit of rank 1, just before its call or just after that."""
    group = found(folder, 2)
    if group is None:
        group = come(folder)
    else:
        until(lambda: group.pending() == 1, "it")
        if group.rank == 1:
            real = growth.Commit.make

            def make(commit: Any, seconds: float) -> None:
                growth.Commit.make = real  # type: ignore[method-assign]
                if at == "after":
                    real(commit, seconds)
                raise KeyboardInterrupt

            growth.Commit.make = make  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                group.grow()
            group = getattr(group, then)()
        else:
            group = group.grow()
    members = numbers(group)  # where rank 1 has come through the commit, nothing has happened
    works(group, members)
    group.close()
    return members


@pytest.mark.parametrize(("at", "then"), [("before", "grow"), ("after", "grow"), ("after", "recover")])
def test_an_interrupt_in_the_commit(own: Own, tmp_path: Path, at: str, then: str) -> None:
    assert plays(own, 3, interrupted, str(tmp_path), at, then) == [[0, 1, 2]] * 3


MOMENTS = {  # what is called then, how often before that, and by whom
    "who waits is known": (growth.Growth, "attempt", 0, 1),
    "doors are known": (objects.Objects, "tell", 1, 1),
    "linked": (growth.Growth, "_committed", 0, 0),
    "the group is made": (growth.Commit, "of", 0, 1),
    "it is everybody's": (hocket.Group, "_left_for", 0, 0),
    "the old one is to be closed": (hocket.Group, "_close", 0, 1),
}


def interrupted_between(_: Any, folder: str, moment: str) -> Any:
    """A Ctrl-C between two of the calls that a growth is made of; and once more."""
    group = found(folder, 2)
    if group is None:
        group = come(folder)
    else:
        until(lambda: group.pending() == 1, "it")
        owner, name, before, victim = MOMENTS[moment]
        if group.rank == victim:
            real, calls = inspect.getattr_static(owner, name), iter(range(9))

            def interrupt(*args: Any, **how: Any) -> Any:
                if next(calls) < before:
                    return real(*args, **how)
                setattr(owner, name, real)
                raise KeyboardInterrupt

            setattr(owner, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                group.grow(3)
        with contextlib.suppress(hocket.HocketError):
            group = group.grow(3)
        if group.size < 3:  # it was interrupted before it was everybody's
            group = group.recover().grow(3)
    members = numbers(group)
    works(group, members)
    group.close()
    return members


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_between_its_calls(own: Own, tmp_path: Path, moment: str) -> None:
    assert plays(own, 3, interrupted_between, str(tmp_path), moment) == [[0, 1, 2]] * 3


def lost_and_too_few(_: Any, folder: str) -> list[int]:
    """What grow() has recovered is not lost where it then fails."""
    group = found(folder, 3)
    if group.rank == 2:
        die()
    lose(group)
    for _ in range(2):
        with pytest.raises(hocket.CollectiveTimeout, match="of 3 ranks that were waited for there are 2, and 0"):
            group.grow(3, timeout=1)
    assert [loss.ranks for loss in group.recover().history] == [(2,)]
    group = group.recover()
    members = numbers(group)
    works(group, members)
    group.close()
    return members


def test_too_few_after_a_loss(own: Own, tmp_path: Path) -> None:
    assert play(own, 3, lost_and_too_few, str(tmp_path))[:2] == [[0, 1]] * 2


def cannot_make_it(_: Any, folder: str, signs: Signs) -> str:
    """One that comes links each time, and never gets further. The others are not kept by it."""
    group = found(folder, 2)
    if group is None:

        def fail(*_: Any) -> Any:
            raise hocket.RendezvousError("no memory")

        signs.wait("formed", 60)
        with pytest.raises(hocket.RendezvousError, match="no group let this rank in"):
            enter(Porch(Config.newcomer(f"file://{folder}", Given(secret=SECRET))), Deadline(5), fail)
        signs.give("it gave up")
        return ""
    signs.give("formed")
    until(lambda: group.pending() == 1, "it")
    group = group.grow(timeout=600)  # it does not try until then
    works(group, [0, 1])
    signs.wait("it gave up")
    group.close()
    return f"{group.size}"


def test_one_that_never_gets_through(own: Own, tmp_path: Path, signs: Signs) -> None:
    assert plays(own, 3, cannot_make_it, str(tmp_path), signs) == ["2", "2", ""]


# ---- who does not belong, and where the others are -------------------------------------------------------------------


def strangers(_: Any, folder: str) -> str:
    group = found(folder, 1)
    if group is not None:
        until(lambda: group.pending() == 1, "the one that is let in")
        group = group.grow()
        works(group, [0, 3])
        group.close()
        return ""
    place = f"file://{folder}"
    if me() == 1:
        error = raised(hocket.RendezvousError, hocket.join, 30, rendezvous=place, secret="another")
    elif me() == 2:
        porch.Card.note = lambda *_: b"hocket 0.0.1\nwhatever"  # type: ignore[method-assign]
        error = raised(hocket.RendezvousError, hocket.join, 30, rendezvous=place, secret=SECRET)
    else:
        until(lambda: Path(folder, "admit.0.0").exists() and Path(folder, "admit.1.0").exists(), "both were told")
        group = come(folder)
        works(group, [0, 3])
        group.close()
        return ""
    return str(error)


def test_strangers_are_not_let_in(own: Own, tmp_path: Path) -> None:
    _, secret, version, _ = plays(own, 4, strangers, str(tmp_path))
    assert "it was not sealed with this job's secret" in secret
    assert "this rank was not let in: rank" in version
    assert "has hocket 0.0.1, and rank 0 has" in version


def looks_once(_: Any, folder: str) -> int:
    """As on a machine that does all of it between two looks."""
    porch._LOOKS = 1000.0
    group = found(folder, 1)
    if group is None:
        group = come(folder)
    else:
        while group.pending() == 0:
            group._porch._again = Deadline(0.0)
        group = group.grow()
    waiting: int = group.pending()
    works(group, [0, 1])
    group.close()
    return waiting


def test_who_is_let_in_waits_no_more(own: Own, tmp_path: Path) -> None:
    assert plays(own, 2, looks_once, str(tmp_path)) == [0, 0]


def test_a_heap_of_notes_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads some of them only, and the next one goes on there: who waits behind them is found."""
    monkeypatch.setattr(porch, "_READS", 0.0)
    monkeypatch.setattr(porch, "_LOOKS", 0.0)
    for number in range(5):
        (tmp_path / f"join.{number}").write_bytes(b"hocket" * number)
    config = Config.newcomer(f"file://{tmp_path}", Given(secret=SECRET))
    newcomer, group = Porch(config), Porch(config)
    with contextlib.closing(newcomer.door()) as door:
        newcomer._leave(FileStore(tmp_path), newcomer.terms.card(door, 0), Deadline(1))
        assert [len(group.waiting()) for _ in range(7)] == [0, 0, 0, 0, 0, 1, 1]
    assert len(list(tmp_path.glob("admit.*"))) == 5  # the others were told why not


def other_integrity(_: Any, folder: str) -> str:
    group = found(folder, 1)
    if group is None:
        other = os.environ.get("HOCKET_INTEGRITY") != "1"
        options = {"rendezvous": f"file://{folder}", "secret": SECRET, "integrity": other}
        return str(raised(hocket.RendezvousError, hocket.join, 30, **options))
    until(lambda: group.pending() == 1, "it")
    assert group.grow() is group
    works(group, [0])
    return ""


def test_integrity_is_the_same_on_all(own: Own, tmp_path: Path) -> None:
    assert "HOCKET_INTEGRITY is not the same" in plays(own, 2, other_integrity, str(tmp_path))[1]


def free_place(transport: str) -> str:
    """An address of the first host."""
    if TRANSPORTS[transport].layout:
        return f"tcp://{first_host()}:4099"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def loses_its_porch(_: Any, place: str, signs: Signs) -> list[int]:
    """Rank 0, which holds the place where others wait, dies; they find the next one's."""
    options = {"rendezvous": place, "secret": SECRET}
    if me() == 3:
        signs.wait("formed")
        group = hocket.join(30, **options)
    else:
        group = hocket.init(30, rank=me(), size=3, **options)
        group.pending()  # it is open from now on
        signs.give("formed")
        until(lambda: group.pending() == 1, "it")
        last(group, 0)
        if me() == 0:
            die()
        lose(group)
        group = group.recover().grow(3)
    works(group, members := numbers(group))
    group.close()
    return members


def test_the_porch_moves(own: Own, signs: Signs, transport: str) -> None:
    outcomes = play(own, 4, loses_its_porch, free_place(transport), signs)
    assert isinstance(outcomes[0], Died)
    assert outcomes[1:] == [[1, 2, 3]] * 3, outcomes


def forks(_: Any, place: str, signs: Signs) -> list[int]:
    """A child of rank 0 has none of its porch, and keeps nobody from it."""
    options = {"rendezvous": place, "secret": SECRET}
    if me() == 2:
        signs.wait("forked")
        group = hocket.join(30, **options)
    else:
        group = hocket.init(30, rank=me(), size=2, **options)
        assert group.pending() == 0
        if me() == 0:
            child = os.fork()
            if child == 0:
                signs.wait("over", 60)
                os._exit(0)
            signs.give("forked")
        group = group.grow(3)
    works(group, [0, 1, 2])
    if group.rank == 0:  # it lets go of the port, which the child does not hold
        group.close()
        host, port = place.removeprefix("tcp://").split(":")
        with socket.create_server((host, int(port))):
            signs.give("over")
        os.waitpid(child, 0)
    else:
        with pytest.raises(hocket.PeerLost):
            group.barrier()
    return []


def test_a_child_does_not_hold_the_porch(own: Own, signs: Signs, transport: str) -> None:
    plays(own, 3, forks, free_place(transport), signs)


# ---- two parts of a group never both go on ---------------------------------------------------------------------------


class Ended:
    """A new group as one part of it sees it: these are out of sight, and nobody in sight came through its call."""

    def __init__(self, places: list[int], lost: list[int], reached: int) -> None:
        self._calls = self._links = self.endpoint = self
        self.places, self.completed = places, 4
        self.outcome = lambda: (1, 0, "", lost, 0, reached, "")


@pytest.mark.parametrize("members", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "hosts", [[0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1], [0, 1, 1, 1, 1, 1]], ids=str
)
def test_two_parts_never_both_go_on(members: int, hosts: list[int]) -> None:
    """Of `members` that let others in, wherever the group parts: if one part may go on in the new group, the other does
    not go on in the old one."""
    everybody = set(range(6))
    for chosen in range(1, 2**6 - 1):
        parts = {rank for rank in everybody if chosen >> rank & 1}
        if {hosts[r] for r in parts} & {hosts[r] for r in everybody - parts}:
            continue  # ranks of one host do not lose sight of each other
        there, here = sorted(parts), sorted(everybody - parts)
        through = Commit(Ended(hosts, here, 5), 5, "")  # somebody there came through; and nobody here
        back = not Commit(Ended(hosts, there, 4), 5, "").may_count
        assert through.may_count
        goes_on = is_majority(hosts, here)
        old = [rank for rank in here if rank < members]
        goes_back = back and bool(old) and is_majority(hosts[:members], [r for r in there if r < members])
        assert not (goes_on and goes_back), (there, here)
