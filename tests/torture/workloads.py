"""What ranks do in a trial, round after round: each step makes a few calls and holds every result against NumPy."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


def data(ctx: Any, rank: int, k: int, count: int) -> np.ndarray:
    """What a rank gives in round k: small whole numbers, whose sums are exact in every dtype."""
    return ((np.arange(count) * 3 + rank * 5 + k * 7) % 11).astype(ctx.trial.dtype)


def everyone(ctx: Any, k: int, count: int) -> list[np.ndarray]:
    return [data(ctx, rank, k, count) for rank in range(ctx.size)]


def total(arrays: list[np.ndarray]) -> np.ndarray:
    return np.add.reduce(arrays, dtype=arrays[0].dtype)


def given(ctx: Any, k: int, count: int, shape: int) -> tuple[np.ndarray, np.ndarray | None]:
    """This rank's input of a round, and the output that it asks for; in place where both are alike."""
    x = ctx.array("x", count)
    x[:] = data(ctx, ctx.rank, k, count)
    if ctx.trial.out == "in place" and count == shape:
        return x, x
    ctx.keep(x)
    return x, None if ctx.trial.out == "new" else ctx.array("out", shape)


def divisible(ctx: Any) -> int:
    return -(-ctx.trial.count // ctx.size) * ctx.size


def all_reduce(ctx: Any, k: int) -> None:
    count = ctx.trial.count
    x, out = given(ctx, k, count, count)
    got = ctx.call(ctx.group.all_reduce, x, out=out, algorithm=ctx.algorithm("all_reduce"))
    ctx.same(got, total(everyone(ctx, k, count)), "all_reduce")


def large(ctx: Any, k: int) -> None:
    """Beside it arrays of the arena come and go, so large that their pages are given back."""
    several = [ctx.group.empty(20 << 20, "int8") for _ in range(3)]
    several.clear()
    all_reduce(ctx, k)


def reduce(ctx: Any, k: int) -> None:
    count, root = ctx.trial.count, ctx.trial.root
    x, out = given(ctx, k, count, count)
    got = ctx.call(ctx.group.reduce, x, root=root, out=out, algorithm=ctx.algorithm("reduce"))
    if ctx.rank == root:
        ctx.same(got, total(everyone(ctx, k, count)), "reduce")


def broadcast(ctx: Any, k: int) -> None:
    count, root = ctx.trial.count, ctx.trial.root
    x, out = given(ctx, k, count, count)
    got = ctx.call(ctx.group.broadcast, x, root=root, out=out, algorithm=ctx.algorithm("broadcast"))
    ctx.same(got, data(ctx, root, k, count), "broadcast")


def scatter(ctx: Any, k: int) -> None:
    count, root = divisible(ctx), ctx.trial.root
    part = count // ctx.size
    x, out = given(ctx, k, count, part)
    got = ctx.call(
        ctx.group.scatter, x if ctx.rank == root else None, root=root, out=out, algorithm=ctx.algorithm("scatter")
    )
    ctx.same(got, data(ctx, root, k, count)[ctx.rank * part :][:part], "scatter")


def gather(ctx: Any, k: int) -> None:
    count, root = ctx.trial.count, ctx.trial.root
    x, out = given(ctx, k, count, count * ctx.size)
    got = ctx.call(ctx.group.gather, x, root=root, out=out, algorithm=ctx.algorithm("gather"))
    if ctx.rank == root:
        ctx.same(got, np.concatenate(everyone(ctx, k, count)), "gather")


def all_gather(ctx: Any, k: int) -> None:
    count = ctx.trial.count
    x, out = given(ctx, k, count, count * ctx.size)
    got = ctx.call(ctx.group.all_gather, x, out=out, algorithm=ctx.algorithm("all_gather"))
    ctx.same(got, np.concatenate(everyone(ctx, k, count)), "all_gather")


def reduce_scatter(ctx: Any, k: int) -> None:
    count = divisible(ctx)
    part = count // ctx.size
    x, out = given(ctx, k, count, part)
    got = ctx.call(ctx.group.reduce_scatter, x, out=out, algorithm=ctx.algorithm("reduce_scatter"))
    ctx.same(got, total(everyone(ctx, k, count))[ctx.rank * part :][:part], "reduce_scatter")


def all_to_all(ctx: Any, k: int) -> None:
    count = divisible(ctx)
    part = count // ctx.size
    x, out = given(ctx, k, count, count)
    got = ctx.call(ctx.group.all_to_all, x, out=out, algorithm=ctx.algorithm("all_to_all"))
    expected = np.concatenate([y[ctx.rank * part :][:part] for y in everyone(ctx, k, count)])
    ctx.same(got, expected, "all_to_all")


def uneven(ctx: Any, k: int) -> None:
    """Parts of other sizes each round, some of them empty."""
    sizes = [ctx.rng.choice((0, 1, 5, 300, 20_000)) for _ in range(ctx.size)]
    mine = ctx.keep(data(ctx, ctx.rank, k, sizes[ctx.rank]))
    joined = np.concatenate([data(ctx, rank, k, n) for rank, n in enumerate(sizes)])
    ctx.same(ctx.call(ctx.group.all_gather, mine, sizes=sizes), joined, "all_gather, uneven")
    whole = ctx.keep(data(ctx, ctx.rank, k, sum(sizes)))
    begin = sum(sizes[: ctx.rank])
    expected = total(everyone(ctx, k, sum(sizes)))[begin : begin + sizes[ctx.rank]]
    ctx.same(ctx.call(ctx.group.reduce_scatter, whole, sizes=sizes), expected, "reduce_scatter, uneven")
    rows = [sizes[(ctx.rank + rank) % ctx.size] for rank in range(ctx.size)]
    theirs = [
        data(ctx, rank, k, sum(sizes))[sum(sizes[(rank + r) % ctx.size] for r in range(ctx.rank)) :][
            : sizes[(rank + ctx.rank) % ctx.size]
        ]
        for rank in range(ctx.size)
    ]
    ctx.same(ctx.call(ctx.group.all_to_all, whole, sizes=rows), np.concatenate(theirs), "all_to_all, uneven")


def small(ctx: Any, k: int) -> None:
    """Many short calls of all kinds."""
    for turn in range(5):
        ctx.call(ctx.group.barrier)
        got = np.asarray(ctx.call(ctx.group.all_reduce, np.array(ctx.rank + turn + k)))
        ctx.same(got, np.array(sum(rank + turn + k for rank in range(ctx.size))), "a sum of one number")
        got = ctx.call(ctx.group.broadcast, np.array([k, turn]) if ctx.rank == 0 else None)
        ctx.same(got, np.array([k, turn]), "a short broadcast")


def asynchronous(ctx: Any, k: int) -> None:
    """Several in flight, waited for in another order."""
    count = min(ctx.trial.count, 60_000)
    works = []
    try:  # a call that cannot be begun any more leaves those before it in flight
        for i in range(4):
            x, out = ctx.array(f"x{i}", count), ctx.array(f"out{i}", count)
            x[:] = data(ctx, ctx.rank, k + i, count)
            ctx.keep(x)
            work = ctx.call(ctx.group.all_reduce, x, out=out, async_op=True)
            works.append((work, total(everyone(ctx, k + i, count))))
        work = ctx.call(ctx.group.all_gather, x, async_op=True)
        works.append((work, np.concatenate(everyone(ctx, k + 3, count))))
        ctx.rng.shuffle(works)
        for work, expected in works:
            got = ctx.call(work.wait) if ctx.trial.seed % 2 else work.wait()
            ctx.same(got, expected, "an asynchronous call")
    except BaseException:
        for work, _ in works:  # no array is in use any more when this ends
            work.exception(ctx.trial.timeout + 4)
        raise


def persistent(ctx: Any, k: int) -> None:
    count = ctx.trial.count
    x = ctx.array("x", count)
    out = ctx.array("out", count)
    if k == 0:
        ctx.again = ctx.group.all_reduce_init(x, out=out, algorithm=ctx.algorithm("all_reduce"))
        ctx.group.timeout = ctx.trial.timeout
    x[:] = data(ctx, ctx.rank, k, count)
    ctx.keep(x)
    ctx.same(ctx.again(), total(everyone(ctx, k, count)), "a persistent call")


def messages(ctx: Any, k: int) -> None:
    """Round the ring with two tags, received in the other order; the longer one into an array."""
    count, n = ctx.trial.count, ctx.size
    after, before = (ctx.rank + 1) % n, (ctx.rank - 1) % n
    x, out = ctx.array("x", count), ctx.array("out", count)
    x[:] = data(ctx, ctx.rank, k, count)
    ctx.keep(x)
    first = ctx.call(ctx.group.send, x, after, tag=1, async_op=True)
    second = ctx.call(ctx.group.send, np.array([k, ctx.rank]), after, tag=2, async_op=True)
    try:
        ctx.same(ctx.call(ctx.group.recv, before, tag=2), np.array([k, before]), "a short message")
        ctx.same(ctx.call(ctx.group.recv, before, tag=1, out=out), data(ctx, before, k, count), "a message")
        second.wait()
    finally:  # x is in use until then
        error = first.exception()
    if error is not None:
        raise error


def subgroups(ctx: Any, k: int) -> None:
    color = (ctx.rank + k) % 2
    members = [rank for rank in range(ctx.size) if (rank + k) % 2 == color]
    part = ctx.group.split(color, ctx.rank)
    count = min(ctx.trial.count, 60_000)
    x = ctx.keep(data(ctx, ctx.rank, k, count))
    got = ctx.call(part.all_reduce, x)
    ctx.same(got, total([data(ctx, rank, k, count) for rank in members]), "all_reduce of a part")
    part.close()


def ufunc(ctx: Any, k: int) -> None:
    count = ctx.trial.count
    x, out = given(ctx, k, count, count)
    got = ctx.call(ctx.group.all_reduce, x, op=np.fmax, out=out)
    ctx.same(got, np.fmax.reduce(everyone(ctx, k, count)), "all_reduce with fmax")


def operator(ctx: Any, k: int) -> None:
    count = ctx.trial.count
    x, out = given(ctx, k, count, count)
    got = ctx.call(ctx.group.all_reduce, x, op=ctx.operator, out=out)
    ctx.same(got, total(everyone(ctx, k, count)), "all_reduce with an operator")


def threads(ctx: Any, k: int) -> None:
    """Three threads at once: the group itself, a part of all, and messages."""
    if k == 0:
        ctx.part = ctx.group.split(0, ctx.rank)
    count = min(ctx.trial.count, 60_000)
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        return run

    def of_the_part() -> None:
        x = data(ctx, ctx.rank, k + 1, count)
        ctx.same(ctx.call(ctx.part.all_reduce, x), total(everyone(ctx, k + 1, count)), "a part's sum")

    def of_messages() -> None:
        sent = ctx.call(ctx.group.send, np.array([k]), (ctx.rank + 1) % ctx.size, tag=k, async_op=True)
        ctx.same(ctx.call(ctx.group.recv, (ctx.rank - 1) % ctx.size, tag=k), np.array([k]), "a message")
        sent.wait()

    workers = [threading.Thread(target=guarded(work), daemon=True) for work in (of_the_part, of_messages)]
    for worker in workers:
        worker.start()
    try:
        x = data(ctx, ctx.rank, k, count)
        ctx.same(ctx.call(ctx.group.all_reduce, x), total(everyone(ctx, k, count)), "the group's sum")
    finally:
        for worker in workers:
            for _ in range(2):  # this process may be stopped for longer than either; a thread needs a moment then
                worker.join(ctx.trial.timeout / 2 + 2)
            if worker.is_alive():
                ctx.find("HANG", "a thread does not come back from its call")
    if errors:
        raise errors[0]


def forked_child(ctx: Any, k: int) -> None:
    """A child lives beside, and has inherited all there is."""
    if k == 0:
        ctx.child = os.fork()
        if ctx.child == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            while True:
                signal.pause()
        ctx.rounds[ctx.size + ctx.rank] = ctx.child
    all_reduce(ctx, k)


STEPS: dict[str, Callable[[Any, int], None]] = {
    "all_reduce": all_reduce,
    "large all_reduce": large,
    "reduce": reduce,
    "broadcast": broadcast,
    "scatter": scatter,
    "gather": gather,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "uneven": uneven,
    "small": small,
    "async": asynchronous,
    "persistent": persistent,
    "messages": messages,
    "subgroups": subgroups,
    "ufunc": ufunc,
    "operator": operator,
    "threads": threads,
    "forked child": forked_child,
}
