"""What goes wrong, and how it is told: bad arguments, late ranks, ranks that leave, operators that raise."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import hocket
from moments import last
from worlds import Worlds, raised

# (method, arguments, error, word of the message), for a group of 3
BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("all_reduce", {"x": np.array(["a"])}, TypeError, "these are: bool, int8"),
    ("all_reduce", {"x": np.array([None])}, TypeError, "these are: bool, int8"),
    ("all_reduce", {"x": np.ones(3, "M8[s]")}, TypeError, "these are: bool, int8"),
    ("all_reduce", {"x": np.ones(3, np.dtype("f4").newbyteorder())}, TypeError, "endian"),
    ("all_reduce", {"x": np.ones(3), "op": "avg"}, ValueError, "Did you mean 'mean'"),
    ("all_reduce", {"x": np.ones(3), "op": None}, TypeError, "op is a name"),
    ("all_reduce", {"x": np.ones(3), "op": "band"}, TypeError, "float64 has sum"),
    ("all_reduce", {"x": np.ones(3, "c8"), "op": "min"}, TypeError, "complex64 has sum"),
    ("all_reduce", {"x": np.ones(3, "?"), "op": "mean"}, TypeError, "bool has sum"),
    ("all_reduce", {"x": np.ones(3, "i4"), "op": np.hypot}, TypeError, "hypot"),
    ("all_reduce", {"x": np.ones(3), "op": lambda a, b: a}, TypeError, "f(a, b, out)"),
    ("all_reduce", {"x": np.ones(3), "algorithm": "rings"}, ValueError, "ring"),
    ("all_reduce", {"x": np.ones(3), "algorithm": "pairwise"}, ValueError, "two_shot"),
    ("all_reduce", {"x": np.ones(3), "algorithm": 3}, (TypeError, ValueError), "algorithm"),
    ("all_reduce", {"x": np.ones(3), "order": "none"}, ValueError, "same"),
    ("all_reduce", {"x": np.ones(3), "timeout": 0}, ValueError, "timeout"),
    ("all_reduce", {"x": np.ones(3), "timeout": -1.0}, ValueError, "timeout"),
    ("all_reduce", {"x": np.ones(3), "timeout": float("nan")}, ValueError, "timeout"),
    ("all_reduce", {"x": np.ones(3), "timeout": "soon"}, (TypeError, ValueError), ""),
    ("all_reduce", {"x": np.ones(3), "out": [0, 0, 0]}, TypeError, "out"),
    ("all_reduce", {"x": np.ones(3), "out": np.ones(4)}, ValueError, "(4,)"),
    ("all_reduce", {"x": np.ones(3), "out": np.ones((3, 1))}, ValueError, "(3, 1)"),
    ("all_reduce", {"x": np.ones(3), "out": np.ones(3, "f4")}, (TypeError, ValueError), "float32"),
    ("all_reduce", {"x": np.ones(3), "out": np.broadcast_to(1.0, 3)}, ValueError, "out"),
    ("all_reduce", {"x": np.ones(3), "op": np.fmax, "algorithm": "ring"}, ValueError, "order"),
    ("reduce", {"x": np.ones(3), "root": 3}, ValueError, "root 3"),
    ("reduce", {"x": np.ones(3), "root": -1}, ValueError, "root -1"),
    ("reduce", {"x": np.ones(3), "root": 0.0}, TypeError, "root"),
    ("broadcast", {"x": np.ones(3), "root": 3}, ValueError, "root 3"),
    ("broadcast", {"x": np.ones(3), "root": "0"}, TypeError, "root"),
    ("broadcast", {"x": np.ones(3), "out": np.ones(2)}, ValueError, "(2,)"),
    ("gather", {"x": np.ones(3), "root": 7}, ValueError, "root 7"),
    ("gather", {"x": np.ones(3), "sizes": [1, 1]}, ValueError, "sizes"),
    ("all_gather", {"x": np.ones(3), "sizes": [4, 4, 4]}, ValueError, "4"),
    ("all_gather", {"x": np.ones(3), "sizes": [3, 3, -3]}, ValueError, "sizes"),
    ("all_gather", {"x": np.ones(3), "sizes": [3, 3, 3, 3]}, ValueError, "sizes"),
    ("all_gather", {"x": np.ones(3), "sizes": 3}, TypeError, "sizes"),
    ("all_gather", {"x": np.ones(3), "sizes": [3, 3, 3.5]}, (TypeError, ValueError), "sizes"),
    ("all_gather", {"x": np.ones(3), "out": np.ones(8)}, ValueError, "(9,)"),
    ("scatter", {"x": np.ones(3), "root": 9}, ValueError, "root 9"),
    ("scatter", {"x": np.ones(3), "algorithm": "ring"}, ValueError, "binomial_tree"),
    ("reduce_scatter", {"x": np.ones(4)}, ValueError, "sizes"),
    ("reduce_scatter", {"x": np.array(4.0)}, ValueError, "0-d"),
    ("reduce_scatter", {"x": np.ones(4), "sizes": [1, 1, 1]}, ValueError, "4"),
    ("reduce_scatter", {"x": np.ones(3), "out": np.ones(3)}, ValueError, "(1,)"),
    ("all_to_all", {"x": np.ones(4)}, ValueError, "sizes"),
    ("all_to_all", {"x": np.ones(4), "sizes": [2, 1, 2]}, ValueError, "4"),
    ("all_to_all", {"x": np.array(1.0)}, ValueError, "0-d"),
    ("empty", {"shape": 3, "dtype": "O"}, TypeError, "these are: bool, int8"),
    ("empty", {"shape": -3}, ValueError, ""),
]


def refuse(group: Any, number: int) -> None:
    method, arguments, error, word = BAD[number]
    with pytest.raises(error) as caught:
        getattr(group, method)(**arguments)
    assert not isinstance(caught.value, hocket.HocketError)
    assert word in str(caught.value)


def refuse_and_go_on(group: Any, number: int) -> None:
    """Also where only one rank is refused, and so has sent nothing."""
    refuse(group, number)
    assert group.all_reduce(group.rank) == 3
    if group.rank == 1:
        refuse(group, number)
    assert group.all_reduce(1) == 3


@pytest.mark.parametrize("number", range(len(BAD)), ids=lambda number: f"{BAD[number][0]}-{number}")
def test_a_bad_argument_is_refused_before_anything_is_sent(world: Worlds, number: int) -> None:
    world(3).run(refuse_and_go_on, number)


def bad_scatter(group: Any) -> None:
    """Only the root can see that these are wrong; it says so, and then everyone scatters something right."""
    if group.rank == 0:
        for x, sizes in ((np.ones(4), None), (np.ones(4), [2, 2, 1]), (np.array(1.0), None)):
            with pytest.raises(ValueError):
                group.scatter(x, sizes=sizes)
        with pytest.raises(TypeError):
            group.scatter(None)
        with pytest.raises(TypeError):
            group.broadcast(None)
    assert group.scatter(np.arange(3) if group.rank == 0 else None).tolist() == [group.rank]


def test_a_bad_scatter_at_the_root(world: Worlds) -> None:
    world(3).run(bad_scatter)


def root_alone_knows(group: Any) -> None:
    x = np.arange(6, dtype="i2").reshape(3, 2)
    assert group.broadcast(x if group.rank == 1 else None, root=1).tolist() == x.tolist()
    part = group.scatter(x if group.rank == 1 else None, root=1, sizes=[0, 2, 1])
    assert part.tolist() == (x[:0], x[:2], x[2:])[group.rank].tolist()
    assert part.dtype == x.dtype


def test_off_the_root_nothing_need_be_known(world: Worlds) -> None:
    world(3).run(root_alone_knows)


def call_and_barrier(group: Any, method: str, timeout: float) -> None:
    """A root that only sends may be through with its call before the others; the barrier is where it waits."""
    if method != "barrier":
        getattr(group, method)(np.ones(3 * 40_000), timeout=timeout)
    group.barrier(timeout=timeout)


def late(group: Any, method: str) -> str | None:
    """Rank 1 makes every call but the last."""
    group.barrier()
    if group.rank == 1:
        group.recv(0, tag=77)  # never comes; ends when the others have broken the group
        return None
    error = raised(hocket.CollectiveTimeout, call_and_barrier, group, method, 0.5)
    later = raised(hocket.GroupBroken, group.barrier)
    assert later.__cause__ is error
    assert isinstance(error, TimeoutError)
    return str(error)


@pytest.mark.parametrize("method", ["all_reduce", "barrier", "all_gather", "all_to_all", "reduce_scatter", "reduce"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_late_rank_is_a_timeout_that_names_operation_and_rank(world: Worlds, size: int, method: str) -> None:
    outcomes = world(size).outcomes(late, method, fresh=True)
    for rank, outcome in enumerate(outcomes):
        if rank == 1:
            assert isinstance(outcome, hocket.HocketError), outcome  # its recv learns that the group broke
        else:
            assert isinstance(outcome, str), outcome
            assert "rank 1" in outcome
            assert method in outcome or "barrier" in outcome


def deadline_set(group: Any, way: str) -> str | None:
    """Rank 1 makes every call but the last, whose deadline is the group's by then."""
    x = np.ones(4)
    again = group.all_reduce_init(x, out=x)
    for _ in range(2):  # the second time on the fast path
        group.all_reduce(x)
        again()
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout is a number of seconds above zero"):
            group.timeout = wrong
    group.timeout = 45
    with group.split(0) as part:
        assert part.timeout == group.timeout == 45.0
    last(group, 0)
    group.timeout = 0.25
    if group.rank == 1:
        raised(hocket.HocketError, group.recv, 0, tag=77, timeout=60)  # ends when the other has broken the group
        return None
    calls = {"plain": group.all_reduce, "async": waited(group.all_reduce), "persistent": lambda _: again()}
    return str(raised(hocket.CollectiveTimeout, calls[way], x))


