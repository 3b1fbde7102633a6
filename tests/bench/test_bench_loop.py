"""What runs in every rank: data, oracle and timing, with a library that the tests make up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hocket.bench.peers.data import COLLECTIVES, TRAINING, Array, Task, expected, kind, partner, vector, wrong
from hocket.bench.peers.loop import buffers, measure, memory
from hocket.bench.peers.with_hocket import Hocket
from hocket.bench.sweep import Effort, task_for
from hocket.tuning.topology import Topology


class Alone:
    """A library for one rank. `sabotage` elements of every result are spoilt."""

    name, rank, size, front = "alone 1.0", 0, 1, False

    def __init__(self, sabotage: int = 0, lacks: bool = False) -> None:
        self.sabotage, self.lacks, self.calls = sabotage, lacks, 0

    def barrier(self) -> None:
        pass

    def empty(self, count: int, dtype: np.dtype[Any], memory: str) -> Array:
        return np.empty(count, dtype)

    def prepare(self, task: Task, x: Array, y: Array, root: int) -> Callable[[], None] | None:
        def call() -> None:
            self.calls += 1
            y[...] = x
            y[: self.sabotage] += 1

        return None if self.lacks else call

    def ran(self, task: Task) -> str:
        return "copy"

    def predicts(self, task: Task) -> float:
        return 3e-6


@pytest.mark.parametrize("in_place", [False, True])
def test_samples_are_timed_and_results_checked(in_place: bool) -> None:
    library = Alone()
    answer = measure(library, Task("all_reduce", 1000, in_place=in_place, times=5, warmup=2, batch=3, check=2))
    assert len(answer["seconds"]) == 5
    assert all(second > 0 for second in answer["seconds"])
    assert (answer["wrong"], answer["algorithm"], answer["predicted"]) == (0, "copy", 3e-6)
    assert library.calls == (5 + 2) * 3 + 2


def test_no_rank_goes_on_before_all_are_through() -> None:
    """They meet before and after the calls of a sample, and no input is written anew in between."""

    class Noting(Alone):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[int, float]] = []

        def prepare(self, task: Task, x: Array, y: Array, root: int) -> Callable[[], None] | None:
            self.x = x
            return super().prepare(task, x, y, root)

        def barrier(self) -> None:
            self.seen.append((self.calls, float(self.x[-1])))

    library = Noting()
    measure(library, Task("all_reduce", 1000, times=3, warmup=1, batch=2, check=0))
    assert [calls for calls, _ in library.seen] == [0, 2, 2, 4, 4, 6, 6, 8]
    inputs = [value for _, value in library.seen]
    assert inputs[::2] == inputs[1::2]
    assert len(set(inputs)) == 4


def test_what_does_not_count_is_timed_beside() -> None:
    """Of DDP's steps the bare module's, as many of them, in samples of their own."""
    library = Alone()
    answer = measure(library, Task("ddp", 0, times=3, warmup=1, batch=4, check=0))
    assert len(answer["bare"]) == len(answer["seconds"]) == 3
    assert min(answer["bare"]) > 0
    assert library.calls == 2 * (3 + 1) * 4
    assert measure(library, Task("barrier", 0, times=3))["bare"] == [0.0] * 3


def test_wrong_elements_are_counted() -> None:
    assert measure(Alone(sabotage=7), Task("all_reduce", 1000, times=1, check=2))["wrong"] == 14
    assert measure(Alone(sabotage=7), Task("all_reduce", 1000, times=1, check=0))["wrong"] == 0
    assert wrong(np.zeros(3), np.zeros(4)) == 4


def test_what_a_library_lacks_is_not_timed() -> None:
    assert measure(Alone(lacks=True), Task("all_reduce", 8)) == {"lacks": True}


def straightforward(task: Task, size: int, turn: int, root: int) -> list[Any]:
    """What every rank gets, the long way."""
    block = task.count // size
    own = block if task.collective.removesuffix("_object") in ("all_gather", "gather") else task.count
    x = [vector(task, rank, turn, own) for rank in range(size)]
    total = sum(x[1:], x[0])
    parts = [slice(rank * block, (rank + 1) * block) for rank in range(size)]
    joined = np.concatenate(x)
    at_root = lambda value: [value if rank == root else None for rank in range(size)]  # noqa: E731
    pairs = [partner(rank, size) for rank in range(size)]
    return {
        "all_reduce": [total] * size,
        "reduce": at_root(total),
        "reduce_scatter": [total[part] for part in parts],
        "broadcast": [x[root]] * size,
        "scatter": [x[root][part] for part in parts],
        "gather": at_root(joined),
        "all_gather": [joined] * size,
        "all_to_all": [np.concatenate([x[other][parts[rank]] for other in range(size)]) for rank in range(size)],
        "barrier": [None] * size,
        "send_recv": [None if pair is None else x[min(rank, pair)] for rank, pair in enumerate(pairs)],
        "scan": [np.sum(x[: rank + 1], axis=0, dtype=total.dtype) for rank in range(size)],
        "exscan": [None, *(np.sum(x[:rank], axis=0, dtype=total.dtype) for rank in range(1, size))],
    }[task.collective.removesuffix("_object")]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_oracle(name: str, size: int) -> None:
    task = Task(name, 0 if name == "barrier" else 24 * 53)
    for turn in range(2):
        root = turn % size
        for rank, want in enumerate(straightforward(task, size, turn, root)):
            got = expected(task, rank, size, turn, root)
            assert (got is None) == (want is None)
            if got is not None:
                np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint8", "int64", "complex64"])
@pytest.mark.parametrize("op", ["sum", "mean", "product", "max", "fmax"])
def test_nothing_in_the_oracle_rounds(dtype: str, op: str) -> None:
    """In the dtype as in float64, but for the one rounding of a mean and the wrapping of an integer's product."""
    task, size = Task("all_reduce", 500, dtype=dtype, op=op), 4
    wide = [vector(task, rank, 1, 500).astype(np.complex128) for rank in range(size)]
    functions = {"sum": np.add, "mean": np.add, "product": np.multiply, "max": np.maximum, "fmax": np.fmax}
    want = functions[op].reduce(wide)
    if op == "mean":
        want = want.real // size if kind(dtype).kind in "iu" else want / size
    got = expected(task, 0, size, 1, 0)
    assert got is not None
    assert got.dtype == kind(dtype)
    np.testing.assert_array_equal(got, (want if kind(dtype).kind == "c" else want.real).astype(kind(dtype)))


