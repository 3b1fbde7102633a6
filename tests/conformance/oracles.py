"""What the tests feed the collectives with, and what NumPy says must come out.

Data depend on the rank and on the position, and every reduction of them is exact in their dtype (integers use their
full range and wrap), so that results are compared bit by bit, whatever the order of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hocket.arrays.ops import BFLOAT16, DTYPES, NAMES
from hocket.plans.algorithms import names

Array = np.ndarray
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "scan", "exscan")
SCANS = ("scan", "exscan")
ROOTED = ("reduce", "broadcast", "scatter", "gather")
JOINING = ("gather", "all_gather")
SPLITTING = ("scatter", "reduce_scatter", "all_to_all")

# Every algorithm is proved, and the engine knows none from another: those that are asked for by name only, and ask
# nothing new of it, are tried with a part of the cases.
SAMPLED = ("recursive_halving", "circulant", "bruck", "double_binary_tree", "torus", "brent_kung")

EVEN_ONLY = ("all_to_all", "bruck")  # takes no `sizes`

_UFUNCS = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
}


def swept(collective: str) -> list[str]:
    """The algorithms that are tried with every case."""
    return [name for name in names(collective) if name not in SAMPLED]


def pairs(collective: str) -> list[tuple[np.dtype, str]]:
    """The dtypes and operators that it takes: of one that reduces nothing, each dtype once."""
    if collective not in REDUCING:
        return [(dtype, "sum") for dtype in DTYPES]
    return [(dtype, op) for dtype, op in PAIRS if op != "mean" or collective not in SCANS]


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind in "fc" or dtype == BFLOAT16


def makes_sense(op: str, dtype: np.dtype) -> bool:
    if op in ("band", "bor", "bxor"):
        return not is_float(dtype)
    if op in ("min", "max"):
        return dtype.kind != "c"
    return op != "mean" or dtype.kind != "b"


PAIRS = [(dtype, op) for dtype in DTYPES for op in NAMES if makes_sense(op, dtype)]


@lru_cache(maxsize=4096)
def data(dtype: np.dtype, op: str, rank: int, count: int) -> Array:
    """`count` elements of `rank`, read-only, fit for `op`."""
    i = np.arange(count, dtype=np.int64)
    if dtype.kind == "b":
        x = (i + rank) % 3 == 0
    elif op in ("land", "lor", "lxor"):
        x = ((i * 5 + rank * 3 + 2) % 4 // 2 * (i % 3 + 2)).astype(dtype)
    elif is_float(dtype):
        x = _floats(dtype, op, rank, i)
    elif op == "mean":
        x = ((i * 3 + rank * 5) % 13 - (0 if dtype.kind == "u" else 6)).astype(dtype)  # no wrap before the division
    else:
        x = (i * 0x9E3779B97F4A7C1 + rank * 0x3C6EF372FE94F82 + 1).astype(dtype)
    x.flags.writeable = False
    return x


def _floats(dtype: np.dtype, op: str, rank: int, i: Array) -> Array:
    if op == "product":
        units = np.array([1, -1, 2, 0.5], np.complex128) * (1j if dtype.kind == "c" and rank % 2 else 1)
        x = units[(i * 7 + rank * 3 + i // 4) % 4]
        return x.astype(dtype) if dtype.kind == "c" else x.real.astype(dtype)
    x = ((i * 3 + rank * 5) % 7 - 3).astype(dtype)
    return x + dtype.type(1j) * ((i + rank * 2) % 5 - 2).astype(dtype) if dtype.kind == "c" else x


def fold(op: str, arrays: Sequence[Array]) -> Array:
    """The reduction of the arrays, left to right, in their own dtype."""
    total = arrays[0].copy()
    if op in ("land", "lor", "lxor"):
        total = (total != 0).astype(total.dtype)
    for x in arrays[1:]:
        total = _UFUNCS["sum" if op == "mean" else op](total, x).astype(total.dtype)
    return _divided(total, len(arrays)) if op == "mean" else total


def _divided(total: Array, n: int) -> Array:
    if total.dtype.kind == "c":  # NumPy would multiply with the reciprocal
        real = total.real.dtype
        return (total.view(real) / real.type(n)).view(total.dtype)
    if is_float(total.dtype):
        return (total / total.dtype.type(n)).astype(total.dtype)
    return (np.sign(total) * (np.abs(total) // n)).astype(total.dtype)


def rows_of(total: int, size: int) -> list[int]:
    """`total` rows over `size` ranks as evenly as can be."""
    return [total // size + (rank < total % size) for rank in range(size)]


def cuts(sizes: Sequence[int]) -> list[slice]:
    ends = np.cumsum(sizes).tolist()
    return [slice(end - k, end) for end, k in zip(ends, sizes, strict=True)]


def expect(
    collective: str,
    inputs: Sequence[Any],
    *,
    op: str = "sum",
    root: int = 0,
    sizes: Sequence[int] | Sequence[Sequence[int]] | None = None,
) -> list[Any]:
    """The result of every rank, None where it has none.

    `inputs` are all ranks' arrays; of scatter only the root's matters. `sizes` are the rows per rank; of all_to_all one
    list for each rank.
    """
    n = len(inputs)

    def only_root(value: Array) -> list[Any]:
        return [value if rank == root else None for rank in range(n)]

    if collective == "all_reduce":
        return [fold(op, inputs)] * n
    if collective == "reduce":
        return only_root(fold(op, inputs))
    if collective in SCANS:
        sums = [fold(op, inputs[: rank + 1]) for rank in range(n)]
        return sums if collective == "scan" else [None, *sums[:-1]]
    if collective == "broadcast":
        return [inputs[root]] * n
    if collective in JOINING:
        joined = np.concatenate([np.atleast_1d(x) for x in inputs])
        return [joined] * n if collective == "all_gather" else only_root(joined)
    if collective == "all_to_all":
        tables = sizes or [[len(inputs[0]) // n] * n] * n
        blocks = [[x[cut] for cut in cuts(table)] for x, table in zip(inputs, tables, strict=True)]  # type: ignore[arg-type]
        return [np.concatenate([blocks[src][rank] for src in range(n)]) for rank in range(n)]
    whole = inputs[root] if collective == "scatter" else fold(op, inputs)
    return [whole[cut] for cut in cuts(sizes or [len(whole) // n] * n)]  # type: ignore[arg-type]


def agree(got: Any, expected: Any, *what: object) -> None:
    """Same kind, dtype, shape and bits, or an AssertionError that says `what` it was about."""
    if expected is None:
        assert got is None, f"{what}: expected None, got {got!r}"
        return
    assert isinstance(got, np.ndarray), f"{what}: expected an array, got {got!r}"
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (
        f"{what}: expected {expected.dtype}{expected.shape}, got {got.dtype}{got.shape}"
    )
    if got.dtype.kind == "c":  # the signs of a product's zeros depend on the order of operands: -0 + 0 is 0
        got, expected = got + got.dtype.type(0), expected + expected.dtype.type(0)
    if got.tobytes() != expected.tobytes():
        wrong = np.flatnonzero(got.reshape(-1) != expected.reshape(-1))
        at = int(wrong[0]) if len(wrong) else -1
        raise AssertionError(
            f"{what}: {len(wrong)} of {got.size} elements differ, first at {at}: "
            f"got {got.reshape(-1)[at]!r}, expected {expected.reshape(-1)[at]!r}"
        )
