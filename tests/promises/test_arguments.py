"""Numbers that come from NumPy, as they do in programs: they work as plain ones do, or are refused before anything is
sent; and the group is usable afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.launch import elsewhere
from moments import seconds
from worlds import World

Own = Callable[[int], World]

# Calls with plain numbers, and with NumPy's in their place. Each gives what both must give.
X = np.arange(6.0)
CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "root int64": (lambda g: g.broadcast(X + g.rank, root=1), lambda g: g.broadcast(X + g.rank, root=np.int64(1))),
    "root uint8": (lambda g: g.gather(X + g.rank, root=1), lambda g: g.gather(X + g.rank, root=np.uint8(1))),
    "root of reduce": (lambda g: g.reduce(X, root=1), lambda g: g.reduce(X, root=np.int32(1))),
    "root of scatter": (
        lambda g: g.scatter(X if g.rank == 1 else None, root=1),
        lambda g: g.scatter(X if g.rank == 1 else None, root=np.int64(1)),
    ),
    "sizes array": (
        lambda g: g.all_gather(X[: g.rank + 2], sizes=[2, 3]),
        lambda g: g.all_gather(X[: g.rank + 2], sizes=np.array([2, 3])),
    ),
    "sizes of numbers": (
        lambda g: g.reduce_scatter(X, sizes=[2, 4]),
        lambda g: g.reduce_scatter(X, sizes=[np.int64(2), np.uint16(4)]),
    ),
    "sizes int32": (
        lambda g: g.all_to_all(X, sizes=[5, 1]),
        lambda g: g.all_to_all(X, sizes=np.array([5, 1], "int32")),
    ),
    "sizes of scatter": (
        lambda g: g.scatter(X if g.rank == 0 else None, sizes=[6, 0]),
        lambda g: g.scatter(X if g.rank == 0 else None, sizes=np.array([6, 0])),
    ),
    "sizes of gather": (
        lambda g: g.gather(X[: g.rank + 2], sizes=(2, 3)),
        lambda g: g.gather(X[: g.rank + 2], sizes=np.array([2, 3], "uint8")),
    ),
    "async_op": (
        lambda g: g.all_reduce(X, async_op=True).wait(),
        lambda g: g.all_reduce(X, async_op=np.bool_(True)).wait(),
    ),
    "not async_op": (lambda g: g.all_reduce(X), lambda g: g.all_reduce(X, async_op=np.bool_(False))),
    "members": (
        lambda g: g.subgroup([1, 0]).all_reduce(X),
        lambda g: g.subgroup(np.array([1, 0])).all_reduce(X),
    ),
    "split": (
        lambda g: g.split(0, -g.rank).all_gather(np.array([g.rank])),
        lambda g: g.split(np.int64(0), np.int8(-g.rank)).all_gather(np.array([g.rank])),
    ),
    "empty": (
        lambda g: g.all_reduce(_filled(g.empty((2, 3), "float64"))),
        lambda g: g.all_reduce(_filled(g.empty(np.array([2, 3]), np.dtype("float64")))),
    ),
    "scalars": (lambda g: g.all_reduce([3.0]), lambda g: g.all_reduce([np.float64(3)])),
    "dst and src": (lambda g: _pass_on(g, 1, 0, 5), lambda g: _pass_on(g, np.int64(1), np.uint8(0), np.int16(5))),
    "op": (lambda g: g.all_reduce(X, op="max"), lambda g: g.all_reduce(X, op=np.str_("max"))),
    "timeout": (lambda g: g.all_reduce(X, timeout=9), lambda g: g.all_reduce(X, timeout=np.array(9.0))),
}


def _filled(x: np.ndarray) -> np.ndarray:
    x[:] = 2
    return x


def _pass_on(group: Any, one: Any, zero: Any, tag: Any) -> Any:
    if group.rank == 0:
        group.send(X, one, tag=tag)
        return group.recv(one, tag=tag)
    got = group.recv(zero, tag=tag)
    group.send(got * 2, zero, tag=tag)
    return got


def both(group: Any, name: str) -> None:
    plain, numpys = CALLS[name]
    for _ in range(3):  # later ones are remembered calls
        expected = plain(group)
        result, took = seconds(lambda: numpys(group))
        if isinstance(result, BaseException):  # then at once, and everywhere
            assert isinstance(result, (TypeError, ValueError)), repr(result)
            assert not isinstance(result, hocket.HocketError), repr(result)
            assert took < 2
        else:
            assert np.array_equal(result, expected)
            assert type(result) is type(expected)
        assert group.all_reduce(group.rank) == 1


@pytest.mark.parametrize("name", CALLS)
def test_numpys_numbers_as_arguments(own: Own, name: str) -> None:
    own(2).run(both, name, deadline=20)


BAD: dict[str, Callable[[Any], Any]] = {
    "root bool": lambda g: g.broadcast(X, root=True),
    "root numpy bool": lambda g: g.broadcast(X, root=np.bool_(True)),
    "root float": lambda g: g.reduce(X, root=np.float64(1)),
    "root array": lambda g: g.gather(X, root=np.array([0, 1])),
    "root none": lambda g: g.broadcast(X, root=None),
    "dst bool": lambda g: g.send(X, np.bool_(True)),
    "dst far": lambda g: g.send(X, np.int64(2**40)),
    "src float": lambda g: g.recv(np.float32(1)),
    "src negative": lambda g: g.recv(np.int64(-1)),
    "tag float": lambda g: g.send(X, 1, tag=0.5),
    "tag bool": lambda g: g.recv(1, tag=np.bool_(True)),
    "tag large": lambda g: g.send(X, 1, tag=2**63),
    "sizes floats": lambda g: g.reduce_scatter(X, sizes=np.array([2.5, 3.5])),
    "sizes bools": lambda g: g.reduce_scatter(X[:2], sizes=np.array([True, True])),
    "sizes two axes": lambda g: g.reduce_scatter(X, sizes=np.array([[3, 3]])),
    "sizes negative": lambda g: g.reduce_scatter(X, sizes=np.array([7, -1])),
    "sizes huge": lambda g: g.all_gather(X, sizes=[6, 2**62]),
    "sizes text": lambda g: g.reduce_scatter(X, sizes="33"),
    "sizes nan": lambda g: g.reduce_scatter(X, sizes=np.array([np.nan, 6])),
    "members twice": lambda g: g.subgroup(np.array([0, 0])),
    "members floats": lambda g: g.subgroup(np.array([0.0, 1.0])),
    "empty negative": lambda g: g.empty(np.int64(-2)),
    "empty float": lambda g: g.empty(2.5),
    "empty too large": lambda g: g.empty(2**61, "float64"),
    "order": lambda g: g.all_reduce(X, order=np.array(["same"])),
    "algorithm": lambda g: g.all_reduce(X, algorithm=np.array(["ring", "ring"])),
    "out is a list": lambda g: g.all_reduce(X, out=[0.0] * 6),
    "out overlaps": lambda g: g.all_gather(np.arange(12.0)[:6], out=np.broadcast_to(X, (2, 6)).reshape(-1)[::-1][:3]),
}


def refused(group: Any, name: str) -> tuple[str, str]:
    result, took = seconds(lambda: BAD[name](group))
    assert took < 2
    assert group.all_reduce(group.rank) == 1
    if group.rank == 0:  # also where the other has not been refused anything
        seconds(lambda: BAD[name](group))
    assert group.all_reduce(group.rank) == 1
    return type(result).__name__, str(result)


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_leaves_the_group_usable(own: Own, name: str) -> None:
    for kind, text in own(2).run(refused, name, deadline=20):
        assert kind in ("TypeError", "ValueError", "MemoryError"), (kind, text)
        assert text


def test_what_other_libraries_call_it_is_named() -> None:
    for name, here in elsewhere.NAMES.items():
        assert not hasattr(hocket.Group, name)
        assert hasattr(hocket.Group, here.partition("(")[0]), here
    assert not hasattr(hocket.Group, "__getattr__")  # with which it takes longer to find what there is, in each call
