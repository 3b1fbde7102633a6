"""A forked child is no rank: what it does with an inherited group is refused, and never reaches the parent's."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import run

import hocket
from moments import Signs, ours, seconds, until
from worlds import World

Own = Callable[[int], World]


def in_child(work: Callable[[], Any], limit: float = 15.0) -> Any:
    """What `work()` returns in a forked child, which then ends without ceremony. A child that hangs is killed."""
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = work()
        except BaseException as error:
            result = [f"{type(error).__name__}: {error}"]
        os.write(begin, json.dumps(result).encode())
        os._exit(0)
    os.close(begin)
    ready, _, _ = select.select([end], [], [], limit)
    text = os.read(end, 1 << 20) if ready else b""
    os.close(end)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert ready, "the child hangs"
    assert text, "the child died"
    return json.loads(text)


USES: dict[str, Callable[[Any, Any, np.ndarray], Any]] = {
    "all_reduce": lambda group, kept, x: group.all_reduce(x, timeout=5),
    "all_reduce as before": lambda group, kept, x: group.all_reduce(kept["x"], out=kept["out"], timeout=5),
    "reduce": lambda group, kept, x: group.reduce(x, timeout=5),
    "broadcast": lambda group, kept, x: group.broadcast(x, timeout=5),
    "scatter": lambda group, kept, x: group.scatter(x, timeout=5),
    "gather": lambda group, kept, x: group.gather(x, timeout=5),
    "all_gather": lambda group, kept, x: group.all_gather(x, timeout=5),
    "reduce_scatter": lambda group, kept, x: group.reduce_scatter(x, timeout=5),
    "all_to_all": lambda group, kept, x: group.all_to_all(x, timeout=5),
    "barrier": lambda group, kept, x: group.barrier(timeout=5),
    "async": lambda group, kept, x: group.all_reduce(x, async_op=True, timeout=5).wait(5),
    "send": lambda group, kept, x: group.send(x, 1 - group.rank, tag=9, timeout=5),
    "send to oneself": lambda group, kept, x: group.send(x, group.rank, tag=9, timeout=5),
    "recv": lambda group, kept, x: group.recv(1 - group.rank, tag=8, timeout=5),
    "recv async": lambda group, kept, x: group.recv(1 - group.rank, tag=8, timeout=5, async_op=True).wait(),
    "subgroup": lambda group, kept, x: group.subgroup([0, 1]),
    "split": lambda group, kept, x: group.split(0),
    "all_reduce_init": lambda group, kept, x: group.all_reduce_init(x)(),
    "persistent": lambda group, kept, x: kept["persistent"](),
    "Work.wait": lambda group, kept, x: kept["work"].wait(5),
    "Work.wait without timeout": lambda group, kept, x: kept["work"].wait(),
    "message": lambda group, kept, x: kept["message"].wait(),
    "subgroup's call": lambda group, kept, x: kept["part"].all_reduce(x, timeout=5),
}


def used_in_child(group: Any, signs: Signs, use: str) -> Any:
    """Group 0's rank forks in the middle of an asynchronous call, a receive and with a persistent one at hand."""
    x = np.arange(4.0)
    kept: dict[str, Any] = {"x": np.arange(300.0), "out": np.empty(300), "part": group.subgroup([0, 1])}
    kept["persistent"] = group.all_reduce_init(x.copy())
    kept["persistent"]()
    for _ in range(3):  # so that the call is a known one
        group.all_reduce(kept["x"], out=kept["out"])
    result = None
    if group.rank == 1:
        signs.wait("child over")
    kept["work"] = group.all_reduce(x, async_op=True)
    if group.rank == 0:
        kept["message"] = group.recv(1, tag=4, async_op=True)
        result = in_child(lambda: outcome(USES[use], group, kept, x))
        signs.give("child over")
        assert kept["message"].wait().tolist() == [5]
    else:
        group.send(np.array([5]), 0, tag=4)
    assert kept["work"].wait().tolist() == (2 * x).tolist()
    check(group)
    check(kept["part"])
    assert kept["persistent"]().tolist() == (2 * x).tolist()
    return result


def outcome(use: Callable[..., Any], *args: Any) -> list[Any]:
    error, took = seconds(lambda: use(*args))
    return [type(error).__name__, str(error), ours(error), took]


