"""A call that looks like an earlier one takes the fast path. It must be the same call, and nothing else, each time."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

import hocket
from hocket import places, plans
from hocket.plans.algorithms import ALGORITHMS, one_shot, ring, two_shot
from worlds import Worlds

Array = np.ndarray


def fill(rank: int, turn: int, shape: tuple[int, ...], dtype: str = "i8") -> Array:
    return np.asarray(np.arange(np.prod(shape, dtype=int)) * 3 + 100 * rank + 7 * turn, dtype).reshape(shape)


def total(size: int, turn: int, shape: tuple[int, ...], dtype: str = "i8") -> Array:
    return np.sum([fill(rank, turn, shape, dtype) for rank in range(size)], axis=0, dtype=dtype)


def looks(group: Any) -> None:
    """One after the other, calls that differ in one thing; three times, so that all have been remembered."""
    shapes = [(), (0,), (1,), (7,), (3, 5), (5, 3), (2, 3, 4), (2, 2, 2, 2), (2, 2, 2, 2, 2), (70001,)]
    for turn in range(3):
        for shape in shapes:
            for dtype in ("i8", "i4", "f4", "f8"):
                x = fill(group.rank, turn, shape, dtype)
                want = total(group.size, turn, shape, dtype)
                before = x.copy()
                y = group.all_reduce(x)
                assert y.dtype == want.dtype
                assert y.shape == want.shape
                assert (y == want).all()
                assert (x == before).all()
                highest = group.all_reduce(x, "max")
                assert (highest == fill(group.size - 1, turn, shape, dtype)).all()
                out = np.empty_like(x)
                assert group.all_reduce(x, out=out) is out
                assert (out == want).all()
                assert (x == before).all()
                assert group.all_reduce(x, out=x) is x
                assert (x == want).all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_look_is_told_from_every_other(world: Worlds, size: int) -> None:
    world(size).run(looks)


def overlaps(group: Any) -> None:
    """The same shapes, but input and output apart, one, and overlapping by every distance."""
    for turn in range(3):
        for shift in (0, 1, 2, 5, 9, 10):
            for backwards in (False, True):
                memory = np.zeros(20, "i8")
                a, b = memory[:10], memory[shift : shift + 10]
                x, out = (b, a) if backwards else (a, b)
                x[:] = fill(group.rank, turn + shift, (10,))
                group.all_reduce(x, out=out)
                assert (out == total(group.size, turn + shift, (10,))).all(), (shift, backwards)


@pytest.mark.parametrize("size", [2, 3])
def test_memory_that_overlaps_is_not_taken_for_memory_that_does_not(world: Worlds, size: int) -> None:
    world(size).run(overlaps)


def not_plain(group: Any) -> None:
    """Arrays without a look between such that have one."""
    for turn in range(3):
        wide = np.zeros((6, 8), "f8")
        for x in (wide[:, ::2], wide[:, :4], wide.T[:4].T, np.asfortranarray(wide[:, :4]), wide[:, 4:].copy()):
            x[...] = fill(group.rank, turn, (6, 4), "f8")
            assert (group.all_reduce(x) == total(group.size, turn, (6, 4), "f8")).all()
            target = np.zeros((6, 8), "f8")[:, ::2]
            group.all_reduce(x, out=target)
            assert (target == total(group.size, turn, (6, 4), "f8")).all()
        fixed = fill(group.rank, turn, (4,))
        fixed.flags.writeable = False
        assert (group.all_reduce(fixed) == total(group.size, turn, (4,))).all()
        with pytest.raises(ValueError, match="read-only"):
            group.all_reduce(fill(group.rank, turn, (4,)), out=fixed)


def test_strided_and_read_only_arrays_in_between(world: Worlds) -> None:
    world(2).run(not_plain)


def changing_roots(group: Any) -> None:
    """Ranks that learn from the root what they get: it may give something else under the same look."""
    for turn in range(4):
        for root in range(group.size):
            for rows, dtype in ((1, "i4"), (2, "i8"), (3, "f4"), (2, "i8")):
                x = fill(root, turn, (rows * group.size, 2), dtype)
                part = group.scatter(x if group.rank == root else None, root=root)
                assert part.dtype == x.dtype
                assert (part == x[rows * group.rank :][:rows]).all()
                whole = group.broadcast(x if group.rank == root else None, root=root)
                assert whole.dtype == x.dtype
                assert (whole == x).all()
                joined = group.gather(part, root=root)
                assert (joined is None) == (group.rank != root)
                assert joined is None or (joined == x).all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_root_that_changes_its_mind(world: Worlds, size: int) -> None:
    world(size).run(changing_roots)


def others(group: Any) -> None:
    size = group.size
    for turn in range(3):
        x = fill(group.rank, turn, (2 * size, 3))
        everyone = [fill(rank, turn, (2 * size, 3)) for rank in range(size)]
        mine = slice(2 * group.rank, 2 * group.rank + 2)
        assert (group.reduce_scatter(x) == sum(everyone)[mine]).all()
        assert (group.all_gather(x) == np.concatenate(everyone)).all()
        assert (group.all_to_all(x) == np.concatenate([y[mine] for y in everyone])).all()
        assert group.reduce(x, root=size - 1) is None or (group.reduce(x, root=size - 1) == sum(everyone)).all()
        if group.rank != size - 1:
            group.reduce(x, root=size - 1)
        group.barrier()
        assert (group.all_reduce(x, np.fmax) == everyone[-1]).all()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_collective_takes_it(world: Worlds, size: int) -> None:
    world(size).run(others)


def slow_calls(group: Any) -> list[int]:
    """How many of many calls were prepared, in each of two rounds."""
    counts = []
    for _ in range(2):
        before = group.statistics()
        for count in (2, 7, 64, 256):
            for root in range(group.size):
                x = np.full(count, root, "f4")
                assert (group.broadcast(x, root=root, out=x) == root).all()
                group.reduce(x, root=root, out=np.empty_like(x))
        after = group.statistics()
        assert sum(after) - sum(before) == 32
        counts.append(after.slow_calls - before.slow_calls)
    return counts


def test_many_calls_are_remembered_side_by_side(world: Worlds) -> None:
    assert world(4).run(slow_calls, fresh=True) == [[32, 0]] * 4


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, n: int) -> Any:
        return ring.all_reduce(n)


def named(group: Any) -> tuple[dict[str | None, int], int, int]:
    """Calls that differ in algorithm and order only: how often which was run, and how many were prepared after the
    first round, without and with a callable that nothing can be kept for."""
    plan = hocket.plan("all_reduce", "naive", group.size)
    ways = [None, "one_shot", "two_shot", ring.all_reduce, plan]
    before = 0
    for turn in range(4):
        before = before or (turn and group.statistics().slow_calls)
        for way in ways:
            spelled = "".join(list(way)) if isinstance(way, str) else way  # equal, but another object each time
            for order in ("same", "any"):
                x = fill(group.rank, turn, (40,))
                assert (group.all_reduce(x, algorithm=spelled, order=order) == total(group.size, turn, (40,))).all()
    ran = {call.algorithm: call.calls for call in group.metrics().calls}
    slow = group.statistics().slow_calls - before
    for _ in range(3):
        group.all_reduce(x, algorithm=Unhashable())
    return ran, slow, group.statistics().slow_calls - before - slow


def test_calls_by_an_algorithm_are_remembered(world: Worlds) -> None:
    for ran, slow, unhashable in world(2).run(named, fresh=True):
        assert ran == {"one_shot": 16, "two_shot": 8, "all_reduce": 8, "naive": 8}  # one_shot is what is chosen
        assert (slow, unhashable) == (0, 3)


def nothing(n: int) -> Any:
    """No all-reduce."""
    yield plans.copy(plans.out(0), plans.inp(0))


def renamed(group: Any) -> None:
    """A name that is remembered is right and wrong in turns, changed in every way that a dictionary can be changed."""
    x, key, right = fill(group.rank, 0, (40,)), ("all_reduce", "mine"), one_shot.all_reduce
    changes: list[Callable[[Any], object]] = [
        partial(ALGORITHMS.__setitem__, key),
        lambda function: ALGORITHMS.update({key: function}),
        lambda function: ALGORITHMS.__ior__({key: function}),
        lambda function: (ALGORITHMS.pop(key), ALGORITHMS.setdefault(key, function)),
        lambda function: (ALGORITHMS.pop(key), gc.collect(), ALGORITHMS.setdefault(key, function)),
        partial(dict.__setitem__, ALGORITHMS, key),
    ]
    changes[0](right)
    try:
        for change in changes:
            change(right)
            for turn in range(3):
                before = group.statistics().slow_calls
                for async_op in (False, True):
                    y = group.all_reduce(x, algorithm="mine", async_op=async_op)
                    assert ((y.wait() if async_op else y) == total(group.size, 0, (40,))).all()
                assert turn == 0 or group.statistics().slow_calls == before
            change(nothing)
            for async_op in (False, True):
                with pytest.raises(hocket.PlanError, match="mine"):
                    group.all_reduce(x, algorithm="mine", async_op=async_op)
    finally:
        del ALGORITHMS[key]
    with pytest.raises(ValueError, match="no algorithm 'mine'"):
        group.all_reduce(x, algorithm="mine")


def test_a_remembered_name_that_stands_for_another_function_is_seen(world: Worlds) -> None:
    world(2).run(renamed, fresh=True)


def renamed_on_one(group: Any) -> None:
    """Both have remembered what the name stood for; to rank 1 it stands for something else now."""
    x, key = fill(group.rank, 0, (40,)), ("all_reduce", "mine")
    ALGORITHMS[key] = one_shot.all_reduce
    for _ in range(3):
        group.all_reduce(x, algorithm="mine")
    if group.rank == 1:
        ALGORITHMS[key] = two_shot.all_reduce
    group.all_reduce(x, algorithm="mine")


def differently_named(group: Any) -> None:
    """Both have remembered both names, and give another one now."""
    x = fill(group.rank, 0, (40,))
    for name in ("one_shot", "two_shot") * 2:
        group.all_reduce(x, algorithm=name)
    group.all_reduce(x, algorithm=("one_shot", "two_shot")[group.rank])


@pytest.mark.parametrize("differently", [renamed_on_one, differently_named])
def test_remembered_algorithms_that_differ_are_a_mismatch(world: Worlds, differently: Callable[[Any], None]) -> None:
    for outcome in world(2).outcomes(differently, fresh=True):
        assert isinstance(outcome, hocket.MismatchError), outcome


class Held(threading.Thread):
    """A thread that has been started, and does not get to run."""

    go = threading.Event()

    def run(self) -> None:
        self.go.wait()
        super().run()


def before_its_engine(group: Any) -> list[int]:
    """How many of the first queued calls were prepared, made while the thread that serves them has not begun."""
    thread, threading.Thread = threading.Thread, Held  # type: ignore[misc]
    try:
        for turn in range(4):
            x = fill(group.rank, turn, (40,))
            assert (group.all_reduce(x, async_op=True).wait() == total(group.size, turn, (40,))).all()
        slow = group.statistics().slow_calls
    finally:
        threading.Thread = thread  # type: ignore[misc]
        Held.go.set()
    last = [group.all_reduce(fill(group.rank, turn, (40,)), async_op=True) for turn in range(3)]
    assert all((work.wait() == total(group.size, turn, (40,))).all() for turn, work in enumerate(last))
    return [slow, group.statistics().slow_calls]


def test_queued_calls_are_remembered_before_there_is_somebody_to_serve_them(world: Worlds) -> None:
    assert world(2).run(before_its_engine, fresh=True) == [[1, 1]] * 2


def between_queued(group: Any) -> list[int]:
    """Blocking calls wait for their turn behind queued ones, also where they would take the fast path."""
    x = np.ones(4, "i8")
    group.all_reduce(x)
    seen = []
    for turn in range(20):
        works = [group.all_reduce(x * (turn + i), async_op=True) for i in range(3)]
        seen.append(int(group.all_reduce(x)[0]))
        seen += [int(work.wait()[0]) for work in works]
    return seen


def test_the_order_of_calls_is_kept_between_queued_and_short_ones(world: Worlds) -> None:
    want = [2 * n for turn in range(20) for n in (1, turn, turn + 1, turn + 2)]
    assert world(2).run(between_queued) == [want, want]


def persistent(group: Any) -> None:
    for out in (None, "same", "other"):
        x = np.zeros((3, 4), "i8")
        target = {None: None, "same": x, "other": np.empty_like(x)}[out]
        again = group.all_reduce_init(x, out=target)
        first = None
        for turn in range(4):
            x[...] = fill(group.rank, turn, (3, 4))
            result = again()
            assert (result == total(group.size, turn, (3, 4))).all()
            assert target is None or result is target
            assert first is None or result is first
            first = result
            group.all_reduce(np.ones(3))
    wide = np.zeros((4, 6), "f8")
    again = group.all_reduce_init(wide[:, ::2], "max", out=wide[:, 1::2])  # needs copies: prepared anew each time
    for turn in range(3):
        wide[:, ::2] = fill(group.rank, turn, (4, 3), "f8")
        again()
        assert (wide[:, 1::2] == fill(group.size - 1, turn, (4, 3), "f8")).all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_persistent_form_is_the_same_call_made_again(world: Worlds, size: int) -> None:
    world(size).run(persistent)


def spelled(group: Any) -> None:
    """However its arguments are given, a call that is right is made, and one that is wrong is told so as ever."""
    x = np.ones(3, "i4")
    for _ in range(3):
        assert (group.all_reduce(x, op="sum", out=None) == group.size).all()
        assert (group.all_reduce(x=x, timeout=None, async_op=False, algorithm=None) == group.size).all()
        assert (group.broadcast(x=x, root=group.size - 1, out=x) == 1).all()
        assert (group.all_gather(x, sizes=None) == 1).all()
        assert group.barrier(timeout=None) is None
        assert (group.all_reduce(x, timeout=5.0, out=np.empty_like(x)) == group.size).all()
        with pytest.raises(TypeError, match="unexpected keyword argument 'sizes'"):
            group.all_reduce(x, sizes=None)
        with pytest.raises(TypeError, match="unexpected keyword argument 'tag'"):
            group.broadcast(x, tag=0)
        with pytest.raises(TypeError, match="multiple values for argument 'x'"):
            group.all_reduce(x, x=x)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            group.all_to_all()
        with pytest.raises(TypeError, match="positional argument"):
            group.barrier(x)
        with pytest.raises((TypeError, ValueError), match="root"):
            group.broadcast(x, root=2**70)


def test_every_spelling_of_a_call(world: Worlds) -> None:
    world(2).run(spelled)


@pytest.mark.parametrize("name", ["all_reduce", "gather", "barrier", "send"])
def test_a_method_with_a_short_way_looks_like_a_function(name: str) -> None:
    method = getattr(hocket.Group, name)
    assert "timeout" in inspect.signature(method).parameters
    assert inspect.isroutine(method)
    assert method.__name__ == name
    assert method.__doc__


def broken(group: Any) -> str:
    x = np.ones(4, "f4")
    again = group.all_reduce_init(x)
    again()
    group.all_reduce(x)
    with pytest.raises(hocket.MismatchError) as caught:
        group.all_reduce(x, "max" if group.rank else "sum")
    for call in (again, lambda: group.all_reduce(x), group.barrier):
        with pytest.raises(hocket.GroupBroken) as after:
            call()
        assert after.value.__cause__ is caught.value
    return str(caught.value)


def test_a_broken_group_is_broken_on_the_short_way_too(world: Worlds) -> None:
    for text in world(2).run(broken, fresh=True):
        assert "op='sum'" in text
        assert "op='max'" in text


def mismatch_on_the_short_way(group: Any) -> None:
    x, y = np.ones(4, "f4"), np.ones(5, "f4")
    group.all_reduce(x)
    group.all_reduce(y)
    with pytest.raises(hocket.MismatchError) as caught:
        group.all_reduce(y if group.rank else x)
    assert "float32[4]" in str(caught.value)
    assert "float32[5]" in str(caught.value)


@pytest.mark.parametrize("size", [2, 3])
def test_different_calls_are_found_where_all_ranks_take_the_short_way(world: Worlds, size: int) -> None:
    world(size).run(mismatch_on_the_short_way, fresh=True)


def lopsided(group: Any) -> None:
    """Ranks whose vectors are of very different lengths cut their messages alike."""
    size = group.size
    for big in (10, 10_000, 100_000):
        rows = [big if other == 0 else 1 for other in range(size)] if group.rank == 0 else [2] * size
        x = np.arange(sum(rows)) + 1000 * group.rank
        came = group.all_to_all(x, sizes=rows)
        want = [np.arange(2) + 2 * group.rank + 1000 * other for other in range(1, size)]
        begin = 0 if group.rank == 0 else big + group.rank - 1
        first = np.arange(begin, begin + (big if group.rank == 0 else 1))
        assert (came == np.concatenate([first, *want])).all()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_to_all_between_long_and_short_vectors(world: Worlds, size: int) -> None:
    world(size).run(lopsided)


def entered(call: Callable[[], Any]) -> list[str]:
    """The functions of Python's that are entered while `call` lasts; but for those that a rank asks where it is, when
    its wait lasts, as it may on a busy machine."""
    seen: list[str] = []

    def note(frame: FrameType | None, event: str, _: object) -> None:
        name = frame.f_code.co_name if frame else ""
        while frame is not None and frame.f_code.co_filename != places.__file__:
            frame = frame.f_back
        if event == "call" and frame is None:
            seen.append(name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def python_functions(group: Any) -> list[int]:
    x, out = np.ones(7), np.empty(7)
    calls = [partial(group.all_reduce, x, out=out), partial(group.all_reduce, x), group.barrier]
    counts = []
    for call in calls:
        counts += [len(entered(call)) > 10, len(entered(call))]
    persistent = group.all_reduce_init(x)
    persistent()
    return [*counts, len(entered(persistent))]


def test_a_remembered_call_enters_no_function_of_pythons(world: Worlds) -> None:
    assert world(2).run(python_functions, fresh=True) == [[True, 0, True, 0, True, 0, 0]] * 2
