"""What a failed call leaves in its arrays: inputs as they were, and the output too, or the error says that it is not.

In most of these tests a rank has so little time for its call that the deadline passes somewhere in the middle of it, at
another place each time, in a group that is made for this one call. What is compared is every byte of the arrays.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import hocket
from hocket.errors import TOUCHED
from moments import Signs, gate, gated, last, seconds, stopped
from worlds import Died, World, Worlds, raised

COUNT = 2**20  # elements of float32: 4 MiB
GIVES_PART = ("all_gather", "gather")
GETS_PART = ("reduce_scatter", "scatter")
REDUCES = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
COLLECTIVES = [*REDUCES, "broadcast", "all_gather", "gather", "scatter", "all_to_all"]
IN_PLACE = ["all_reduce", "reduce", "scan", "exscan", "broadcast", "all_to_all"]
PLACES = ["plain", "arena", "strided", "partly"]
CASES = [("plain", "call"), ("arena", "call"), ("arena", "async"), ("plain", "persistent"), ("partly", "async")]
CASES += [("strided", "call")]
WHOLE = ("all_reduce", "reduce", "reduce_scatter")  # small ones are folded in one pass, when all is there


class Arrays(NamedTuple):
    """What a rank gives to a call, and what it gets its result in; the memory of each, with what lies beside it."""

    x: Any
    out: Any
    memories: tuple[Any, Any]

    @staticmethod
    def of(group: Any, collective: str, place: str, in_place: bool, count: int = COUNT) -> Arrays:
        part = count // group.size
        given = _array(group, place, part if collective in GIVES_PART else count)
        got = given if in_place else _array(group, place, part if collective in GETS_PART else count)
        if place == "partly" and collective not in (*GIVES_PART, *GETS_PART):  # the output begins within the input
            whole = np.empty(count + 99, np.float32)
            given, got = (whole[:-99], whole), (whole[99:], whole)
        made = Arrays(given[0], got[0], (given[1], got[1]))
        made.fill(group.rank)
        return made

    def fill(self, rank: int) -> None:
        for seed, memory in enumerate(self.memories):
            memory[...] = np.arange(memory.size).reshape(memory.shape) % (97 + seed) + rank + 1

    def bits(self) -> list[bytes]:
        return [memory.tobytes() for memory in self.memories]

    @property
    def apart(self) -> bool:
        return not np.shares_memory(self.memories[0], self.memories[1])


def _array(group: Any, place: str, count: int) -> tuple[Any, Any]:
    if place == "strided":
        whole = np.empty((count, 2), np.float32)
        return whole[:, 0], whole
    whole = (group.empty if place == "arena" else np.empty)(count + 64, np.float32)
    return whole[32:-32], whole


def call(group: Any, collective: str, form: str, root: int, a: Arrays, **options: Any) -> Any:
    """One call, in one of its forms."""
    timeout = options.pop("timeout", 60.0)
    if collective in ROOTED:
        options["root"] = root
    x = a.x if collective not in ("broadcast", "scatter") or group.rank == root else None
    if form == "persistent":
        group_timeout, group.timeout = group.timeout, timeout
        made = getattr(group, f"{collective}_init")(x, out=a.out, **options)
        try:
            return made()
        finally:
            group.timeout = group_timeout
    method = partial(getattr(group, collective), x, out=a.out, timeout=timeout, **options)
    return method(async_op=True).wait() if form == "async" else method()


def judge(error: BaseException, before: list[bytes], a: Arrays, protect: bool) -> bool:
    """Whether the output was changed; AssertionError where that breaks a promise."""
    after = a.bits()
    changed = before[1] != after[1]
    if a.apart:
        assert before[0] == after[0], "the input was changed"
    if protect:
        assert not changed, "a protected output was changed"
    if isinstance(error, hocket.HocketError):
        assert error.out_touched or not changed, f"the output was changed, and not a word of it: {error}"
        assert not (protect and error.out_touched), f"a protected output is said to be touched: {error}"
        assert (TOUCHED in str(error)) == error.out_touched, str(error)
    return changed


def late(group: Any, collective: str, protect: bool, seed: int) -> None:
    """Calls of which each has a deadline that passes somewhere in its middle, on one rank."""
    draw, usual = random.Random(seed), 0.0
    for place, form in CASES:
        for in_place in sorted({False, collective in IN_PLACE}):
            part, root, hurried = group.split(0), draw.randrange(group.size), draw.randrange(group.size)
            a = Arrays.of(part, collective, place, in_place)
            made = partial(call, part, collective, form, root, a, protect=protect)
            usual = usual or seconds(made)[1]
            a.fill(part.rank)
            before = a.bits()
            last(part, hurried)  # whose deadline may pass at once, and end what others are in
            share = draw.random()  # on all ranks, which draw the same
            timeout = max(1e-5, usual * share) if group.rank == hurried else 60.0
            error, _ = seconds(partial(made, timeout=timeout))
            if isinstance(error, BaseException):
                judge(error, before, a, protect)
            part.close()


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_call_whose_deadline_passes_in_the_middle(world: Worlds, collective: str, protect: bool) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")
    world(2).run(late, collective, protect, seed)


def without_one(group: Any, collective: str, protect: bool) -> list[bool]:
    """Calls to which the last rank does not come, so that the others have got what there is when they give up."""
    changes = []
    for place, form in CASES:
        for in_place in sorted({False, collective in IN_PLACE}):
            part = group.split(0)
            if part.rank < part.size - 1:
                a = Arrays.of(part, collective, place, in_place, 3 * 2**12)
                before = a.bits()
                made = partial(call, part, collective, form, 0, a, timeout=0.15, protect=protect)
                changes.append(judge(raised(hocket.HocketError, made), before, a, protect))
            group.barrier()
            part.__exit__(ValueError, ValueError(), None)
    return changes


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_call_that_a_rank_does_not_come_to(world: Worlds, collective: str, protect: bool) -> None:
    changes = [change for rank in world(3).run(without_one, collective, protect) for change in rank]
    assert any(changes) == (not protect and collective not in WHOLE)


# ---- by name: the deterministic ones ---------------------------------------------------------------------------------


def other_calls(group: Any) -> None:
    """A mismatch that shows before anything moves: nothing is touched, nor said to be."""
    for collective in COLLECTIVES:
        for form in ("call", "async", "persistent"):
            part = group.split(0)
            a = Arrays.of(part, collective, "plain", collective in IN_PLACE, 2**12)
            before = a.bits()
            error = raised(hocket.MismatchError, call, part, collective, form, 0, a) if part.rank else None
            if error is None:
                raised(hocket.MismatchError, part.barrier)
            else:
                judge(error, before, a, False)
                if collective in IN_PLACE:
                    assert not error.out_touched, str(error)
            part.close()


def test_a_mismatch_that_shows_before_anything_moves_touches_nothing(world: Worlds) -> None:
    world(2).run(other_calls)


def by_operator(group: Any, place: str, protect: bool) -> None:
    """The operator of the last rank raises in the middle of a call: in its third block."""
    for collective in REDUCES[:-1]:  # in an exscan the last rank folds nothing
        part = group.split(0)
        raises = part.rank == part.size - 1
        a = Arrays.of(part, collective, place, collective in IN_PLACE, 3 * 2**18)
        before = a.bits()
        gate((lambda: 1 // 0) if raises else None, 5)  # type: ignore[arg-type, return-value]
        made = partial(call, part, collective, "call", part.size - 1, a, op=gated, protect=protect)
        error, _ = seconds(made)
        if isinstance(error, BaseException):  # to a rank that gives alone, the call may be over
            changed = judge(error, before, a, protect)
            assert isinstance(error, (hocket.HocketError, ZeroDivisionError)), (collective, error)
            again = raised(hocket.GroupBroken, part.barrier)
            assert not again.out_touched
            assert TOUCHED not in str(again)
        if raises:
            assert isinstance(error, ZeroDivisionError), error
            assert changed == (not protect and place != "strided"), collective
            if sys.version_info >= (3, 11):
                assert getattr(error, "__notes__", []) == ([f"hocket: {TOUCHED}"] if changed else [])
        part.close()


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("place", ["plain", "arena", "strided"])
def test_an_operator_that_raises_in_the_middle(world: Worlds, place: str, protect: bool) -> None:
    """Its own error comes through as it is, with a note where something was touched."""
    world(3).run(by_operator, place, protect)


def gone(group: Any, signs: Signs, collective: str, place: str, form: str, protect: bool) -> None:
    """Rank 1 is stopped, or killed, at whatever moment it is in."""
    timeout = 1.0 if group.rank == 0 else 60.0
    a = Arrays.of(group, collective, place, collective in IN_PLACE)
    before: list[bytes] = []

    def once() -> None:
        group.barrier(timeout=timeout)
        a.fill(group.rank)
        before[:] = a.bits()
        call(group, collective, form, 0, a, timeout=timeout, protect=protect)

    once()
    signs.give(f"begun {group.rank}")
    try:
        while True:
            once()
    except hocket.HocketError as error:
        if group.rank == 0:
            if "barrier" not in str(error):
                judge(error, before, a, protect)
            signs.give("judged")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize(
    ("collective", "place", "form"),
    [
        ("all_reduce", "plain", "call"),
        ("all_reduce", "arena", "async"),
        ("broadcast", "arena", "persistent"),
        ("all_gather", "plain", "async"),
        ("reduce_scatter", "strided", "call"),
        ("all_to_all", "plain", "persistent"),
    ],
)
def test_a_rank_that_is_killed_or_stopped_in_the_middle(
    own: Callable[[int], World], signs: Signs, collective: str, place: str, form: str, protect: bool, number: int
) -> None:
    world = own(2)
    world.start(gone, signs, collective, place, form, protect)
    for rank in range(2):
        signs.wait(f"begun {rank}")
    world.signal(1, number)
    if number == signal.SIGSTOP:
        stopped(world.processes[1].pid)
        signs.wait("judged")
        world.signal(1, signal.SIGCONT)
    outcome = world.finish(40)[0]
    assert outcome is None, outcome


# ---- results ---------------------------------------------------------------------------------------------------------


def results(group: Any) -> None:
    """A protected call gives what any other gives, in every place and form, whatever way it comes to the core."""
    for place in PLACES:
        for collective in COLLECTIVES:
            for form in ("call", "async", "persistent"):
                for in_place in sorted({False, collective in IN_PLACE}):
                    for root in range(group.size) if collective in ROOTED else [0]:
                        got = []
                        for turn in range(6):
                            a = Arrays.of(group, collective, place, in_place, 12 * group.size)
                            call(group, collective, form, root, a, protect=turn % 3 == 1)
                            got.append(a.bits())
                        assert got.count(got[0]) == 6, (place, collective, form, in_place, root)
    fast = group.statistics().fast_calls
    x = np.full(5, group.rank, np.int64)
    for turn in range(9):
        assert group.all_reduce(x, out=x, protect=True) is x
        assert (x == sum(range(group.size)) * group.size**turn).all()
    assert group.statistics().fast_calls - fast >= 8


@pytest.mark.parametrize("size", [1, 2, 3])
def test_results_are_the_same(world: Worlds, size: int) -> None:
    world(size).run(results)


def sizes_and_rows(group: Any, torch: Any) -> None:
    """Uneven parts, what a rank learns, elements of several fields, tensors."""
    n, rank = group.size, group.rank
    sizes = [2 + r for r in range(n)]
    out = np.zeros(sum(sizes))
    group.all_gather(np.full(sizes[rank], rank + 1.0), sizes=sizes, out=out, protect=True)
    assert (out == np.repeat(np.arange(n) + 1.0, sizes)).all()
    got = np.zeros(n * sizes[rank])
    group.all_to_all(np.repeat(np.arange(n) * 1.0, sizes), sizes=sizes, out=got, protect=True)
    assert (got == rank).all()
    mine = np.zeros(sizes[rank])
    group.scatter(out if rank == 0 else None, sizes=sizes, out=mine, protect=True)
    assert (mine == rank + 1).all()
    kind = np.dtype([("value", "f4"), ("rank", "i4")])
    pairs = np.array([(rank * 2.0, rank)] * 7, kind)
    group.all_reduce(pairs, _highest, out=pairs, protect=True)
    assert (pairs["rank"] == n - 1).all()
    tensor = torch.full((3, 5), 1.0 + rank)
    assert group.all_reduce(tensor, out=tensor, protect=True) is tensor
    assert (tensor == n * (n + 1) / 2).all()
    again = group.all_reduce_init(tensor, protect=True)
    assert again() is again()
    assert (again() == n * n * (n + 1) / 2).all()


def _highest(a: Any, b: Any, out: Any) -> None:
    out[:] = np.where(a["value"] > b["value"], a, b)


def test_uneven_sizes_fields_and_tensors(world: Worlds, torch: Any) -> None:
    world(3).run(_with_torch)


def _with_torch(group: Any) -> None:
    import torch

    sizes_and_rows(group, torch)


def untold(group: Any) -> None:
    """A persistent call's result is the caller's, also where it came without `out`."""
    for protect in (False, True):
        part = group.split(0)
        x = np.arange(2.0**17) + part.rank
        made = part.all_gather_init(x, protect=protect)
        result = made()
        want = result.copy()
        x += 1
        if part.rank == 0:
            part.timeout = 0.15
            error = raised(hocket.CollectiveTimeout, made)
            changed = (result != want).any()
            assert changed == (not protect) == error.out_touched
        group.barrier()
        part.__exit__(ValueError, ValueError(), None)


def test_the_result_of_a_persistent_call_is_the_callers(world: Worlds) -> None:
    world(2).run(untold)


# ---- who says it -----------------------------------------------------------------------------------------------------


def said(group: Any) -> list[bool]:
    """Whether each of these groups, and its parts, leave an output as it was to which a rank's own part is copied at
    once, and the others' parts never come."""
    assert not group.protect
    raised(TypeError, group.all_reduce, np.ones(3), protect="yes")
    kept = []
    for variable, given, asked in (("1", None, None), ("1", False, None), ("0", True, None), ("1", None, False)):
        os.environ["HOCKET_PROTECT"] = variable
        os.environ["TORCHELASTIC_RUN_ID"] += "x"
        whole = hocket.init(protect=given)
        part = whole.split(0)
        assert part is not None
        assert part.protect == whole.protect
        out = np.zeros((3, 9))
        if part.rank < 2:
            error = raised(
                hocket.CollectiveTimeout, part.all_gather, np.ones((1, 9)), out=out, protect=asked, timeout=0.5
            )
            kept.append(not out.any())
            assert error.out_touched != kept[-1]
        group.barrier()
        part.__exit__(ValueError, ValueError(), None)
        whole.close()
    os.environ["HOCKET_PROTECT"] = "maybe"
    error = raised(hocket.RendezvousError, hocket.init)
    assert 'HOCKET_PROTECT is "maybe"; it is 1, or 0' in str(error)
    return kept