def check(group: Any) -> None:
    """The group is as it was: blocking, not blocking, messages."""
    n = group.size
    for turn in range(3):
        assert group.all_reduce(group.rank + turn) == n * turn + n * (n - 1) // 2
        assert (group.all_reduce(np.full(70_000, 1.0), async_op=True).wait() == n).all()
        if group.rank == 0:
            group.send(np.arange(3) + turn, 1, tag=turn)
        else:
            assert group.recv(0, tag=turn).tolist() == [turn, turn + 1, turn + 2]


@pytest.mark.parametrize("use", USES)
def test_a_use_of_an_inherited_group_is_refused(own: Own, signs: Signs, use: str) -> None:
    kind, text, is_ours, took = own(2).run(used_in_child, signs, use, deadline=40)[0]
    assert is_ours, f"{kind}: {text}"
    assert kind == "HocketError" or kind == "GroupBroken", kind
    assert "fork" in text.lower()
    assert "\n" not in text
    assert took < 2


LEAVES: dict[str, Callable[[Any, Any], Any]] = {
    "close": lambda group, part: (group.close(), part.close()),
    "with": lambda group, part: [group.__exit__(None, None, None), part.__exit__(None, None, None)],
    "with an error": lambda group, part: group.__exit__(ValueError, ValueError("the child's own"), None),
}


def left_in_child(group: Any, leave: str) -> None:
    part = group.subgroup([0, 1])
    group.all_reduce(np.ones(4), async_op=True).wait()  # so that there is an engine, too
    part.all_reduce(np.ones(4))
    result = in_child(lambda: [str(LEAVES[leave](group, part))])
    assert "Error" not in result[0], result
    check(group)
    check(part)


@pytest.mark.parametrize("leave", LEAVES)
def test_leaving_in_a_child_does_nothing(own: Own, leave: str) -> None:
    own(2).run(left_in_child, leave, deadline=40)


def dropped_in_child(group: Any) -> None:
    """The child drops its last references, collects, and forks again."""
    holder = [group.subgroup([0, 1])]
    x = holder[0].empty(70_000)
    x[:] = 1
    holder[0].all_reduce(x, async_op=True).wait()

    def drop() -> list[str]:
        part = holder.pop()
        del part
        gc.collect()
        return in_child(lambda: [str(gc.collect())])

    in_child(drop)
    check(holder[0])
    assert (holder[0].all_reduce(x) == 2).all()


def test_collection_in_a_child_does_nothing(own: Own) -> None:
    own(2).run(dropped_in_child, deadline=40)


def written_in_child(group: Any) -> None:
    """What a child writes into its arena arrays stays with the child."""
    mine = [group.empty(count, "int64") for count in (10, 5000, 300_000)]
    for x in mine:
        x[:] = np.arange(len(x)) + group.rank

    def write() -> list[str]:
        for x in mine:
            x[:] = -1
        return ["written"]

    result = in_child(write)  # it may also be refused: as a crash it may not
    assert result == ["written"]
    for x in mine:
        assert (x == np.arange(len(x)) + group.rank).all()
        assert (group.all_reduce(x) == 2 * np.arange(len(x)) + 1).all()


def test_a_child_does_not_write_its_parents_arena(own: Own) -> None:
    own(2).run(written_in_child, deadline=40)


def survived(group: Any, signs: Signs, call: str) -> float:
    """Rank 1 forks a child that lives on, and is killed."""
    group.all_reduce(np.ones(4))
    if group.rank == 1:
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        signs.give(f"child {child}")
        signal.pause()
    signs.give("waiting")
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: group.all_reduce(np.ones(4)),
        "recv": lambda: group.recv(1),
        "async": lambda: group.all_reduce(np.ones(4), async_op=True).wait(),
    }
    error, _ = seconds(calls[call])
    assert isinstance(error, hocket.PeerLost), repr(error)
    assert "rank 1" in str(error)
    return time.monotonic()


