"""What type checkers know of calls: `test_types.py` has mypy read this. It is never run."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from typing_extensions import assert_type

import hocket
from hocket import Envelope, Group, Received, Work
from hocket.calls.dispatch import Persistent
from hocket.calls.messages import Message

Floats: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def results(group: Group, x: Floats, flag: bool) -> None:
    assert_type(group.rank, int)
    assert_type(group.size, int)
    assert_type(group.all_reduce(x), Floats)
    assert_type(group.all_reduce(x, "max", order="any", timeout=3, out=x), Floats)
    assert_type(group.all_reduce(x, np.hypot, async_op=False), Floats)
    assert_type(group.all_reduce(x, async_op=True), Work[Floats])
    assert_type(group.all_reduce(x, async_op=True).wait(), Floats)
    assert_type(group.all_reduce(x, out=x, protect=True), Floats)
    assert_type(group.broadcast(x, protect=None), Floats)
    assert_type(group.protect, bool)
    assert_type(hocket.PeerLost().out_touched, bool)
    assert_type(group.all_reduce(x, async_op=flag), Any)
    assert_type(group.all_reduce(3), int)
    assert_type(group.all_reduce(3.0), float)
    assert_type(group.all_reduce(np.float32(3)), np.float32)
    assert_type(group.reduce(x, root=1), Floats | None)
    assert_type(group.reduce_scatter(x, sizes=[1, 2]), Floats)
    assert_type(group.scan(x), Floats)
    assert_type(group.exscan(x), Floats | None)
    assert_type(group.exscan(x, async_op=True), Work[Floats | None])
    assert_type(group.broadcast(x), Floats)
    assert_type(group.broadcast(), Any)
    assert_type(group.scatter(x), Floats)
    assert_type(group.all_gather(x), Floats)
    assert_type(group.all_gather(3), Array)
    assert_type(group.gather(x), Floats | None)
    assert_type(group.all_to_all(x, async_op=True), Work[Floats])
    assert_type(group.barrier(), None)
    assert_type(group.barrier(async_op=True), Work[None])
    assert_type(group.all_reduce_init(x, protect=True), Persistent)


def messages(group: Group, x: Floats) -> None:
    assert_type(group.send(x, 1, async_op=True), Message)
    assert_type(group.recv(1), Array)
    assert_type(group.recv(1, out=x), Floats)
    assert_type(group.recv(1, async_op=True), Message)
    assert_type(group.recv(return_source=True), Received)
    assert_type(group.recv(return_source=True).source, int)
    assert_type(group.probe(), Envelope)
    assert_type(group.iprobe(), Envelope | None)
    assert_type(group.gather_object(x), list[Any] | None)
    assert_type(group.all_gather_object(x), list[Any])
    works = [group.all_reduce(x, async_op=True), group.scan(x, async_op=True)]
    assert_type(hocket.wait_all(works), list[Floats])
    assert_type(hocket.wait_any(works), tuple[int, Floats])


def wrong(group: Group, x: Floats) -> None:
    group.all_reduce(x, "summ")  # type: ignore[call-overload]
    group.all_reduce(x, order="some")  # type: ignore[call-overload]
    group.all_reduce(x, protect="yes")  # type: ignore[call-overload]
    group.all_reduce(x, rooot=3)  # type: ignore[call-overload]
    group.broadcast(x, root="first")  # type: ignore[call-overload]
    group.rank = 3  # type: ignore[misc]