def waited(call: Any) -> Any:
    return lambda x: call(x, async_op=True).wait()


@pytest.mark.parametrize("way", ["plain", "async", "persistent"])
def test_a_deadline_that_is_set_is_that_of_later_calls(world: Worlds, way: str) -> None:
    text, _ = world(2).run(deadline_set, way, fresh=True)
    assert " timed out after 0.25 s" in text
    assert "rank 1" in text


class Oops(Exception):
    pass


def leave_inside(group: Any, leaver: int) -> None:
    with group:
        group.barrier()
        if group.rank == leaver:
            raise Oops("spilled the milk")
        group.all_reduce(np.ones(10))
        group.barrier()


def leave_with_an_error(group: Any, leaver: int) -> str:
    return str(raised(Oops if group.rank == leaver else hocket.PeerLost, leave_inside, group, leaver))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_an_exception_inside_with_reaches_the_others(world: Worlds, size: int) -> None:
    for leaver in (0, size - 1):
        for rank, text in enumerate(world(size).run(leave_with_an_error, leaver, fresh=True)):
            assert "spilled the milk" in text
            if rank != leaver:
                assert f"rank {leaver}" in text
                assert "Oops" in text


def leave_with_a_long_story(group: Any, story: str) -> str:
    def tell() -> None:
        with group:
            group.barrier()
            if group.rank == 0:
                raise Oops(story)
            group.barrier()

    return str(raised(Oops if group.rank == 0 else hocket.PeerLost, tell))


