"""Scans: what they promise beyond their sums, which test_collectives.py compares with NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from worlds import Worlds, raised

SEED = 7


def numbers(rank: int, count: int, dtype: str) -> np.ndarray:
    """Of many magnitudes: another bracket shows."""
    rng = np.random.default_rng((SEED, rank))
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-2, 3, count)).astype(dtype)


def bits(group: Any, dtype: str) -> None:
    """A rank's is that of the rank before, and its own; the last one's that of an all_reduce; long or short."""
    for count in (1, 1000, 300_000):
        x = numbers(group.rank, count, dtype)
        scan, before = group.scan(x), group.exscan(x)
        if dtype != "float16":  # each pass rounds it, and one fold is one pass
            assert scan.tobytes() == (x if before is None else before + x).tobytes()
        everyones = group.all_gather(scan.reshape(1, -1))
        assert group.rank == 0 or everyones[group.rank - 1].tobytes() == before.tobytes()
        assert everyones[-1].tobytes() == group.all_reduce(x).tobytes()
        for cut in (1, 17, 999):
            assert group.scan(x[:cut]).tobytes() == scan[:cut].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_bits(world: Worlds, size: int, dtype: str) -> None:
    world(size).run(bits, dtype)


def last_nonzero(a: Any, b: Any, out: Any) -> None:
    """The last that is not 0: associative, and does not commute."""
    out[...] = np.where(b != 0, b, a)


def operators(group: Any) -> None:
    n, rank = group.size, group.rank
    for algorithm in (None, "direct", "chain", "hillis_steele", "brent_kung"):
        for count in (5, 40_000):
            i = np.arange(count)
            inputs = [np.where((i + r) % 3 == 0, 0, i * n + r + 1) for r in range(n)]
            wanted, before = inputs[0], None
            for x in inputs[1 : rank + 1]:
                before, wanted = wanted, np.where(x != 0, x, wanted)
            for _ in range(2):
                assert (group.scan(inputs[rank], op=last_nonzero, algorithm=algorithm) == wanted).all()
                got = group.exscan(inputs[rank], op=last_nonzero, algorithm=algorithm)
                assert got is None if before is None else (got == before).all()
    # Logical ones give 0 or 1 also where there is one operand only.
    assert group.scan(np.array([5.0, 0.0]), op="land").tolist() == [1, 0]
    got = group.exscan(np.array([5, 0]), op="lor")
    assert got is None if rank == 0 else got.tolist() == [1, 0]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_operators_that_do_not_commute(world: Worlds, size: int) -> None:
    world(size).run(operators)


def the_first(group: Any) -> None:
    """It gets nothing, in whatever form; wrong use sends nothing."""
    rank = group.rank
    for _ in range(3):  # the short way too
        out = np.full(3, -1)
        got = group.exscan(np.arange(3) + rank, out=out)
        assert (got is None) == (rank == 0)
        sums = rank * np.arange(3) + sum(range(rank))
        assert out.tolist() == ([-1] * 3 if rank == 0 else sums.tolist())
        x = np.arange(3) + rank
        work = group.exscan(x, out=x, async_op=True)
        assert (work.wait() is None) == (rank == 0)
        assert x.tolist() == ([0, 1, 2] if rank == 0 else sums.tolist())
    for method in (group.scan, group.exscan):
        assert "divide by the number of ranks" in str(raised(ValueError, method, np.ones(3), op="mean"))
        assert "no algorithm 'ring'" in str(raised(ValueError, method, np.ones(3), algorithm="ring"))
    assert group.scan(1) == rank + 1


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_first_rank_has_none_before_it(world: Worlds, size: int) -> None:
    world(size).run(the_first)


def confused(group: Any) -> str:
    from hocket import MismatchError

    return str(raised(MismatchError, group.scan if group.rank else group.exscan, np.ones(3)))


def test_a_scan_is_no_exscan(world: Worlds) -> None:
    for text in world(2).run(confused, fresh=True):
        assert "exscan(float64[3], op='sum')" in text
        assert "called scan(float64[3], op='sum')" in text