def test_a_group_protects_if_it_is_told_to(own: Callable[[int], World]) -> None:
    assert own(3).run(said) == [[True, False, True, False]] * 2 + [[]]


# ---- messages --------------------------------------------------------------------------------------------------------


def letter(group: Any) -> None:
    """Rank 1 sends 16 MiB, and gives up in the middle, since rank 0 takes it only then."""
    out = np.full(2**22, -1.0, np.float32)
    for strided in (False, True):
        part = group.split(0)
        if part.rank == 1:
            work = part.send(np.ones(2**22, np.float32), 0, async_op=True)
            part.barrier()
            raised(hocket.CollectiveTimeout, work.wait, 0.01)
        else:
            memory = np.full((2**22, 2), -1.0, np.float32)[:, 0] if strided else out
            part.barrier()
            group.barrier()
            error = raised(hocket.HocketError, part.recv, 1, out=memory)
            assert (memory != -1).any() == error.out_touched == (not strided)
            assert (TOUCHED in str(error)) == error.out_touched
        if part.rank == 1:
            group.barrier()
        part.close()
    wrong = np.full(3, -1.0)
    if group.rank == 1:
        group.send(np.ones(4), 0)
    else:
        error = raised(hocket.MismatchError, group.recv, 1, out=wrong)
        assert (wrong == -1).all()
        assert not error.out_touched


