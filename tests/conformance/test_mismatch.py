"""The same call made differently on two ranks is a MismatchError on every rank: no hang, and no wrong number."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import hocket
from moments import last
from worlds import Worlds, raised

TIMEOUT = 20.0  # that long the ranks would wait for each other, if they did not see the difference


class Call(NamedTuple):
    """A call that every rank of 2 or 3 could make, as plain data: method, dtype and shape of the input, options."""

    method: str
    dtype: str = "float32"
    shape: tuple[int, ...] = (6,)
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, group: Any) -> Any:
        options = dict(self.options)
        if self.method == "barrier":
            return group.barrier()
        if self.method in ("send", "recv"):
            raise AssertionError("these are no collectives")
        x = np.ones(self.shape, self.dtype)
        if options.get("sizes") == "mine":  # all_gather: as many rows as the list says
            options["sizes"] = [1, 2, 3][: group.size]
            x = x[: options["sizes"][group.rank]]
        elif options.get("sizes") == "mine, reversed":
            options["sizes"] = [1, 2, 3][: group.size][::-1]
            x = x[: options["sizes"][group.rank]]
        return getattr(group, self.method)(x, **options)


def call(method: str, dtype: str = "float32", shape: tuple[int, ...] = (6,), **options: Any) -> Call:
    return Call(method, dtype, shape, tuple(options.items()))


ALL = (
    "all_reduce",
    "reduce",
    "broadcast",
    "scatter",
    "gather",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
)
KNOWING = tuple(method for method in ALL[:-1] if method != "scatter")  # in scatter only the root says what it is about
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("reduce", "broadcast", "scatter", "gather")

# What differs -> the two calls, and a word of each that the message must hold.
OTHER_COLLECTIVE = [(call(a), call(b), a, b) for i, a in enumerate(ALL) for b in ALL[i + 1 :]]
OTHER_OP = [
    (call(m, op="sum"), call(m, op=op), "'sum'", f"'{op}'") for m in REDUCING for op in ("max", "mean", "product")
] + [
    (call("all_reduce", "int32", op="band"), call("all_reduce", "int32", op="land"), "'band'", "'land'"),
    (call("all_reduce", op=np.fmax), call("all_reduce", op="max"), "fmax", "'max'"),
    (call("all_reduce", op=np.fmax), call("all_reduce", op=np.fmin), "fmax", "fmin"),
]
OTHER_DTYPE = [
    (call(method, a), call(method, b), a, b)
    for method in KNOWING
    for a, b in (("float32", "int32"), ("float64", "float32"))
] + [
    (call("all_reduce", a), call("all_reduce", b), a, b)
    for a, b in (
        ("int64", "uint64"),
        ("float64", "complex64"),
        ("int8", "bool"),
        ("float16", "uint16"),
        ("int64", "float64"),
    )
]
OTHER_COUNT = [
    (call(method, shape=(6,)), call(method, shape=(shape,)), "6" if method not in ("gather", "all_gather") else "", "")
    for method in KNOWING
    for shape in (12, 0)
] + [
    (call("all_reduce", shape=(100_000,)), call("all_reduce", shape=(100_001,)), "100000", "100001"),
    (call("all_reduce", shape=(1,)), call("all_reduce", shape=(500_000,)), "[1]", "500000"),
    (call("all_reduce", "float32", shape=(8,)), call("all_reduce", "float64", shape=(4,)), "float32[8]", "float64[4]"),
]
OTHER_ROOT = [(call(method, root=0), call(method, root=1), "root=0", "root=1") for method in ROOTED]
OTHER_SIZES = [
    (call(method, sizes="mine"), call(method, sizes="mine, reversed"), "[1, 2", ", 1]")
    for method in ("gather", "all_gather")
] + [
    (call("all_gather", shape=(2,)), call("all_gather", shape=(2,), sizes=(2, 2)), "all_gather", "[2, 2]"),
]
OTHER_ALGORITHM = [
    (call("all_reduce", algorithm=a), call("all_reduce", algorithm=b), a or "all_reduce", b)
    for a, b in (
        ("ring", "two_shot"),
        ("one_shot", "naive"),
        (None, "binomial_tree"),
        ("binomial_tree", "recursive_doubling"),
    )
] + [
    (call("broadcast", algorithm="direct"), call("broadcast", algorithm="binomial_tree"), "direct", "binomial_tree"),
    (call("all_gather", algorithm="direct"), call("all_gather", algorithm="ring"), "direct", "ring"),
    (call("all_reduce", order="same"), call("all_reduce", order="any"), "all_reduce", "any"),
]
TABLE = {
    "collective": OTHER_COLLECTIVE,
    "op": OTHER_OP,
    "dtype": OTHER_DTYPE,
    "count": OTHER_COUNT,
    "root": OTHER_ROOT,
    "sizes": OTHER_SIZES,
    "algorithm": OTHER_ALGORITHM,
}


def differ(group: Any, usual: Call, other: Call, odd: int) -> tuple[str, str]:
    """The kind and the text of the first error. A rank whose part of the call was over before the others came (the root
    of a broadcast) may get it out of the next one. Nobody differs while others may be still in the call before."""
    group.all_reduce(1)
    last(group, odd)
    try:
        (other if group.rank == odd else usual)(group)
        group.barrier()
    except hocket.HocketError as error:
        first = error
    else:
        raise AssertionError(f"rank {group.rank}: no error")
    for again in (group.barrier, lambda: group.all_reduce(1)):
        with pytest.raises(hocket.GroupBroken) as caught:
            again()
        assert caught.value.__cause__ is first
        assert str(first) in str(caught.value)
    return type(first).__name__, str(first)


def show(part: object) -> str:
    if isinstance(part, Call):
        options = ",".join(f"{key}={getattr(value, '__name__', value)}" for key, value in part.options)
        return f"{part.method}[{part.dtype}{list(part.shape)}{options}]"
    return "" if isinstance(part, str) else str(part)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("what", TABLE)
def test_every_pair_of_different_calls(world: Worlds, what: str, size: int) -> None:
    for usual, other, one, two in TABLE[what]:
        if size != 2 and dict(other.options).get("sizes") == (2, 2):
            continue
        for odd in (0, size - 1):
            name = f"{show(usual)} against {show(other)} on rank {odd} of {size}"
            for rank, (kind, text) in enumerate(
                world(size).run(differ, usual, other, odd, fresh=True, timeout=TIMEOUT)
            ):
                assert kind == "MismatchError", f"{name}: rank {rank} got {kind}: {text}"
                assert one in text, f"{name}: {one} is not in: {text}"
                assert two in text, f"{name}: {two} is not in: {text}"


def calls_in_order(group: Any, swapped: bool) -> None:
    calls = [lambda: group.all_reduce(np.ones(4)), group.barrier]
    for make in calls[::-1] if swapped else calls:
        make()


def other_order(group: Any) -> str:
    return str(raised(hocket.MismatchError, calls_in_order, group, group.rank == 1))


@pytest.mark.parametrize("size", [2, 3])
def test_the_same_calls_in_another_order(world: Worlds, size: int) -> None:
    for text in world(size).run(other_order, fresh=True):
        assert "all_reduce" in text
        assert "barrier" in text


def count_calls(group: Any, times: int) -> None:
    for _ in range(times):
        group.all_reduce(np.ones(4))
    group.all_gather(np.ones(4))


def one_too_few(group: Any) -> str:
    """Rank 0 leaves out one of many equal calls, so that its next one meets the others' last."""
    return str(raised(hocket.MismatchError, count_calls, group, 9 if group.rank == 0 else 10))