def test_ranks_and_positions_differ() -> None:
    task = Task("all_reduce", 1000)
    assert not np.array_equal(vector(task, 0, 0, 1000), vector(task, 1, 0, 1000))
    assert not np.array_equal(vector(task, 0, 0, 1000)[:256], vector(task, 0, 0, 1000)[256:512])


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
def test_in_place_a_part_is_a_rank_s_own(rank: int, front: bool) -> None:
    library = Alone()
    library.rank, library.size, library.front = rank, 3, front
    for name, part_first in (("all_gather", True), ("gather", True), ("scatter", False), ("reduce_scatter", False)):
        part, whole = buffers(library, Task(name, 12, in_place=True))[:: 1 if part_first else -1]
        assert (part.size, whole.size) == (4, 12)
        begins = (part.ctypes.data - whole.ctypes.data) // 4
        assert begins == (0 if front and name == "reduce_scatter" else 4 * rank)
    x, y = buffers(library, Task("all_reduce", 12, in_place=True))
    assert x is y
    x, y = buffers(library, Task("all_gather", 12))
    assert (x.size, y.size, np.shares_memory(x, y)) == (4, 12, False)


def test_small_calls_are_timed_in_a_row() -> None:
    effort = Effort()
    assert task_for("all_reduce", 4096, 2, effort).batch == task_for("all_gather", 8, 2, effort).batch == 32
    assert task_for("all_reduce", 4100, 2, effort).batch == 1
    assert task_for("barrier", 1 << 20, 2, effort).count == 0
    steps = [task_for(name, 8, 2, effort) for name in TRAINING]
    assert [(task.count, task.batch) for task in steps] == [(0, 8), (0, 1)]
    assert task_for("all_gather", 8, 4, effort).count == 4
    assert task_for("all_reduce", 8, 4, effort, dtype="bfloat16").count == 4


def test_memory_is_read() -> None:
    assert set(memory()) == {"Rss", "Pss_Anon", "Pss_Shmem"}
    assert memory()["Rss"] > 1 << 20


class Spread:
    """A group of four, as far as its name goes: two ranks on each of two hosts."""

    rank, size, barrier, topology = 0, 4, None, Topology.of([0, 0, 1, 1])


def test_the_algorithm_is_the_one_for_these_hosts() -> None:
    library = Hocket(Spread())  # type: ignore[arg-type]
    assert library.ran(Task("all_reduce", 1 << 20)) == "hierarchical_chain"
    assert library.ran(Task("all_reduce", 2)) == "one_shot"
    assert library.ran(Task("all_reduce", 2, algorithm="ring")) == "ring"
