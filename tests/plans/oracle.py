"""What every collective gives, said once more in plain NumPy, and data that show when it does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

from hocket.plans.algorithms import ALGORITHMS
from hocket.plans.collectives import COLLECTIVES
from hocket.plans.partition import bounds

Vectors = list[Any]

NAMES = sorted(ALGORITHMS)
ROOTED = [name for name in NAMES if COLLECTIVES[name[0]].rooted]
AFFINE = np.dtype([("a", np.uint64), ("b", np.uint64)])


def numbers(rng: np.random.Generator, count: int) -> Any:
    """Random 64-bit integers: a sum, however it wraps, shows what was added."""
    return rng.integers(0, 1 << 64, count, dtype=np.uint64)


def floats(rng: np.random.Generator, count: int) -> Any:
    """float32 of many magnitudes: their sum depends on the bracket."""
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)


def maps(rng: np.random.Generator, count: int) -> Any:
    """The maps x -> a x + b modulo 2^64, with a odd."""
    made = np.empty(count, AFFINE)
    made["a"], made["b"] = numbers(rng, count) | 1, numbers(rng, count)
    return made


def after(f: Any, g: Any) -> Any:
    """f after g: associative, and does not commute."""
    made = np.empty(len(f), AFFINE)
    made["a"], made["b"] = f["a"] * g["a"], f["a"] * g["b"] + f["b"]
    return made


def even(count: int, n: int) -> list[int]:
    """The sizes of n blocks of a vector."""
    return np.diff(bounds(count, n)).tolist()


def given(collective: str, n: int, count: int, root: int, make: Callable[[int], Any], sizes: Any = None) -> Vectors:
    """What each rank gives, for a vector of `count` elements in all."""
    spec = COLLECTIVES[collective]
    if spec.gives == "own":
        return [make(k) for k in (sizes or even(count, n))]
    if spec.transposed and sizes:
        return [make(sum(row)) for row in sizes]
    return [make(count) if spec.gives == "all" or rank == root else None for rank in range(n)]


def expected(collective: str, arrays: Vectors, root: int, op: Callable[[Any, Any], Any], sizes: Any = None) -> Vectors:
    """What each rank is to get."""
    n, spec = len(arrays), COLLECTIVES[collective]
    if spec.transposed:
        rows = sizes or [even(len(x), n) for x in arrays]
        blocks = [np.split(x, np.cumsum(row)[:-1]) for x, row in zip(arrays, rows, strict=True)]
        return [np.concatenate([blocks[i][r] for i in range(n)]) for r in range(n)]
    whole = {"every": lambda: reduce(op, arrays), "root": lambda: arrays[root], "owner": lambda: np.concatenate(arrays)}
    if spec.scans:
        sums = list(accumulate(arrays, op))
        return sums if spec.of == "until" else [None, *sums[:-1]]
    vector = whole[spec.of]()
    if spec.gets == "own":
        return np.split(vector, np.cumsum(sizes or even(len(vector), n))[:-1])
    return [vector if spec.gets == "all" or rank == root else None for rank in range(n)]


def same(got: Vectors, wanted: Vectors) -> bool:
    """Bit for bit."""
    pairs = zip(got, wanted, strict=True)
    return all((g is None) == (w is None) and (g is None or g.tobytes() == w.tobytes()) for g, w in pairs)
