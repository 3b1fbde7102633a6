"""What goes beyond send and recv: both at once, probing, and waiting for some of many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hocket
from worlds import Worlds, raised


def ring(group: Any) -> None:
    n, rank = group.size, group.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    for count in (0, 3, 400_000):  # the last much longer than what is kept on the way
        x = np.arange(count) + rank
        for source in (left, None):
            got = group.sendrecv(x, right, source)
            assert (got == np.arange(count) + left).all()
            out = np.zeros(count, x.dtype)
            assert group.sendrecv(x, right, source, out=out, tag=rank, recv_tag=left) is out
            assert (out == np.arange(count) + left).all()
        assert group.sendrecv(x, right, left, out=x) is x
        assert (x == np.arange(count) + left).all()
    wide = np.zeros((6, 6))
    wide[:, 0] = rank
    group.sendrecv(wide[:, 0], right, left, out=wide[:, 1])
    assert (wide[:, 1] == left).all()
    square = np.arange(9.0).reshape(3, 3) + rank
    group.sendrecv(square, right, left, out=square.T)
    assert (np.arange(9.0).reshape(3, 3) + left == square.T).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_send_and_receive_at_once(world: Worlds, size: int) -> None:
    world(size).run(ring)


def refused(group: Any) -> None:
    other = 1 - group.rank
    raised(ValueError, group.sendrecv, np.ones(3), 2, other)
    raised(TypeError, group.sendrecv, np.ones(3), other, other, tag="x")
    raised(TypeError, group.sendrecv, {"a": 1}, other, other)
    fixed = np.ones(3)
    fixed.flags.writeable = False
    raised(ValueError, group.sendrecv, np.ones(3), other, other, out=fixed)
    group.barrier()
    if group.rank == 0:  # what is late is given up: the next receive gets the next message
        raised(hocket.CollectiveTimeout, group.sendrecv, np.ones(3), other, other, timeout=0.05)
    else:
        assert (group.recv(other) == 1).all()
    group.barrier()
    assert (group.sendrecv(np.full(2, group.rank), other, other) == other).all()


def test_what_is_wrong_leaves_nothing_behind(world: Worlds) -> None:
    world(2).run(refused)


def probing(group: Any) -> None:
    n, rank = group.size, group.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    assert group.iprobe(tag=5) is None
    group.barrier()
    group.send(np.zeros((2, rank), "f4"), right, tag=5)
    for source in (None, left):
        seen = group.probe(source, tag=5)
        assert seen == (left, 5, 8 * left, np.dtype("f4"), (2, left))
        assert group.iprobe(source, tag=5) == seen
    got = group.recv(seen.source, tag=seen.tag, out=np.empty(seen.shape, seen.dtype))
    assert got.shape == (2, left)
    assert group.iprobe(tag=5) is None
    assert "probe(src=any, tag=5)" in str(raised(hocket.CollectiveTimeout, group.probe, tag=5, timeout=0.05))
    raised(ValueError, group.probe, n)
    group.send(np.float64(rank), right, tag=6)
    message, source = group.recv(tag=6, return_source=True)
    assert (message, source) == (left, left)
    for options in ({"out": np.zeros(())}, {}):
        group.send(np.float64(rank), right, tag=6)
        got = group.recv(None, tag=6, return_source=True, **options)
        assert (got.source, float(got.message), got.message is options.get("out", got.message)) == (left, left, True)
    raised(ValueError, group.recv, async_op=True, return_source=True)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_has_come_is_known_before_it_is_received(world: Worlds, size: int) -> None:
    world(size).run(probing)


def waiting(group: Any) -> None:
    n, rank = group.size, group.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    sums = [group.all_reduce(np.full(100, i), async_op=True) for i in range(4)]
    assert [x[0] for x in hocket.wait_all(sums)] == [i * n for i in range(4)]
    coming = [group.recv(left, tag=tag, async_op=True) for tag in range(3)]
    raised(hocket.CollectiveTimeout, hocket.wait_any, coming, timeout=0.02)
    group.barrier()
    group.send(np.array([20]), right, tag=2)
    assert hocket.wait_any(coming)[0] == 2  # those that are not done go on
    group.barrier()
    group.send(np.array([0]), right, tag=0)
    place, got = hocket.wait_any([coming[0], coming[1]])
    assert (place, got.tolist()) == (0, [0])
    group.send(np.array([10]), right, tag=1)
    assert [int(x[0]) for x in hocket.wait_all(coming, timeout=10)] == [0, 10, 20]
    mixed = [group.recv(left, tag=9, async_op=True), group.all_reduce(np.ones(3), async_op=True)]
    assert hocket.wait_any(mixed)[0] == 1
    group.barrier()
    group.send(np.ones(1), right, tag=9)
    hocket.wait_all(mixed)
    assert hocket.wait_all([]) == []
    raised(ValueError, hocket.wait_any, [])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_some_of_many(world: Worlds, size: int) -> None:
    world(size).run(waiting)


def in_vain(group: Any) -> None:
    """A message whose own deadline passes ends the wait for any; of several errors the first in the list is raised,
    when all have been waited for."""
    late = group.recv(tag=1, timeout=0.05, async_op=True)
    place_or_error = raised(hocket.CollectiveTimeout, hocket.wait_any, [late], timeout=10)
    assert "recv(src=any, tag=1)" in str(place_or_error)
    works = [group.recv(tag=tag, timeout=0.05, async_op=True) for tag in (2, 3)]
    good = group.all_reduce(np.ones(2), async_op=True)
    assert "tag=2" in str(raised(hocket.CollectiveTimeout, hocket.wait_all, [works[0], good, works[1]]))
    assert good.done()
    assert works[1].done()


@pytest.mark.parametrize("size", [1, 2])
def test_deadlines(world: Worlds, size: int) -> None:
    world(size).run(in_vain)
