"""send and recv between two ranks, whatever the order of tags, sizes and calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import agree, data

import hocket
from hocket.arrays.ops import DTYPES
from worlds import Worlds

F32 = np.dtype("float32")
LARGE = 3_000_001


def every_dtype_and_count(group: Any) -> None:
    n, rank = group.size, group.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    for dtype in DTYPES:
        for count in (0, 1, 3, 1000):
            work = group.send(data(dtype, "sum", rank, count), right, async_op=True)
            agree(group.recv(left), data(dtype, "sum", left, count), dtype, count)
            work.wait()
            work = group.send(data(dtype, "sum", rank, count), right, tag=count, async_op=True)
            out = np.zeros(count, dtype)
            assert group.recv(left, out=out, tag=count) is out
            agree(out, data(dtype, "sum", left, count), dtype, count)
            assert work.wait() is None


@pytest.mark.parametrize("size", [2, 3, 5])
def test_round_a_ring(world: Worlds, size: int) -> None:
    world(size).run(every_dtype_and_count)


def tags_out_of_order(group: Any) -> None:
    tags = [3, 0, 2**31 - 1, 7, 1]
    if group.rank == 0:
        for tag in tags:
            group.send(np.array([tag, 0], "i8"), 1, tag=tag)
        for tag in tags:
            group.send(np.array([tag, 1], "i8"), 1, tag=tag)
    else:
        for second in (0, 1):
            for tag in sorted(tags):
                agree(group.recv(0, tag=tag), np.array([tag, second], "i8"), tag, second)
    group.barrier()


def test_tags_are_matched_out_of_order_and_equal_tags_in_order(world: Worlds) -> None:
    world(2).run(tags_out_of_order)


def there_and_back(group: Any) -> None:
    """Of lengths at which messages begin to be read while they are written, and no longer are."""
    other = 1 - group.rank
    for turn in range(20):
        for count in (4095, 4096, 4097, 16_383, 65_536, 262_144, 524_288, 524_289):
            sent = (np.arange(count) * 31 + turn).astype("u1")
            got = sent.copy() if group.rank == 0 else group.recv(other, out=np.empty_like(sent) if turn % 2 else None)
            agree(got, sent, count, turn)
            group.send(got, other)
            got.fill(0)  # which no message may show
            if group.rank == 0:
                agree(group.recv(other, out=got), sent, count, turn)


def test_messages_that_are_read_while_they_are_written(world: Worlds) -> None:
    world(2).run(there_and_back)


def large_out_of_order(group: Any) -> None:
    if group.rank == 0:
        works = [group.send(data(F32, "sum", tag, LARGE), 1, tag=tag, async_op=True) for tag in range(3)]
        for work in works:
            work.wait()
    else:
        for tag in (2, 0, 1):
            agree(group.recv(0, tag=tag), data(F32, "sum", tag, LARGE), tag)


def test_large_messages_out_of_order(world: Worlds) -> None:
    world(2).run(large_out_of_order)


def both_ways(group: Any, count: int) -> None:
    other = 1 - group.rank
    works = [group.send(data(F32, "sum", group.rank, count), other, tag=t, async_op=True) for t in range(2)]
    for tag in (1, 0):
        agree(group.recv(other, tag=tag), data(F32, "sum", other, count))
    for work in works:
        work.wait()
    out = np.empty(count, F32)
    receive = group.recv(other, out=out, async_op=True)
    group.send(data(F32, "sum", group.rank + 5, count), other)
    assert receive.wait() is out
    agree(out, data(F32, "sum", other + 5, count))


@pytest.mark.parametrize("count", [0, 1, 100, LARGE])
def test_both_ranks_send_first(world: Worlds, count: int) -> None:
    world(2).run(both_ways, count)


def both_block(group: Any) -> None:
    """Small messages are buffered: a blocking send need not wait for its receiver."""
    other = 1 - group.rank
    group.send(np.array([group.rank]), other)
    agree(group.recv(other), np.array([other]))


def test_small_blocking_sends_cross(world: Worlds) -> None:
    world(2).run(both_block)


def to_oneself(group: Any) -> None:
    for count in (0, 1, 1000, LARGE):
        work = group.send(data(F32, "sum", group.rank, count), group.rank, tag=4, async_op=True)
        agree(group.recv(group.rank, tag=4), data(F32, "sum", group.rank, count), count)
        work.wait()


@pytest.mark.parametrize("size", [1, 2])
def test_to_oneself(world: Worlds, size: int) -> None:
    world(size).run(to_oneself)


LOOKS = [((3,), "i4"), ((2, 2), "f8"), ((), "f4"), ((0,), "f4"), ((500,), "i8"), ((40_000,), "f4"), ((80_000,), "f4")]


def any_order(group: Any, seed: int) -> tuple[int, int]:
    """Bursts of messages that look like earlier ones, of two tags, blocking and not, received in any order of tags.
    Returns how many did not take the fast path, of how many."""
    rng, other, number, before = np.random.default_rng(seed), 1 - group.rank, 0, group.statistics()
    for _ in range(300):
        burst, works = [], []
        for _ in range(rng.integers(1, 6)):
            (shape, dtype), tag, later = LOOKS[rng.integers(len(LOOKS))], int(rng.integers(2)), rng.random() < 0.2
            number += 1
            message = np.full(shape, number, dtype)
            work = group.send(message + dtype_of(message)(group.rank * 1000), other, tag=tag, async_op=later)
            works += [work] if later else []
            burst.append((tag, message))
        while burst:
            tag = int(rng.integers(2))
            mine = [message for t, message in burst if t == tag]
            if not mine:
                continue
            burst.remove(next(entry for entry in burst if entry[1] is mine[0]))
            out = np.empty_like(mine[0]) if rng.random() < 0.5 else None
            source = other if rng.random() < 0.9 else None
            got = group.recv(source, out=out, tag=tag)
            agree(got, np.asarray(mine[0] + dtype_of(mine[0])(other * 1000)), number, tag)
            assert out is None or got is out
        for work in works:
            work.wait()
    return group.statistics().slow_messages - before.slow_messages, 2 * number


def dtype_of(array: np.ndarray) -> Any:
    return array.dtype.type


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_look_alike_in_any_order(world: Worlds, seed: int) -> None:
    for long_ways, calls in world(2).run(any_order, seed):
        assert len(LOOKS) <= long_ways < calls, seed


def shapes(group: Any) -> None:
    for shape in ((), (0,), (2, 3), (2, 0, 3), (1, 1, 4)):
        x = np.arange(np.prod(shape, dtype=int), dtype="i2").reshape(shape)
        if group.rank == 0:
            group.send(x, 1)
            group.send(np.repeat(x[..., None], 2, -1)[..., 0], 1)  # not contiguous
        else:
            agree(group.recv(0), x, shape)
            out = np.zeros((*shape, 2), "i2")[..., 1]
            assert group.recv(0, out=out) is out
            agree(out, x, shape)
    if group.rank == 0:
        group.send(2.5, 1)
        group.send([1, 2], 1)
    else:
        agree(group.recv(0), np.array(2.5))
        agree(group.recv(0), np.array([1, 2]))


def test_shapes_and_scalars(world: Worlds) -> None:
    world(2).run(shapes)


def tensors(group: Any) -> None:
    import torch

    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    if group.rank == 0:
        group.send(x, 1)
        group.send(x.T, 1)
    else:
        out = torch.zeros(2, 3, dtype=torch.bfloat16)
        assert group.recv(0, out=out) is out
        assert torch.equal(out, x)
        assert group.recv(0).tolist() == x.T.tolist()


def test_tensors(world: Worlds, torch: Any) -> None:
    world(2).run(tensors)


def interleaved(group: Any) -> None:
    """Messages between collectives, received late."""
    n, rank = group.size, group.rank
    for turn in range(20):
        if rank == turn % n:
            for other in range(n):
                if other != rank:
                    group.send(np.array([turn, rank, other]), other, tag=turn)
        assert group.all_reduce(rank) == sum(range(n))
        if turn % 4 == 3:
            for late in (turn, turn - 1, turn - 2, turn - 3):
                if rank != late % n:
                    agree(group.recv(late % n, tag=late), np.array([late, late % n, rank]), late)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_between_collectives(world: Worlds, size: int) -> None:
    world(size).run(interleaved)


def mismatched(group: Any, out: np.ndarray, again: bool) -> str | None:
    if group.rank == 1:
        with pytest.raises(hocket.MismatchError) as caught:
            group.recv(0, out=out, tag=3)
        return str(caught.value)
    group.send(np.ones(4, "f4"), 1, tag=3)
    return None


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (np.zeros(4, "i4"), ("float32", "int32")),
        (np.zeros(4, "f8"), ("float32", "float64")),
        (np.zeros(5, "f4"), ("[4]", "[5]")),
        (np.zeros(3, "f4"), ("[4]", "[3]")),
        (np.zeros((2, 2), "f4"), ("[4]", "[2, 2]")),
        (np.zeros((), "f4"), ("[4]", "float32[]")),
    ],
    ids=lambda part: f"{part.dtype}{part.shape}" if isinstance(part, np.ndarray) else "",
)
def test_another_dtype_or_shape_than_was_sent_is_a_mismatch(world: Worlds, out: np.ndarray, words: Any) -> None:
    text = world(2).run(mismatched, out, True, fresh=True)[1]
    for word in words:
        assert word in text, text


def bad_arguments(group: Any) -> None:
    x = np.ones(3)
    for bad in (group.size, -1, group.size + 5):
        with pytest.raises(ValueError, match=str(bad)):
            group.send(x, bad)
        with pytest.raises(ValueError, match=str(bad)):
            group.recv(bad)
    with pytest.raises(TypeError):
        group.send(np.array([None]), 0)
    with pytest.raises(TypeError):
        group.send(x, "0")
    with pytest.raises(TypeError):
        group.recv(0, out=[1, 2])
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        group.recv(0, out=x)
    for tag in (2**70, 1.5, "a"):
        with pytest.raises((TypeError, ValueError), match="tag"):
            group.send(x, 0, tag=tag)
    group.barrier()


def test_bad_arguments_leave_the_group_usable(world: Worlds) -> None:
    world(2).run(bad_arguments)


def late(group: Any) -> str | None:
    if group.rank == 0:
        with pytest.raises(hocket.CollectiveTimeout) as caught:
            group.recv(1, tag=9, timeout=0.3)
        return str(caught.value)
    return None


def test_a_message_that_never_comes_is_a_timeout_that_names_sender_and_tag(world: Worlds) -> None:
    text = world(2).run(late, fresh=True)[0]
    assert "recv" in text
    assert "rank 1" in text
    assert "9" in text
