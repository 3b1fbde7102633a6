"""What is sent in a checked call, and what must arrive: exact in its dtype, different for every rank and position.

Sizes are those of nccl-tests: a *vector* is what an all-reduce takes, an all-gather or a gather yields on its root,
a reduce-scatter or a scatter takes apart, and one rank gives in an all-to-all. A *block* is one rank's part of it.

    collective       x (given)   y (got)
    all_gather       block       vector
    gather           block       vector, on the root
    reduce_scatter   vector      block
    scatter          vector      block
    all others       vector      vector

What ends in _object moves the bytes of the same arrays as one pickled object for each rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

OBJECTS = ("broadcast_object", "scatter_object", "gather_object", "all_gather_object")
SCANS = ("scan", "exscan")
GIVES_BLOCK = ("all_gather", "gather", "all_gather_object", "gather_object")
GETS_BLOCK = ("reduce_scatter", "scatter", "scatter_object")
ROOTED = ("broadcast", "reduce", "scatter", "gather", *OBJECTS[:3])
REDUCES = ("all_reduce", "reduce", "reduce_scatter", *SCANS)
COLLECTIVES = (
    *("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "scatter", "gather", "all_to_all"),
    *("barrier", "send_recv", *SCANS, *OBJECTS),
)
# Steps of training, which torch alone has, and how many of them are one sample. Only that counts which they take beyond
# the steps of the bare network, alone on its rank.
TRAINING = {"ddp": 8, "fsdp2": 1}
BARE = {"ddp": "layers", "fsdp2": "transformer"}
# Those of hocket's operators that torch.distributed has a name for.
TORCH_OPS = ("sum", "mean", "product", "min", "max", "band", "bor", "bxor")
UFUNCS = {"sum": "add", "product": "multiply", "min": "minimum", "max": "maximum"}
UFUNCS |= {"band": "bitwise_and", "bor": "bitwise_or", "bxor": "bitwise_xor"}
UFUNCS |= {"land": "logical_and", "lor": "logical_or", "lxor": "logical_xor"}

# A prime, so that no block begins where another one does within the pattern.
PERIOD = 251


@dataclass(frozen=True)
class Task:
    """What a library is asked to time; it travels to its ranks as JSON.

    `count` are the elements of the vector. One sample is `batch` calls in a row, of which the mean counts; `times`
    samples are kept, after `warmup` others. `check` more calls are compared with what NumPy says. `memory` and
    `algorithm` are hocket's own.
    """

    collective: str
    count: int
    dtype: str = "float32"
    op: str = "sum"
    in_place: bool = False
    times: int = 20
    warmup: int = 2
    batch: int = 1
    check: int = 1
    memory: str = "private"
    form: str = "call"
    algorithm: str = ""

    @property
    def rooted(self) -> bool:
        return self.collective in ROOTED


def kind(name: str) -> np.dtype[Any]:
    """The dtype of that name. bfloat16 is there where ml_dtypes is installed."""
    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    return np.dtype(name)


def ufunc(op: str) -> np.ufunc:
    """The NumPy function of an operator: of a name of hocket's, or of one of NumPy's."""
    return getattr(np, UFUNCS.get(op, op))  # type: ignore[no-any-return]


def block(count: int, rank: int, size: int) -> slice:
    """A rank's part of `count` elements, which `size` divides where it matters."""
    return slice(rank * (count // size), (rank + 1) * (count // size))


def vector(task: Task, rank: int, turn: int, count: int) -> Array:
    """What `rank` gives in the checked call number `turn`: integers so small that no reduction of them rounds."""
    values = np.arange(PERIOD) * 5 + rank * 3 + turn * 7
    values = values % 2 + 1 if task.op == "product" else values % 8
    return np.resize(values.astype(kind(task.dtype)), count)


def reduction(task: Task, size: int, turn: int) -> Array:
    """The vector that all ranks' vectors reduce to, in the order of ranks."""
    patterns = [vector(task, rank, turn, PERIOD) for rank in range(size)]
    dtype = patterns[0].dtype
    if task.op != "mean":
        return np.resize(reduce(lambda a, b: ufunc(task.op)(a, b).astype(dtype), patterns), task.count)
    wide = np.result_type(dtype, np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    total = reduce(np.add, (pattern.astype(wide) for pattern in patterns))
    mean = total // size if dtype.kind in "iu" else total / wide.type(size)
    return np.resize(mean.astype(dtype), task.count)


def expected(task: Task, rank: int, size: int, turn: int, root: int) -> Array | None:
    """What `rank` must get; None where it gets nothing."""
    name, own = task.collective.removesuffix("_object"), block(task.count, rank, size)
    if name in ("barrier", *TRAINING) or (name in ("reduce", "gather") and rank != root):
        return None
    if name in SCANS:
        ranks = rank + (name == "scan")
        return reduction(task, ranks, turn) if ranks else None
    if name in REDUCES:
        whole = reduction(task, size, turn)
        return whole[own] if name == "reduce_scatter" else whole
    if name in ("broadcast", "scatter"):
        whole = vector(task, root, turn, task.count)
        return whole[own] if name == "scatter" else whole
    if name in GIVES_BLOCK:
        return np.concatenate([vector(task, r, turn, task.count // size) for r in range(size)])
    if name == "all_to_all":
        return np.concatenate([vector(task, r, turn, task.count)[own] for r in range(size)])
    pair = partner(rank, size)
    return None if pair is None else vector(task, min(rank, pair), turn, task.count)


def partner(rank: int, size: int) -> int | None:
    """With whom a rank plays ping-pong: 0 with 1, 2 with 3, ... An odd one out has nobody."""
    other = rank ^ 1
    return other if other < size else None


def wrong(got: Array, want: Array) -> int:
    """How many elements differ; all of them where not even the number is right."""
    return int(np.count_nonzero(got != want)) if got.shape == want.shape else want.size