@pytest.mark.parametrize("before", range(2))
def test_an_error_of_many_letters_is_cut_between_two_of_them(world: Worlds, before: int) -> None:
    """Each is of two bytes, so that in one of these two the room for it ends within a letter."""
    own, heard = world(2).run(leave_with_a_long_story, "." * before + "ü" * 3000, fresh=True)
    assert own == "." * before + "ü" * 3000
    assert f"Oops: {'.' * before}üüü" in heard
    assert heard.endswith("ü")
    assert len(heard.encode()) in (2046, 2047)


def leave_early(group: Any) -> str | None:
    group.barrier()
    last(group, 1)
    if group.rank == 1:
        group.close()
        assert "closed" in str(raised(hocket.GroupBroken, group.barrier))
        return None
    return str(raised(hocket.PeerLost, call_and_barrier, group, "all_reduce", 60))


@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_leaves_is_lost(world: Worlds, size: int) -> None:
    texts = world(size).run(leave_early, fresh=True)
    assert all("rank 1" in text and "left" in text for text in texts if text is not None)
    assert texts.count(None) == 1


def leave_in_peace(group: Any) -> None:
    """Ranks close at different moments after their last call; nobody is hurt, nothing is lost."""
    work = group.all_reduce(np.full(100_000, group.rank), async_op=True)
    if group.rank:
        group.send(np.full(50_000, group.rank), 0, async_op=True)
    else:
        for other in range(1, group.size):
            assert (group.recv(other) == other).all()
    assert (work.wait() == sum(range(group.size))).all()
    group.close()
    group.close()
    assert "rank" in repr(group)
    with pytest.raises(hocket.GroupBroken, match="closed"):
        group.all_reduce(1)
    with pytest.raises(hocket.GroupBroken, match="closed"):
        group.all_reduce(1, async_op=True)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_closing_is_peaceful_and_twice_is_fine(world: Worlds, size: int) -> None:
    for _ in range(5):
        world(size).run(leave_in_peace, fresh=True)


