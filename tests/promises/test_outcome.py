"""One outcome: whatever ends a group, all ranks that are left raise the same, and know alike what was completed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import numpy as np
import pytest

import hocket
from hocket.run.signature import Signature
from moments import Signs, asleep, last, until
from worlds import Died, World

Own = Callable[[int], World]
Verdict = tuple[str, str, tuple[int, ...], "int | None", str]


def verdict(error: hocket.HocketError) -> Verdict:
    return type(error).__name__, str(error), error.lost, error.completed, error.settled


def ended(group: Any, call: Callable[[], object]) -> Verdict:
    """What `call` raises, once it does; and that every later call carries it."""
    try:
        while True:
            call()
    except hocket.HocketError as error:
        said = verdict(error)
    for call in (group.barrier, lambda: group.all_reduce(1.0)):
        with pytest.raises(hocket.GroupBroken) as later:
            call()
        assert said[1] in str(later.value)
        assert verdict(later.value)[2:] == said[2:]
    return said


def one(outcomes: list[Any]) -> Verdict:
    """The verdict of all that are left: it is one."""
    left = {outcome for outcome in outcomes if not isinstance(outcome, Died)}
    assert len(left) == 1, left
    return next(iter(left))


# ---- the same on all -------------------------------------------------------------------------------------------------


def until_one_dies(group: Any, victims: tuple[int, ...], count: int, calls: int) -> Verdict:
    x = np.full(count, group.rank, np.float32)
    done = [0]

    def call() -> None:
        if group.rank in victims and done[0] == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        group.all_reduce(x, algorithm="ring", order="any")
        done[0] += 1

    said = ended(group, call)
    assert said[3] is not None
    assert done[0] - said[3] == (1 if said[4] else 0) or done[0] == said[3], (
        "what returned here, all completed or know of"
    )
    return said


@pytest.mark.parametrize("count", [10, 1_000_000])
@pytest.mark.parametrize("victims", [(0,), (2,), (1, 3)])
def test_all_that_are_left_say_the_same(own: Own, victims: tuple[int, ...], count: int) -> None:
    kind, text, lost, completed, _ = one(own(4).outcomes(until_one_dies, victims, count, 5))
    assert kind == "PeerLost"
    assert set(lost) <= set(victims)
    assert completed in (4, 5)
    assert any(f"rank {rank} (pid " in text.splitlines()[0] for rank in lost)


def after_an_absence(group: Any, lost: tuple[int, ...]) -> Verdict:
    """Rank 0 did not run for a while, before some died."""
    group.barrier()
    last(group, *lost)
    if group.rank in lost:
        os.kill(os.getpid(), signal.SIGKILL)
    session = group._calls
    until(lambda: set(session.endpoint.absent()) == set(lost), "the end of those that die")

    class Absent:
        absence = 1.2 if group.rank == 0 else 0.0
        __getattr__ = session.endpoint.__getattribute__

    session.endpoint = Absent()
    return ended(group, group.barrier)


@pytest.mark.parametrize("lost", [(2, 3), (1, 2, 3)])
def test_an_absence_is_told_to_who_is_left_alone(own: Own, lost: tuple[int, ...]) -> None:
    """Who cannot know whether the others went on, is told so; but not where another one is told something else."""
    kind, text, *rest = one(own(4).outcomes(after_an_absence, lost))
    assert (kind, rest) == ("PeerLost", [lost, 1, ""])
    words = "the others may have gone on without rank 0 (pid "
    assert text.startswith(words) == (len(lost) == 3), text


def all_at_once(group: Any) -> Verdict:
    """Each rank makes another call than all others: each finds an error of its own, about at the same time. Nobody does
    before all have completed the barrier; and the first may fail before the last has heard of that."""
    group.barrier()
    return ended(group, lambda: (last(group, *range(group.size)), group.all_reduce(np.ones(group.rank + 1))))


@pytest.mark.parametrize("size", [2, 5])
def test_errors_that_all_find_at_once_are_one(own: Own, size: int) -> None:
    world = own(size)
    for _ in range(10):
        kind, _, lost, completed, settled = one(world.outcomes(all_at_once, fresh=True))
        assert (kind, lost, completed, settled) == ("MismatchError", (), 1, "")


def late_to_the_news(group: Any, signs: Signs) -> Verdict:
    """Rank 0 is in no call when rank 1 fails with a deadline of its own; rank 2 waits with it."""
    if group.rank == 0:
        signs.wait("failed")
    said = ended(group, lambda: group.barrier(timeout=0.3 if group.rank == 1 else 60.0))
    signs.give("failed")
    return said


def test_who_was_in_no_call_hears_the_same(own: Own, signs: Signs) -> None:
    kind, text, lost, completed, settled = one(own(3).outcomes(late_to_the_news, signs))
    assert (kind, lost, completed, settled) == ("CollectiveTimeout", (), 0, "")
    assert "rank 1 (pid " in text.splitlines()[0]


def two_threads(group: Any) -> tuple[Verdict, str]:
    """One thread has found that rank 1 is gone, and asks where all are; meanwhile another one calls."""
    group.barrier()
    last(group, 1)
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    session, inside, said = group._calls, threading.Event(), []
    end = session.endpoint.end

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def end(self, kind: int, peer: int, words: str) -> None:
            inside.set()
            if group.rank == 2:
                until(lambda: real.outcome() is not None, "what rank 0 found")
                with suppress(OSError):  # where it waits for nothing, and is gone
                    asleep(other.native_id)
            end(kind, peer, words)

    real, session.endpoint = session.endpoint, Slow()

    def call() -> None:
        inside.wait(20)
        with pytest.raises(hocket.HocketError) as caught:
            group.barrier()
        said.append(str(caught.value))

    other = threading.Thread(target=call)
    other.start()
    first = ended(group, group.barrier)
    other.join(20)
    return first, said[0]


def test_a_thread_that_calls_meanwhile_is_told_the_same(own: Own) -> None:
    first, _, last = own(3).outcomes(two_threads)
    assert first[0] == last[0]
    assert all(words.endswith(first[0][1]) for _, words in (first, last)), (first, last)


def interrupted_in_the_end(group: Any, signs: Signs) -> str:
    """Rank 2 has found that rank 1 is gone, and is interrupted when what rank 0 says of that has been settled."""
    group.barrier()
    last(group, 1)
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    real = group._calls.endpoint

    class Interrupted:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def end(self, kind: int, peer: int, words: str) -> None:
            signs.give("rank 2 has found it")
            until(lambda: real.outcome() is not None, "what rank 0 found")
            real.end(kind, peer, words)
            raise KeyboardInterrupt

    if group.rank == 2:
        group._calls.endpoint = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            group.barrier()
        group._calls.endpoint = real
    signs.wait("rank 2 has found it")
    with pytest.raises(hocket.HocketError):
        group.barrier()
    with pytest.raises(hocket.GroupBroken) as caught:
        group.barrier()
    return str(caught.value)


def test_after_an_interrupt_in_the_end_the_same_is_told(own: Own, signs: Signs) -> None:
    first, _, last = own(3).outcomes(interrupted_in_the_end, signs)
    assert first == last


# ---- what was completed ----------------------------------------------------------------------------------------------


class Oops(Exception):
    pass


def completed_by_one(group: Any, signs: Signs) -> tuple[str, Any]:
    """Rank 0 has its result of call 2 when rank 1, which holds its own up in its operator, raises there."""
    x = np.arange(5.0) + group.rank
    group.barrier()

    def operator(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        np.add(a, b, out)
        if group.rank == 1:
            signs.wait("rank 0 has it")
            raise Oops("in the operator")

    try:
        result = group.all_reduce(x, operator, algorithm="one_shot")
    except Oops:
        result = None
    signs.give(f"rank {group.rank} has it")
    with pytest.raises(hocket.HocketError) as caught:
        group.barrier()
    return verdict(caught.value)[2:], result


def test_a_result_that_not_all_got_is_named_on_all(own: Own, signs: Signs) -> None:
    (said, result), (other, nothing) = own(2).run(completed_by_one, signs)
    assert said == other
    lost, completed, settled = said
    assert (lost, completed) == ((), 1)
    assert settled.startswith("call 2, all_reduce(float64[5], op=")
    assert result.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]  # it was right; and nobody else has it
    assert nothing is None


def completed_and_forgotten(group: Any, signs: Signs) -> str:
    """Rank 0 goes on to a call whose text lies where that of the one before lay: of all texts one is kept."""
    usual = Signature.fingerprint
    with mock.patch.object(Signature, "fingerprint", lambda self, plan: usual(self, plan) >> 6 << 6):
        group.barrier()

        def operator(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            np.add(a, b, out)
            if group.rank == 1:
                signs.wait("rank 0 has it")
                until(lambda: group._calls.endpoint.survey(0.0, False)[0][2] == 3, "rank 0 in its next call")
                raise Oops("in the operator")

        with suppress(Oops):
            group.all_reduce(np.arange(5.0), operator, algorithm="one_shot")
        signs.give(f"rank {group.rank} has it")
        with pytest.raises(hocket.HocketError) as caught:
            group.all_gather(np.arange(3))
    return str(caught.value.settled)


def test_a_result_is_named_by_who_still_knows_it(own: Own, signs: Signs) -> None:
    one, other = own(2).run(completed_and_forgotten, signs, fresh=True)
    assert one == other
    assert one.startswith("call 2, all_reduce(float64[5], op=")


def in_peace(group: Any) -> Verdict | None:
    group.barrier()
    last(group, 1)
    if group.rank == 1:
        group.close()
        return None
    return ended(group, group.barrier)


def test_who_left_in_peace_is_lost_to_who_still_calls(own: Own) -> None:
    first, nothing, third = own(3).outcomes(in_peace)
    assert nothing is None
    assert first == third
    kind, text, lost, completed, settled = first
    assert (kind, lost, completed, settled) == ("PeerLost", (1,), 1, "")
    assert "left the group" in text


LONG = 300_000  # of float64: far more than may be on its way
CALLS: dict[str, Callable[[Any, Any], object]] = {
    "all_reduce": lambda group, x: group.all_reduce(x),
    "broadcast": lambda group, x: group.broadcast(x, root=0),
    "broadcast by a tree": lambda group, x: group.broadcast(x, root=0, algorithm="binomial_tree"),
    "scatter": lambda group, x: group.scatter(x if group.rank == 0 else None, root=0),
    "all_gather": lambda group, x: group.all_gather(x),
    "reduce_scatter": lambda group, x: group.reduce_scatter(x),
    "all_to_all": lambda group, x: group.all_to_all(x),
    "all_to_all in pairs": lambda group, x: group.all_to_all(x, algorithm="pairwise"),
    "scan": lambda group, x: group.scan(x),
}


def left_before(group: Any, name: str, who: int) -> Verdict | None:
    x = np.full(LONG, group.rank, np.float64)
    group.barrier()
    last(group, who)
    if group.rank == who:
        group.close()
        return None
    return ended(group, lambda: CALLS[name](group, x))


@pytest.mark.parametrize("name", CALLS)
def test_who_left_is_not_waited_for_to_the_end(own: Own, name: str) -> None:
    """Whichever of them it is, and whomever the others wait for first: who has left before a call is not in it."""
    for who in (1, 3):
        told = [outcome for outcome in own(4).outcomes(left_before, name, who) if outcome is not None]
        assert len(told) == 3
        kind, text, lost, completed, _ = one(told)
        assert (kind, lost, completed) == ("PeerLost", (who,), 1), text
        assert "left the group" in text


def nonsense(group: Any, who: int) -> Verdict:
    """One of the ranks sends what no rank sends to the next one, which may be still in the barrier before it."""
    if group.rank == who:
        group.barrier()
        group._links.sockets[(who + 1) % group.size].send(bytes(64))
    return ended(group, group.barrier)


@pytest.mark.parametrize(("size", "who"), [(2, 0), (2, 1), (3, 1)])
def test_who_sent_nonsense_is_told_so(size: int, who: int) -> None:
    """And does not take for silent who heard it. Where those two are alone, each of them is lost to the other; who has
    the lowest rank goes on, and others are told that it did."""
    world = World(size, "tcp")
    try:
        told = world.outcomes(nonsense, who)
    finally:
        world.close()
    words = f"rank {(who + 1) % size} "
    for rank, (kind, text, lost, _, _) in enumerate(told):
        assert kind == "PeerLost"
        assert f"rank {who} (pid " in text
        assert "sent what no rank sends while " + words in text
        assert lost == ((1 - rank,) if (size, who) == (2, 0) else (who,))
        assert text.startswith("the others went on without ") == (rank == who and rank > 0), text


# ---- who is stopped --------------------------------------------------------------------------------------------------


def stops(group: Any, signs: Signs) -> Verdict:
    """Rank 1 stops itself, and goes on when the others have given it up."""
    group.barrier()
    last(group, 1)
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    said = ended(group, group.barrier)
    if group.rank == 0:
        signs.give("given up")
    return said


def test_who_is_stopped_is_given_up_long_before_the_deadline(own: Own, signs: Signs) -> None:
    world = own(3)
    world.start(stops, signs, timeout=60)
    signs.wait("given up")
    os.kill(world.processes[1].pid, signal.SIGCONT)
    outcomes = world.finish()
    assert outcomes[0] == outcomes[2]
    kind, text, lost, completed, _ = outcomes[0]
    assert (kind, lost, completed) == ("PeerLost", (1,), 1)
    assert "stopped" in text
    kind, text, lost, completed, _ = outcomes[1]
    assert (kind, lost, completed) == ("PeerLost", (1,), 1)
    assert text.startswith("the others went on without rank 1 (pid ")
