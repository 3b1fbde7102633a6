"""Who gives up a call gets his arrays back: no peer that wakes up later writes them, or makes a result of them.

In each of these tests rank 1 is held in the middle of a call, by its operator or by SIGSTOP. Rank 0 gives up, for one
of several reasons, fills its arrays anew and tells. Then rank 1 goes on. Rank 0's arrays must keep what was filled in,
bit for bit, as must all that lies beside them; and rank 1 must raise.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hocket
from moments import Signs, gate, gated, ours, seconds, stopped
from worlds import World, raised

MARGIN = 1000  # elements of the same array beside those of the call: no page of their own
SIZES = [2**14, 2**18, 2**20]  # elements of float32: 64 KiB, 1 MiB, 4 MiB
Own = Callable[[int], World]


@pytest.fixture(scope="module")
def transport() -> str:
    """Only where memory is shared can a peer be held by its operator in the middle of it. A link has taken what a rank
    gives by the time at which its peer is held, and the call may succeed."""
    return "shm"


class Field:
    """An array for a call, `middle`, within a larger one, and a thread that never stops writing beside it."""

    def __init__(self, group: Any, place: str, count: int, seed: int) -> None:
        make = group.empty if place == "arena" else np.empty
        self.whole = make(count + 2 * MARGIN, "float32")
        self.whole[:] = -seed
        self.middle = self.whole[MARGIN:-MARGIN]
        self.lost: list[str] = []
        self._spots = self.whole[3:4], self.whole[-3:-2]
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._seed = seed

    def start(self) -> None:
        self._writer.start()

    def _write(self) -> None:
        turn = 0
        for spot in self._spots:
            spot[0] = 0
        while not self._over.is_set():
            for spot in self._spots:
                if spot[0] != turn % 1000:
                    self.lost.append(f"wrote {turn % 1000}, found {spot[0]}")
                spot[0] = (turn + 1) % 1000
            turn += 1

    def pattern(self, turn: int) -> np.ndarray:
        return (np.arange(len(self.middle)) * 3 + turn * 7 + self._seed).astype("float32") % 1009

    def refill(self) -> None:
        self.middle[:] = self.pattern(1)

    def check(self) -> None:
        """What was refilled is there; what lies beside it is as it was; what the thread wrote is not lost."""
        self._over.set()
        self._writer.join()
        assert self.lost == []
        wrong = np.flatnonzero(self.middle != self.pattern(1))
        assert len(wrong) == 0, f"{len(wrong)} of {len(self.middle)} elements changed, from {wrong[0]} on"
        for spot in self._spots:
            spot[0] = -self._seed
        edges = np.concatenate([self.whole[:MARGIN], self.whole[-MARGIN:]])
        assert (edges == -self._seed).all()


def inputs(collective: str, n: int, count: int) -> tuple[int, int]:
    """Elements of input and output of a rank."""
    joins, splits = collective in ("all_gather", "gather"), collective in ("scatter", "reduce_scatter")
    return (count // n if joins else count), (count // n if splits else count)


def begin(group: Any, collective: str, x: np.ndarray, out: np.ndarray, **options: Any) -> Any:
    """The call, with an operator that can be held where it has one. Where a root is needed, `options` name it."""
    if collective in ("all_reduce", "reduce", "reduce_scatter"):
        options = {"op": gated, **options}
    if collective == "broadcast":
        return group.broadcast(x, out=x if group.rank == options["root"] else out, **options)
    if collective == "scatter":
        return group.scatter(x if group.rank == options["root"] else None, out=out, **options)
    return getattr(group, collective)(x, out=out, **options)


# ---- rank 1 held by its operator -----------------------------------------------------------------------------------


def give_up(group: Any, signs: Signs, collective: str, place: str, count: int, why: str, at: int, root: int) -> Any:
    counts = inputs(collective, group.size, count)
    x, out = (Field(group, place, n, seed + 2) for seed, n in enumerate(counts))
    x.middle[:] = np.arange(counts[0]) % 17 + group.rank
    out.middle[:] = 0
    options: dict[str, Any] = {"root": root} if collective == "reduce" else {}
    if why == "mismatch":  # an algorithm in which rank 1 first hears of rank 0 alone
        options = {"algorithm": "recursive_doubling", "order": "any"}
    group.all_reduce(np.ones(9))
    if group.rank == 1:
        gate(lambda: (signs.give("inside"), signs.wait("refilled")), at)  # type: ignore[arg-type, return-value]
        result, _ = seconds(lambda: begin(group, collective, x.middle, out.middle, **options))
        signs.give("gone on")
        return repr(result) if ours(result) else RuntimeError(f"a call succeeded whose peer gave it up: {result!r}")
    if group.rank >= 2:  # of a mismatch: the ranks that make another call
        signs.wait("inside")
        raised(hocket.HocketError, group.all_gather, np.ones(5))
        signs.wait("gone on")
        return None
    x.start()
    out.start()
    kind: type[BaseException] = {
        "timeout": hocket.CollectiveTimeout,
        "mismatch": hocket.MismatchError,
        "operator": ZeroDivisionError,
        "interrupt": KeyboardInterrupt,
    }[why]
    if why == "operator":
        gate(lambda: (signs.wait("inside"), 1 // 0))  # type: ignore[arg-type, return-value]
    timeout = 0.7 if why == "timeout" else 60
    raised(kind, begin, group, collective, x.middle, out.middle, timeout=timeout, **options)
    x.refill()
    out.refill()
    signs.give("refilled")
    signs.wait("gone on")
    x.check()
    out.check()
    return None


def hold(own: Own, signs: Signs, size: int, *case: Any, interrupt: bool = False) -> None:
    world = own(size)
    world.start(give_up, signs, *case)
    if interrupt:
        signs.wait("inside")
        world.signal(0, signal.SIGINT)
    outcomes = world.finish(40)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


# Plain arrays are staged: only where a half of them is larger than the slots, which have up to 4 MiB where the
# second-level cache has, does anyone wait for a slow reader.
LARGE = 2**22  # elements: 16 MiB
PLACES = [("arena", SIZES[0], 0), ("arena", SIZES[1], 0), ("arena", SIZES[2], 1), ("plain", LARGE, 0)]


@pytest.mark.parametrize(("place", "count", "at"), PLACES)
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter"])
def test_arrays_given_up_by_timeout_stay(
    own: Own, signs: Signs, collective: str, place: str, count: int, at: int
) -> None:
    hold(own, signs, 2, collective, place, count, "timeout", at, 0)


@pytest.mark.parametrize(("place", "count", "at"), PLACES)
def test_a_slow_root_makes_no_sum_of_what_its_sender_took_back(
    own: Own, signs: Signs, place: str, count: int, at: int
) -> None:
    """The sender gives up and fills its input anew: the root raises, and does not return a sum of it."""
    hold(own, signs, 2, "reduce", place, count, "timeout", at, 1)


@pytest.mark.parametrize("why", ["interrupt", "mismatch", "operator"])
def test_arrays_given_up_by_another_error_stay(own: Own, signs: Signs, why: str) -> None:
    size = 4 if why == "mismatch" else 2
    hold(own, signs, size, "all_reduce", "arena", SIZES[1], why, 0, 0, interrupt=why == "interrupt")


# ---- rank 1 stopped by a signal --------------------------------------------------------------------------------------

ROOTS = {  # the root at each end, where there is one
    "all_reduce": [0],
    "all_gather": [0],
    "reduce_scatter": [0],
    "all_to_all": [0],
    "reduce": [0, 1],
    "broadcast": [0, 1],
    "gather": [0, 1],
    "scatter": [0, 1],
}


def over_and_over(group: Any, signs: Signs, collective: str, place: str, count: int, root: int) -> int:
    """Calls without end; returns how many succeeded. `timeout` is short on rank 0 only: it is the one that gives up."""
    counts = inputs(collective, group.size, count)
    x, out = (Field(group, place, n, seed + 2) for seed, n in enumerate(counts))
    x.middle[:] = np.arange(counts[0]) % 17 + group.rank
    out.middle[:] = 0
    options: dict[str, Any] = {"root": root} if len(ROOTS[collective]) > 1 else {}
    if collective in ("all_reduce", "reduce", "reduce_scatter"):
        options["op"] = "sum"
    timeout = 0.5 if group.rank == 0 else 60
    group.barrier()
    if group.rank == 0:
        x.start()
        out.start()
    signs.give(f"begun {group.rank}")
    done = 0
    try:
        while True:
            begin(group, collective, x.middle, out.middle, timeout=timeout, **options)
            group.barrier(timeout=timeout)  # so that nobody is ahead by more than this
            done += 1
    except hocket.CollectiveTimeout:
        pass
    except hocket.HocketError:
        if group.rank == 0:
            raise
    if group.rank == 1:
        signs.give("gone on")
        return done
    x.refill()
    out.refill()
    signs.give("refilled")
    signs.wait("gone on")
    x.check()
    out.check()
    return done


@pytest.mark.parametrize("place", ["arena", "plain", "offered"])
@pytest.mark.parametrize(("collective", "root"), [(name, root) for name in ROOTS for root in ROOTS[name]])
def test_a_stopped_rank_that_wakes_writes_nothing(
    own: Own, signs: Signs, collective: str, root: int, place: str
) -> None:
    """Stopped at whatever moment it is in: most of the time is that of moving 4 MiB. What is offered it reads from
    rank 0's own memory, when that has been filled anew."""
    world = own(2)
    if place == "offered":
        world.variables["HOCKET_PROTOCOL"] = "offered"
    stop_and_wake(world, signs, collective, "arena" if place == "arena" else "plain", SIZES[2], root)