@pytest.mark.parametrize("size", [2, 3])
def test_one_call_left_out(world: Worlds, size: int) -> None:
    for text in world(size).run(one_too_few, fresh=True):
        assert "all_reduce" in text
        assert "all_gather" in text


def after_many_kinds(group: Any) -> str:
    """The calls that differ were made right once, and a thousand others since."""
    x = np.ones(2000)
    for op in ("min", "max"):
        group.all_reduce(x[:7], op=op)
    for count in range(1000, 2000):
        group.all_reduce(x[:count])
    last(group, 1)
    return str(raised(hocket.MismatchError, group.all_reduce, x[:7], op="max" if group.rank == 1 else "min"))


@pytest.mark.parametrize("size", [2, 3])
def test_both_calls_are_named_however_many_came_between(world: Worlds, size: int) -> None:
    for text in world(size).run(after_many_kinds, fresh=True):
        assert "'max'" in text, text
        assert "'min'" in text, text


def asynchronous(group: Any) -> str:
    """Rank 1 puts the call that differs when the others have put theirs, and completed those before it."""
    works = [group.all_reduce(np.ones(100), async_op=True) for _ in range(5)]
    if group.rank != 1:
        works.append(group.all_reduce(np.ones(100), op="min", async_op=True))
    for work in works[:5]:
        assert (work.wait() == group.size).all()
    last(group, 1)
    if group.rank == 1:
        works.append(group.all_reduce(np.ones(100), op="max", async_op=True))
    error = works[-1].exception()
    assert isinstance(error, hocket.MismatchError)
    return str(error)


@pytest.mark.parametrize("size", [2, 3])
def test_asynchronous_calls(world: Worlds, size: int) -> None:
    for text in world(size).run(asynchronous, fresh=True):
        assert "'max'" in text
        assert "'min'" in text


def in_a_subgroup(group: Any) -> str | None:
    sub, text = group.subgroup([0, 1]), None
    if sub is not None:
        text = str(raised(hocket.MismatchError, sub.all_reduce, np.ones(3), op="max" if group.rank else "min"))
        raised(hocket.GroupBroken, sub.barrier)
    assert group.all_reduce(1) == group.size  # the parent is as it was
    return text


def test_a_subgroup_breaks_alone(world: Worlds) -> None:
    texts = world(3).run(in_a_subgroup, fresh=True)
    assert texts[2] is None
    assert all("'max'" in text and "'min'" in text for text in texts[:2])


def scatter_into(group: Any) -> None:
    """Off the root, `out` is all that a rank says about what it expects."""
    out = np.zeros(2, "f4" if group.rank else "f8")
    group.scatter(np.arange(2.0 * group.size) if group.rank == 0 else None, out=out)
    group.barrier()


@pytest.mark.parametrize("size", [2, 3])
def test_a_scatter_into_another_dtype(world: Worlds, size: int) -> None:
    for outcome in world(size).outcomes(scatter_into, fresh=True, timeout=TIMEOUT):
        assert isinstance(outcome, (hocket.HocketError, ValueError)), outcome
        assert not isinstance(outcome, hocket.CollectiveTimeout), outcome
