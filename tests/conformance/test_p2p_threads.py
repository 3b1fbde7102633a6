"""Messages under threads and signals: whatever becomes of a Work or an array in Python, no byte is another's."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from oracles import agree

import hocket
from worlds import Worlds, raised

THREADS = 6
COUNTS = (0, 1, 7, 1000, 9000, 20_000)  # float64: some fit into a stream many times, of some only three do


@contextlib.contextmanager
def restless() -> Iterator[None]:
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def together(body: Callable[[int], None], number: int = THREADS) -> None:
    """Runs `body(i)` in as many threads, and raises the first error of any."""
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            body(i)
        except BaseException as error:
            errors.append(error)

    with restless():
        threads = [threading.Thread(target=run, args=(i,)) for i in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def content(rank: int, thread: int, i: int) -> np.ndarray:
    """Differs by who sent it, and from place to place."""
    return np.arange(COUNTS[(i * 7 + thread) % len(COUNTS)]) + 1e6 * rank + 1e9 * thread + 1e12 * i


def dropped_sends(group: Any, number: int) -> None:
    """Nobody keeps a Work, nor the array, whose memory others fill with something else as soon as it is free."""

    def send(thread: int) -> None:
        for i in range(number):
            x = content(0, thread, i)
            if i % 16 == 15:
                group.send(x, 1, tag=thread)
                x[:] = -1  # it may be changed again
            else:
                group.send(x, 1, tag=thread, async_op=True)
            size = x.size
            del x
            np.full(size, -2.0)
            if i % 50 == 0:
                gc.collect()

    if group.rank == 0:
        together(send)
        group.recv(1)
    else:
        for i in range(number):
            for thread in range(THREADS):
                agree(group.recv(0, tag=thread), content(0, thread, i), thread, i)
        group.send(1, 0)


def test_dropped_sends_carry_their_own_memory(world: Worlds) -> None:
    world(2).run(dropped_sends, 300)


def forgotten_receives(group: Any, number: int, seed: int) -> None:
    """Works of receives are dropped, sometimes their arrays too. Each takes its message all the same."""
    other = 1 - group.rank

    def body(thread: int) -> None:
        rng = np.random.default_rng([seed, group.rank, thread])
        kept = []
        for i in range(number):
            expected = content(other, thread, i)
            kind = rng.integers(5)
            if kind == 0:
                agree(group.recv(other, tag=thread, out=np.empty_like(expected)), expected, thread, i)
            elif kind == 1:
                group.recv(other, tag=thread, async_op=True)
            elif kind == 2:
                group.recv(other, tag=thread, async_op=True, out=np.empty_like(expected))
            elif kind == 3:
                out = np.empty((expected.size, 2))[:, 0]
                agree(group.recv(other, tag=thread, async_op=True, out=out).wait(), expected, thread, i)
            else:
                out = np.empty_like(expected)
                group.recv(other, tag=thread, async_op=True, out=out)
                kept.append((i, out))
            np.full(expected.size, -2.0)
            if i % 50 == 0:
                gc.collect()
        group.recv(other, tag=thread)  # in order: all others have come
        for i, out in kept:
            agree(out, content(other, thread, i), thread, i)

    def send(thread: int) -> None:
        for i in range(number + 1):
            group.send(content(group.rank, thread, i), other, tag=thread)

    together(lambda i: body(i) if i < THREADS else send(i - THREADS), 2 * THREADS)


def test_forgotten_receives_take_their_messages(world: Worlds) -> None:
    world(2).run(forgotten_receives, 150, 7)


class Memory(bytearray):
    """It can be referred to weakly, and is freed as soon as nobody has it."""


def held(group: Any) -> None:
    """What an operation holds is let go of once it is over, and no sooner."""
    memory = Memory(4_000_000)
    x, alive = np.frombuffer(memory), weakref.ref(memory)
    del memory
    if group.rank == 0:
        group.send(x, 1, async_op=True)
    else:
        group.recv(0, out=x, async_op=True)
    del x
    assert alive() is not None
    group.barrier()
    if group.rank == 0:
        group.send(1, 1, tag=1)  # which comes behind the other
    else:
        group.recv(0, tag=1)
    group.barrier()
    group.send(1, group.rank, async_op=True).wait()
    group.recv(group.rank)
    assert alive() is None


def test_memory_is_held_as_long_as_it_is_used(world: Worlds) -> None:
    world(2).run(held)


def closing(group: Any) -> int:
    """One thread closes the group while others send and wait for what never comes."""
    if group.rank == 1:
        number = 0

        def receive_all() -> None:
            nonlocal number
            while True:
                got = group.recv(0)
                agree(got, np.arange(got.size) + got[0], number)
                number += 1

        raised(hocket.PeerLost, receive_all)
        return number
    waiting, began = [group.recv(1, tag=9, async_op=True), group.recv(1, tag=9, out=np.empty(3), async_op=True)], []

    def body(thread: int) -> None:
        i = 0
        try:
            while True:
                if i == 30:
                    began.append(thread)
                if len(began) >= THREADS - 1 and thread == 0:
                    group.close()
                group.send(np.arange(1 + i % 900) + i, 1, async_op=i % 2 == 0)
                i += 1
        except hocket.GroupBroken:
            pass

    together(body)
    for work in waiting:
        error = work.exception()
        assert isinstance(error, hocket.GroupBroken), error
        assert "closed" in str(error)
    for call in (lambda: group.send(1, 1), lambda: group.recv(1), lambda: group.send(1, 0, async_op=True)):
        raised(hocket.GroupBroken, call)
    return 0


def test_closing_while_others_send(world: Worlds) -> None:
    assert world(2).run(closing, fresh=True)[1] > 0


def blocked_when_closed(group: Any) -> str:
    """A receive that waits in another thread when the group is closed ends at once."""
    texts = []
    if group.rank == 0:
        ready = threading.Event()

        def wait() -> None:
            work = group.recv(1, async_op=True)
            ready.set()
            texts.append(str(raised(hocket.GroupBroken, work.wait)))

        thread = threading.Thread(target=wait)
        thread.start()
        ready.wait()
        group.close()
        thread.join(10)
        assert not thread.is_alive()
    return "".join(texts)


def test_closing_ends_a_receive_of_another_thread(world: Worlds) -> None:
    assert "closed" in world(2).run(blocked_when_closed, fresh=True)[0]


# ---- one Work, several that wait for it -----------------------------------------------------------------------------


def shared_work(group: Any) -> None:
    other = 1 - group.rank
    for i, count in enumerate((3, 0, 200_000)):
        x = np.arange(count) + i + 10.0 * group.rank
        for out in (None, np.empty(count), np.empty((count, 2))[:, 1]):
            work = group.recv(other, out=out, async_op=True)
            got: list[Any] = []

            def wait(_: int, work: Any = work, got: list[Any] = got) -> None:
                got.append(work.wait())

            def send_or_wait(thread: int, x: np.ndarray = x, wait: Any = wait) -> None:
                wait(thread) if thread else group.send(x, other)

            together(send_or_wait, 4)
            assert len(got) == 3
            assert all(each is got[0] for each in got)
            assert out is None or got[0] is out
            agree(got[0], np.arange(count) + i + 10.0 * other)
            got[0][:] = -1
            assert work.wait() is got[0]  # a second time
            assert (got[0] == -1).all()  # and what came is not written again
            assert work.done()
            assert work.exception() is None
            assert work.source == other


def test_several_threads_wait_for_one_work(world: Worlds) -> None:
    world(2).run(shared_work)


# ---- signals --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def handling(handler: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR2, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, before)


def pid_of_rank_0(group: Any) -> int:
    return int(group.all_gather(np.array([os.getpid()]))[0])


def nested(group: Any, large: bool) -> None:
    """A receive is interrupted by a handler that sends and receives in the same group, and goes on."""
    x = np.arange(300_000 if large else 3.0)
    if group.rank == 0:
        inside = []

        def handler() -> None:
            group.send(x + 2, 1, tag=2)
            inside.append(group.recv(1, tag=3))
            inside.append(group.recv(1, tag=4, out=np.empty_like(x)))

        with handling(handler):
            pid_of_rank_0(group)
            got = group.recv(1, tag=1)
        agree(got, x + 1)
        agree(inside[0], x + 3)
        agree(inside[1], x + 4)
    else:
        os.kill(pid_of_rank_0(group), signal.SIGUSR2)
        agree(group.recv(0, tag=2), x + 2)
        group.send(x + 3, 0, tag=3)
        group.send(x + 4, 0, tag=4)
        group.send(x + 1, 0, tag=1)
    group.barrier()


@pytest.mark.parametrize("large", [False, True])
def test_a_handler_sends_and_receives_in_the_middle_of_a_receive(world: Worlds, large: bool) -> None:
    world(2).run(nested, large)


def same_work(group: Any) -> None:
    """The handler waits for the very message that it interrupts the wait for."""
    pid = pid_of_rank_0(group)
    if group.rank == 0:
        inside = []
        for out in (None, np.empty(5), np.empty((5, 2))[:, 0]):
            work = group.recv(1, tag=1, out=out, async_op=True)

            def handler(work: Any = work) -> None:
                group.send(0, 1, tag=2)
                inside.append(work.wait())

            with handling(handler):
                group.send(0, 1, tag=3)
                got = work.wait()
                assert got is inside.pop()
                agree(got, np.arange(5.0))
    else:
        for _ in range(3):
            group.recv(0, tag=3)
            os.kill(pid, signal.SIGUSR2)
            group.recv(0, tag=2)
            group.send(np.arange(5.0), 0, tag=1)
    group.barrier()


def test_a_handler_waits_for_the_work_that_it_interrupts(world: Worlds) -> None:
    world(2).run(same_work)


class Alarm(Exception):
    pass


def interrupted(group: Any) -> None:
    """What a handler raises comes out of the wait; that message is given up, and all else goes on."""
    pid = pid_of_rank_0(group)
    if group.rank == 0:

        def handler() -> None:
            raise Alarm

        def ask_and(wait: Callable[..., Any], *args: Any, **options: Any) -> None:
            group.send(True, 1, tag=2)
            wait(*args, **options)

        for out in (None, np.zeros(4)):
            work = group.recv(1, tag=1, out=out, async_op=True)
            with handling(handler):
                while not work.done():  # the handler may have come before the wait
                    raised(Alarm, ask_and, work.wait)
                raised(Alarm, ask_and, group.recv, 1, tag=1, out=out)
            error = work.exception()
            assert type(error) is hocket.HocketError, error
            assert "interrupted" in str(error)
            group.send(False, 1, tag=2)
            agree(group.recv(1, tag=1), np.arange(4.0))
            assert out is None or (out == 0).all()
    else:
        for _ in range(2):
            while group.recv(0, tag=2):
                os.kill(pid, signal.SIGUSR2)
            group.send(np.arange(4.0), 0, tag=1)
    group.barrier()


def test_an_interrupted_receive_is_given_up_and_the_group_goes_on(world: Worlds) -> None:
    world(2).run(interrupted)