def test_a_message_that_is_given_up_in_the_middle(world: Worlds) -> None:
    world(2).run(letter)


def test_a_wait_that_times_out_tells_that_the_call_may_write(own: Callable[[int], World]) -> None:
    own(2).run(waits_alone)


def waits_alone(group: Any) -> None:
    x, y = np.ones(5), np.ones(5)
    if group.rank == 0:
        first = group.all_reduce(x, out=x, async_op=True)
        assert raised(hocket.CollectiveTimeout, first.wait, 0.05).out_touched
        second = group.all_reduce(y, out=y, protect=True, async_op=True)
        assert not raised(hocket.CollectiveTimeout, second.wait, 0.05).out_touched
        assert raised(hocket.CollectiveTimeout, hocket.wait_any, [second, first], 0.01).out_touched
        group.send(x, 1)
        assert (first.wait() == 2).all()
        assert (second.wait() == 2).all()
    else:
        group.recv(0)
        group.all_reduce(x)
        group.all_reduce(y)


def cut_short(group: Any, path: Path) -> tuple[bool, bool]:
    """Rank 1 dies while its message is copied, at a byte that there is no more. What rank 0 is told comes not from that
    but from something else, which has ended the group at that moment."""
    out = np.zeros(1 << 16)
    if group.rank == 1:
        with path.open("wb+") as file:
            file.truncate(out.nbytes)
            x = np.frombuffer(mmap.mmap(file.fileno(), out.nbytes))
            x[:] = np.arange(1, len(x) + 1)
            file.truncate(out.nbytes // 2)
        group.send(x[:1], 0)
        group.recv(0, out=out[:1])
        group.send(x, 0)
    group.recv(1, out=out[:1])
    out[:] = 0

    def ended(**_: Any) -> None:
        raise hocket.GroupBroken("it has ended")

    group.send(out[:1], 1)
    group._calls.require_usable = ended
    error = raised(hocket.GroupBroken, group.recv, 1, out=out)
    return error.out_touched, bool(out.any())


def test_a_message_that_is_read_while_it_is_written_may_be_cut_short(
    own: Callable[[int], World], tmp_path: Path
) -> None:
    """Where it has begun to come in the moment that a receive waits for it; else `out` is as it was, as is told."""
    told, dead = own(2).outcomes(cut_short, tmp_path / "x")
    assert isinstance(dead, Died)
    assert told in ((True, True), (False, False))
