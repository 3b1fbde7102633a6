"""Arrays in shared memory: collectives read them where they lie, and nothing else is different about them."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from oracles import swept

from hocket.plans import copy, out, reduce, tmp
from hocket.run.arena import Arena
from worlds import SIZES, Worlds

COUNTS = (0, 1, 3, 9, 1000, 70001, 1 << 19)


def mixed(group: Any, algorithm: str) -> None:
    """Arena and private buffers in every mixture across ranks and sides, in place and not."""
    n = group.size
    for count in COUNTS:
        want = np.arange(count) * (n * (n + 1) // 2)
        for mix in range(4):
            x, out = (
                group.empty(count, "i8") if (group.rank + mix) % k == 0 else np.empty(count, "i8") for k in (2, 3)
            )
            x[:] = np.arange(count) * (group.rank + 1)
            assert group.all_reduce(x, out=out, algorithm=algorithm) is out
            assert (out == want).all(), (count, mix)
            assert (x == np.arange(count) * (group.rank + 1)).all()
            group.all_reduce(x, out=x, algorithm=algorithm)
            assert (x == want).all(), (count, mix, "in place")


@pytest.mark.parametrize("size", SIZES)
def test_views_and_staged_messages_in_any_mixture(world: Worlds, size: int) -> None:
    for algorithm in swept("all_reduce"):
        world(size).run(mixed, algorithm)


def crossed(n: int) -> Any:
    """Of two ranks: rank 1 reads what rank 0 has, and writes its own to where that lies."""
    yield copy(tmp(1, 0), out(0, 0))
    yield copy(out(0, 0), out(1, 0))
    yield copy(tmp(0, 0), tmp(1, 0))
    yield reduce(out(0, 0), tmp(0, 0)), reduce(out(1, 0), tmp(1, 0))


def read_first(group: Any) -> None:
    for count in COUNTS:
        x = group.empty(count, "i8")
        for turn in range(20):
            x[:] = np.arange(count) * (group.rank + 1) + turn
            group.all_reduce(x, out=x, algorithm=crossed)
            assert (x == np.arange(count) * 3 + 2 * turn).all(), (count, turn)


def test_what_is_put_overwrites_nothing_that_its_rank_has_yet_to_read(world: Worlds) -> None:
    world(2).run(read_first)


def overwritten(group: Any) -> None:
    """What is sent as a view may be overwritten as soon as the call returns: the peers must have read it."""
    x = group.empty(1 << 18, "i8")
    for turn in range(20):
        x[:] = turn
        got = group.broadcast(x if group.rank == turn % group.size else None, root=turn % group.size)
        x[:] = -1
        assert (got == turn).all()
        x[:] = turn + group.rank
        joined = group.all_gather(x)
        x[:] = -1
        assert (joined.reshape(group.size, -1) == turn + np.arange(group.size)[:, None]).all()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_view_is_read_before_its_call_returns(world: Worlds, size: int) -> None:
    world(size).run(overwritten)


def other_collectives(group: Any) -> None:
    n = group.size
    for rows in (1, 5000):
        x = group.empty((n * rows, 3), "i8")
        x[...] = np.arange(x.size).reshape(x.shape) + 7 * group.rank
        for name in ("all_gather", "gather", "reduce_scatter", "all_to_all", "reduce", "broadcast", "scatter"):
            there, here = getattr(group, name)(x), getattr(group, name)(np.array(x))
            assert (there is None) == (here is None)
            assert there is None or (there == here).all(), name
        whole = group.empty((n * rows, 3), "i8")  # in place, as a part of the whole
        own = whole[rows * group.rank :][:rows]
        own[...] = group.rank
        group.all_gather(own, out=whole)
        assert (whole.reshape(n, -1) == np.arange(n)[:, None]).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_collective_takes_views(world: Worlds, size: int) -> None:
    world(size).run(other_collectives)


def memory_is_used_anew(group: Any) -> None:
    a = group.empty((3, 4), "bfloat16")
    place, part = a.ctypes.data, a[1:]
    del a
    other = group.empty(3)
    assert other.ctypes.data != place  # a view of the first one is alive
    del part
    gc.collect()
    assert group.empty(5).ctypes.data == place
    with pytest.raises(MemoryError):
        group.empty(1 << 60, "u1")
    with pytest.raises(TypeError):
        group.empty(3, "datetime64[s]")
    for _ in range(2000):  # would not fit if it were not freed
        group.empty(1 << 32, "u1")[:: 1 << 31] = 1


def test_memory_is_free_with_the_last_view_of_it(world: Worlds) -> None:
    world(2).run(memory_is_used_anew)


def outlives(group: Any) -> int:
    sub = group.subgroup(list(range(group.size)))
    x = sub.empty(1000, "i8")
    x[:] = group.rank
    sub.close()
    del sub
    gc.collect()
    return int(x.sum())


def test_an_array_outlives_its_group(world: Worlds) -> None:
    assert world(2).run(outlives) == [0, 1000]


def test_the_gaps_of_an_arena_grow_together_again() -> None:
    backing = np.zeros(64 * 4096, "u1")
    arena = Arena(backing.ctypes.data, backing.nbytes, backing, lambda begin, nbytes: None)
    rng = np.random.default_rng(seed := 20240611)
    alive: list[np.ndarray] = []
    for turn in range(2000):
        if alive and rng.random() < 0.5:
            del alive[rng.integers(len(alive))]
        else:
            try:
                alive.append(arena.empty(int(rng.integers(0, 5 * 4096)), "u1"))
            except MemoryError:
                alive.clear()
                continue
            alive[-1][:] = turn % 251
        spans = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in alive)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), seed
    alive.clear()
    gc.collect()
    assert arena.empty(backing.nbytes, "u1").nbytes == backing.nbytes