@pytest.mark.parametrize(
    ("collective", "place"), [("broadcast", "plain"), ("broadcast", "arena"), ("all_gather", "plain")]
)
def test_what_was_on_its_way_over_a_link_is_not_received_in_place(signs: Signs, collective: str, place: str) -> None:
    """Stopped in the middle of sending 16 MiB, most of the time in that of a message: its rest comes after all."""
    world = World(2, "tcp")
    try:
        stop_and_wake(world, signs, collective, place, 2**22, 1)
    finally:
        world.close()


def stop_and_wake(world: World, signs: Signs, collective: str, place: str, count: int, root: int) -> None:
    """Twice: rank 1 is stopped, rank 0 gives up, and rank 1 goes on."""
    for turn in range(2):
        here = Signs(f"{signs.folder}/{turn}")
        Path(here.folder).mkdir()
        world.start(over_and_over, here, collective, place, count, root, fresh=True)
        for rank in range(2):
            here.wait(f"begun {rank}")
        world.signal(1, signal.SIGSTOP)
        stopped(world.processes[1].pid)
        here.wait("refilled")
        world.signal(1, signal.SIGCONT)
        outcomes = world.finish(40)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        assert outcomes[1] <= outcomes[0], "a call succeeded whose peer gave it up"
        world.group = ""