@pytest.mark.parametrize("call", ["all_reduce", "recv", "async"])
def test_a_killed_rank_is_lost_though_its_child_lives(own: Own, signs: Signs, call: str) -> None:
    world = own(2)
    world.start(survived, signs, call, timeout=60)
    folder = Path(signs.folder)
    until(lambda: list(folder.glob("child *")) and signs.given("waiting"), "a child")
    child = int(next(folder.glob("child *")).name.split()[1])
    try:
        begin = time.monotonic()
        world.signal(1, signal.SIGKILL)
        end, _ = world.finish(25, without=1)  # whose pipe its child holds open
    finally:
        os.kill(child, signal.SIGKILL)
    if isinstance(end, BaseException):
        raise end
    assert end - begin < 2


CHILDREN = {
    "exit": """
        child = os.fork()
        if child == 0:
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
    """,
    "error": """
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            raise RuntimeError("the child's own")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 1, status
    """,
    "Process": """
        context = multiprocessing.get_context("fork")
        child = context.Process(target=refused, args=(group,))
        child.start()
        child.join(20)
        assert child.exitcode == 0, child.exitcode
    """,
    "Pool": """
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(once, range(4), 1) == [0, 1, 4, 9]
            assert pool.map(refused_here, range(2), 1) == [True, True]
            pool.close()
            pool.join()
    """,
}


@pytest.mark.parametrize("child", CHILDREN)
def test_children_that_end_in_peace(child: str, tmp_path: Path) -> None:
    """Under `hocket run`: children of both ranks end with all that an interpreter does at its end."""
    text = f"""
def once(i):
    return i * i

def refused(group):
    try:
        group.all_reduce(np.ones(3), timeout=5)
    except hocket.HocketError as error:
        assert "fork" in str(error).lower()
        return True
    sys.exit(3)

def refused_here(i):
    return refused(group)

with hocket.init(timeout=20) as group:
    part = group.subgroup([0, 1])
    group.all_reduce(np.ones(4), async_op=True).wait()
    work = group.all_reduce(np.arange(1000.0), async_op=True)
    for turn in range(2):
{CHILDREN[child]}
        assert group.all_reduce(turn + rank) == 2 * turn + 1
        assert part.all_reduce(turn + rank) == 2 * turn + 1
    assert (work.wait() == 2 * np.arange(1000.0)).all()
    say("good", rank)
"""
    ended = run(tmp_path, text, ranks=2, limit=50)
    assert (ended.code, ended.lines()) == (0, ["good 0", "good 1"]), ended.err


@pytest.mark.parametrize("way", ["returns", "raises", "a handler returns", "a handler raises"])
def test_a_child_that_is_made_in_the_middle_of_a_call(way: str, tmp_path: Path) -> None:
    """By its operator, or by a signal's handler: it does not go on with what its parent is doing."""
    text = f"""
def branch(*_):
    if not children and who[0] == 0:
        children.append(os.fork())
        if children[0] == 0 and {way.endswith("raises")}:
            raise ValueError("in the child")

def add(a, b, out):
    if {not way.startswith("a handler")}:
        branch()
    np.add(a, b, out=out)

who, children = [rank], []
signal.signal(signal.SIGUSR1, branch)
group = hocket.init(timeout=20)
if rank == 0:
    group.send(np.array([threading.get_native_id(), os.getpid()]), 1)
elif {way.startswith("a handler")}:
    thread, process = group.recv(0).tolist()
    looks = []
    while looks[-10:] != ["S"] * 10:
        time.sleep(0.002)
        with open(f"/proc/{{process}}/task/{{thread}}/stat") as stat:
            looks.append(stat.read().rpartition(")")[2].split()[0])
    os.kill(process, signal.SIGUSR1)
    while not open(f"/proc/{{process}}/task/{{thread}}/children").read():
        time.sleep(0.002)
try:
    total = group.all_reduce(np.arange(3.0) + rank, add, algorithm="binomial_tree")
except Exception as error:
    os._exit(0 if children == [0] and "forked" in str(error) else 3)
if children == [0]:
    os._exit(4)
assert (total == 2 * np.arange(3.0) + 1).all()
assert (group.all_reduce(np.ones(5)) == 2).all()
if rank == 0:
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
say("good", rank)
"""
    ended = run(tmp_path, text, ranks=2, limit=50)
    assert (ended.code, ended.lines()) == (0, ["good 0", "good 1"]), ended.err