def fails_on_two(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.add(a, b, out)
    if (out >= 100).any():
        raise Oops("more than I can carry")


def custom_op_raises(group: Any, algorithm: str) -> tuple[str, str]:
    assert group.all_reduce(np.ones(5), op=fails_on_two, algorithm=algorithm).tolist() == [group.size] * 5
    x = np.zeros(5)
    x[-1] = 99 if group.rank == 0 else 1  # in the last chunk only
    last(group, 0)  # without whose part nobody raises

    def carry() -> None:
        group.all_reduce(x, op=fails_on_two, algorithm=algorithm)
        group.barrier()

    error = raised((Oops, hocket.HocketError), carry)
    assert raised(hocket.GroupBroken, group.barrier).__cause__ is error
    return type(error).__name__, str(error)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "naive"])
def test_a_custom_op_that_raises_reaches_everyone(world: Worlds, size: int, algorithm: str) -> None:
    results = world(size).run(custom_op_raises, algorithm, fresh=True)
    assert "Oops" in [kind for kind, _ in results]
    for kind, text in results:
        assert "more than I can carry" in text, (kind, text)
        assert kind == "Oops" or "rank" in text


def broken_carries_its_cause(group: Any) -> None:
    with pytest.raises(hocket.MismatchError) as first:
        group.all_reduce(np.ones(3 + group.rank))
    for _ in range(2):
        for call in (
            lambda: group.all_reduce(np.ones(3)),
            lambda: group.send(1, 0),
            lambda: group.recv(1),
            lambda: group.subgroup([0]),
            lambda: group.barrier(async_op=True),
        ):
            with pytest.raises(hocket.GroupBroken) as later:
                call()
            assert later.value.__cause__ is first.value
    group.close()


def test_group_broken_carries_the_first_error(world: Worlds) -> None:
    world(2).run(broken_carries_its_cause, fresh=True)


def threads(group: Any) -> None:
    """Calls from another thread, one after the other, and from several at once, each on a group of its own."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(group.all_reduce(group.rank)))
    thread.start()
    thread.join()
    assert results == [sum(range(group.size))]
    subs = [group.subgroup(range(group.size)) for _ in range(3)]
    sums: dict[int, int] = {}

    def work(i: int) -> None:
        sums[i] = sum(int(subs[i].all_reduce(np.full(2000, turn + i))[-1]) for turn in range(50))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sums == {i: sum(group.size * (turn + i) for turn in range(50)) for i in range(3)}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_calls_from_other_threads(world: Worlds, size: int) -> None:
    world(size).run(threads)


def thread_sees_the_error(group: Any) -> None:
    """The first error reaches a call that another thread is in."""
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            group.recv(1 - group.rank, tag=5)
        except hocket.HocketError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    sub = group.subgroup([0, 1])
    thread.start()
    with pytest.raises(hocket.MismatchError):
        sub.all_reduce(np.ones(2 + group.rank))
    group.send(1, 1 - group.rank, tag=5)
    thread.join()
    assert caught == []
    assert group.all_reduce(1) == 2


def test_a_broken_subgroup_leaves_the_parents_thread_alone(world: Worlds) -> None:
    world(2).run(thread_sees_the_error, fresh=True)


def messages(group: Any) -> str:
    with pytest.raises(hocket.MismatchError) as caught:
        group.all_reduce(np.ones(3, "f4" if group.rank else "f8"))
    return str(caught.value)


def test_a_message_names_ranks_pids_and_both_calls(world: Worlds) -> None:
    texts = world(2).run(messages, fresh=True)
    for text in texts:
        for word in ("rank 0", "rank 1", "float32[3]", "float64[3]", "call 1", "pid"):
            assert word in text


def world_of_one(group: Any) -> None:
    x = np.arange(4.0)
    for method in (
        "all_reduce",
        "reduce",
        "broadcast",
        "scatter",
        "gather",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
    ):
        y = getattr(group, method)(x)
        assert y.tolist() == x.tolist()
        assert not np.shares_memory(x, y)
    for op in ("land", "lor", "lxor"):
        assert [group.all_reduce(np.array(value), op=op).tolist() for value in (0.0, 2.0)] == [0, 1]
    assert group.barrier() is None


def test_a_world_of_one(world: Worlds) -> None:
    world(1).run(world_of_one)


def reinit(group: Any) -> None:
    for _ in range(3):
        assert group.all_reduce(1) == group.size


def test_init_again_and_again(world: Worlds) -> None:
    for _ in range(10):
        world(3).run(reinit, fresh=True)
