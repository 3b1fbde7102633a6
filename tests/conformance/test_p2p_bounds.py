"""What messages are bounded by, and how users are told: unclaimed messages, operations in flight, memory, time."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import agree

import hocket
from moments import Signs, until
from worlds import World, Worlds, raised

MIB = 1 << 20
MOST_BYTES, MOST_IN_FLIGHT = 64 * MIB, 65536  # as Group.send says
LONG = 2 * MIB  # more than what is under way between two ranks


def part(i: int) -> np.ndarray:
    return np.arange(LONG // 8) * 3 + i


def unclaimed(group: Any, signs: Signs) -> str:
    """Rank 1 wants what comes behind more than may wait for it: it is told, and loses nothing."""
    number = MOST_BYTES // LONG + 6
    if group.rank == 0:
        works = [group.send(part(i), 1, tag=i % 3, async_op=True) for i in range(number)]
        works.append(group.send(np.array([5]), 1, tag=7, async_op=True))
        group.recv(1, tag=1)
        assert [work.done() for work in works].count(True) == MOST_BYTES // LONG
        signs.give("counted")
        works.append(group.send(0, 1, tag=8, async_op=True))
        for work in works:
            work.wait()
        return ""
    errors = []

    def full() -> bool:
        errors.append(str(raised(hocket.CollectiveTimeout, group.recv, 0, tag=7, timeout=0.2)))
        return "as much as is kept" in errors[-1]

    until(full, "as much as is kept", 60)
    any_error = raised(hocket.CollectiveTimeout, group.recv, None, tag=7, timeout=0.1)
    assert "tags 0, 1, 2" in str(any_error)
    group.send(0, 0, tag=1)
    signs.wait("counted", 60)
    for tag in range(3):
        for i in range(tag, number, 3):
            agree(group.recv(0 if i % 2 else None, tag=tag), part(i), i)
    agree(group.recv(0, tag=7), np.array([5]))
    group.recv(0, tag=8)
    return errors[-1]


def test_what_nobody_receives_makes_its_sender_wait(world: Worlds, tmp_path: Path) -> None:
    text = world(2).run(unclaimed, Signs(str(tmp_path)))[1]
    for word in ("recv(src=0, tag=7)", "rank 0", "33 messages", "tags 0, 1, 2", "as much as is kept", "0.2 s"):
        assert word in text, text


def wrong_tag(group: Any) -> str:
    if group.rank == 0:
        for tag in range(20):
            group.send(tag, 1, tag=tag)
        group.barrier()
        return ""
    group.barrier()
    error = raised(hocket.CollectiveTimeout, group.recv, 0, tag=99, timeout=0.1)
    for tag in range(20):
        agree(group.recv(0, tag=tag), np.array(tag))
    return str(error)


def test_a_receive_in_vain_names_the_tags_that_came(world: Worlds) -> None:
    text = world(2).run(wrong_tag)[1]
    assert "20 messages from rank 0 are here that nobody has received, of tags 0, 1, 2, 3, 4, 5, 6, 7, ..." in text
    assert "as much as is kept" not in text


def posted(group: Any) -> None:
    other = 1 - group.rank
    works = [group.recv(other, tag=i, async_op=True) for i in range(MOST_IN_FLIGHT)]
    for later in (False, True):
        error = raised(hocket.HocketError, group.recv, other, async_op=later)
        assert type(error) is hocket.HocketError
        assert "65536 receives are in flight already" in str(error)
    group.barrier()
    group.send(1, other, tag=3)  # of sends there may be as many
    assert works[3].wait() == 1
    group.recv(group.rank, tag=1, async_op=True)  # in its place
    raised(hocket.HocketError, group.recv, other)


def test_more_receives_than_may_be_in_flight_are_refused(world: Worlds) -> None:
    world(2).run(posted, fresh=True)


def queued(group: Any) -> str:
    """While rank 1 stands still, rank 0 sends as much as may be in flight, and more."""
    pids = group.all_gather(np.array([os.getpid()]))
    if group.rank == 1:
        number = int(group.recv(0, tag=1))
        for i in range(number):
            agree(group.recv(0), np.array(i), i)
        return ""
    number = 0

    def send_all() -> None:
        nonlocal number
        while number < 2 * MOST_IN_FLIGHT:
            group.send(number, 1, async_op=True, timeout=0.2)
            number += 1

    first = group.send(np.arange(MIB), 1, tag=9, async_op=True)
    os.kill(int(pids[1]), signal.SIGSTOP)
    try:
        error = raised(hocket.CollectiveTimeout, send_all)
    finally:
        os.kill(int(pids[1]), signal.SIGCONT)
    assert number >= MOST_IN_FLIGHT - 1
    assert not first.done()
    group.send(number, 1, tag=1, timeout=60)
    return str(error)


def test_more_sends_than_may_be_in_flight_wait_until_their_deadline(world: Worlds) -> None:
    here = World(2, world.transport, HOCKET_HEARTBEAT_TIMEOUT="60")  # on a busy machine so many sends take long
    text = here.run(queued)[0]
    here.close()
    for word in ("send(dst=1, tag=0)", "0.2 s", "rank 1", "65536 sends are in flight"):
        assert word in text, text


def many(group: Any, number: int) -> float:
    """Receives that are all posted before the first message comes, and looked at while they wait. The time is what this
    process computed, and not what others of this machine did meanwhile."""
    group.barrier()
    start = time.process_time()
    if group.rank == 1:
        works = [group.recv(None if i % 3 else 0, tag=i, async_op=True) for i in range(number)]
        assert not any(work.done() for work in works)
        group.send(0, 0)
        for i in reversed(range(number)):
            assert works[i].wait() == i
        assert all(work.done() for work in works)
    else:
        group.recv(1)
        works = [group.send(i, 1, tag=i, async_op=True) for i in reversed(range(number))]
        for work in works:
            work.wait()
    return time.process_time() - start


def test_many_posted_receives_take_time_in_proportion(world: Worlds) -> None:
    world(2).run(many, 1000)
    few, lots = (max(world(2).run(many, number)) for number in (8000, 32000))
    assert lots < 10 * few


# ---- memory ---------------------------------------------------------------------------------------------------------


def no_memory(group: Any) -> None:
    """Memory runs out in the receiver: for that message it does, and for no other."""
    if group.rank == 0:
        for _ in range(2):
            huge = group.send(np.zeros(256 * MIB, np.uint8), 1, tag=1, async_op=True)
            group.send(np.arange(3), 1, tag=2)
            huge.wait()
            assert group.recv(1) == 1
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    for later in (False, True):
        gc.collect()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 64 * MIB, before[1]))
        try:
            if later:
                work = group.recv(0, tag=1, async_op=True)
                assert isinstance(work.exception(), MemoryError)
                assert isinstance(work.exception(), MemoryError)  # for good
            else:
                with pytest.raises(MemoryError):
                    group.recv(0, tag=1)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        agree(group.recv(0, tag=2), np.arange(3))
        group.send(1, 0)


def test_a_message_too_large_for_memory_is_a_memory_error_and_no_more(world: Worlds) -> None:
    world(2).run(no_memory, fresh=True)


# ---- time, and what a Work tells ------------------------------------------------------------------------------------


def timeouts(group: Any) -> None:
    other = 1 - group.rank
    for seconds in (math.inf, 1e10, 1e300):
        group.send(np.arange(3), other, timeout=seconds)
        agree(group.recv(other, timeout=seconds), np.arange(3))
        work = group.recv(other, async_op=True, timeout=seconds)
        group.send(7, other, async_op=True).wait(seconds)
        assert work.wait(seconds) == 7
    for call in (lambda t: group.send(1, other, timeout=t), lambda t: group.recv(other, timeout=t)):
        for seconds in (math.nan, 0, -1.0, -math.inf):
            with pytest.raises(ValueError, match="seconds"):
                call(seconds)
    work = group.recv(other, async_op=True)
    with pytest.raises(ValueError, match="nan"):
        work.wait(math.nan)
    assert not work.done()  # that was no wait
    group.barrier()
    group.send(8, other)
    assert work.wait() == 8
    group.barrier()


def test_timeouts_of_all_kinds(world: Worlds) -> None:
    world(2).run(timeouts)


def sources(group: Any) -> None:
    other = 1 - group.rank
    for src in (other, None):
        work = group.recv(src, tag=int(src is None), async_op=True)
        assert type(raised(hocket.HocketError, lambda work=work: work.source)) is hocket.HocketError
        group.barrier()
        group.send(group.rank, other, tag=int(src is None))
        assert work.wait() == other
        assert work.source == other
    sent = group.send(1, group.rank, async_op=True)
    sent.wait()
    assert "send" in str(raised(hocket.HocketError, lambda: sent.source))
    group.recv(group.rank)
    lost = group.recv(other, tag=5, async_op=True)
    assert isinstance(lost.exception(timeout=0.01), hocket.CollectiveTimeout)
    assert lost.done()
    assert isinstance(lost.exception(), hocket.CollectiveTimeout)  # for good
    assert "recv" in str(raised(hocket.HocketError, lambda: lost.source))
    wrong = group.recv(group.rank, out=np.empty(3), async_op=True)
    group.send(np.ones(4), group.rank)
    assert isinstance(wrong.exception(), hocket.MismatchError)
    assert wrong.source == group.rank
    group.barrier()


def test_a_work_tells_its_source_once_there_is_one(world: Worlds) -> None:
    world(2).run(sources)


def forked(group: Any) -> None:
    """A child that was forked while messages were in flight ends without harm to them."""
    other = 1 - group.rank
    stop = threading.Event()

    def busy() -> None:
        i = 0
        while not stop.is_set():
            group.send(i, group.rank, tag=50)
            assert group.recv(group.rank, tag=50) == i
            i += 1

    thread = threading.Thread(target=busy)
    thread.start()
    work = group.recv(other, async_op=True)
    held = [group.recv(other, tag=9, async_op=True)]
    for _ in range(10):
        child = os.fork()
        if child == 0:
            held.clear()
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    thread.join()
    group.send(3, other)
    assert work.wait() == 3
    group.send(4, other, tag=9)
    assert held[0].wait() == 4
    group.barrier()


def test_a_forked_child_leaves_messages_alone(world: Worlds) -> None:
    world(2).run(forked)
