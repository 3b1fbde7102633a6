"""Subgroups come about over the parent's sockets: in any timing, and whoever dies meanwhile."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import resource
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest
from launching import SECRET, check_linked, open_descriptors

import hocket
from hocket.config import Config
from hocket.deadline import Deadline
from hocket.errors import CollectiveTimeout, PeerLost, RendezvousError
from hocket.rendezvous import parcels
from hocket.rendezvous.join import join
from hocket.rendezvous.links import Links
from hocket.rendezvous.server import StoreServer
from hocket.rendezvous.subgroups import _HEADER, Part, form, meet

SOON = 2.0  # seconds: generous; a death is noticed as soon as the kernel tells of it


# ---- meet, of ranks that are threads ----


@pytest.fixture
def parent(address: str, server: StoreServer) -> Iterator[list[Links]]:
    """The links of four ranks."""
    with parents(address, 4) as found:
        yield found


@contextmanager
def parents(address: str, size: int) -> Iterator[list[Links]]:
    def rank(r: int) -> Links:
        with memory() as fd:
            return join(Config(r, size, r, size, address, SECRET, "hocket run", 20.0), fd)

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(rank, range(size)))
    yield found
    for links in found:
        links.close()


@contextmanager
def memory(text: str = "") -> Iterator[int]:
    fd = os.memfd_create("test")
    try:
        os.write(fd, text.encode())
        yield fd
    finally:
        os.close(fd)


def nothing(_: list[int]) -> None: ...


def enter(
    links: Links, members: list[int], own: int, number: int, seconds: float = 20.0, look: Callable[..., None] = nothing
) -> Links:
    with memory(f"{number}: memory of {own}") as fd:
        return meet(Part(members.index(own), members, number), links, fd, Deadline(seconds), look)


def check(found: dict[int, Links], members: list[int], number: int) -> None:
    """Memory, sockets and processes are those of the members, in their order; nothing is the parent's."""
    for r, links in found.items():
        assert [os.pread(fd, 99, 0).decode() for fd in links.fds] == [f"{number}: memory of {q}" for q in members]
        assert links.sockets[members.index(r)] is None
        assert links.pidfds[members.index(r)] == -1
        assert links.pids == [os.getpid()] * len(members)
        assert not any(os.get_inheritable(fd) for fd in [*links.fds, *links.pidfds] if fd >= 0)
    check_linked([found[r] for r in members], close=False)


@pytest.mark.parametrize("members", [[2], [1, 3], [3, 1], [2, 0, 3], [0, 1, 2, 3], [3, 2, 1, 0]])
def test_members_are_linked_in_the_order_given(parent: list[Links], members: list[int]) -> None:
    with ThreadPoolExecutor(4) as pool:
        for number in range(3):
            calls = {r: pool.submit(enter, parent[r], members, r, number) for r in members}
            found = {r: call.result() for r, call in calls.items()}
            check(found, members, number)
            for links in found.values():
                links.close()


def test_parent_and_child_are_closed_in_any_order(parent: list[Links]) -> None:
    with ThreadPoolExecutor(4) as pool:
        calls = {r: pool.submit(enter, parent[r], [0, 1, 2, 3], r, 0) for r in range(4)}
        found = {r: call.result() for r, call in calls.items()}
    for links in parent:
        links.close()
    check(found, [0, 1, 2, 3], 0)
    for links in found.values():
        links.close()


def test_one_may_be_formations_ahead_of_the_others(parent: list[Links]) -> None:
    """Rank 0 is in three subgroups with others, one after the other, which come in the opposite order; and in a fourth
    with all, to which the others come while it still waits in the first."""
    parts = [[0, 1], [0, 2], [0, 3], [0, 1, 2, 3]]
    order = {0: [0, 1, 2, 3], 1: [0, 3], 2: [1, 3], 3: [2, 3]}
    start = {r: threading.Event() for r in range(4)}

    def rank(r: int) -> dict[int, Links]:
        assert start[r].wait(20)
        if r > 1:
            start[r - 1].set()
        return {number: enter(parent[r], parts[number], r, number) for number in order[r]}

    begun = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        calls = {r: pool.submit(rank, r) for r in range(1, 4)}
        first = pool.submit(lambda: {0: enter(parent[0], parts[0], 0, 0, look=lambda _: begun.set())})
        assert begun.wait(20)
        start[3].set()
        zero = first.result() | {n: enter(parent[0], parts[n], 0, n) for n in order[0][1:]}
        found = {0: zero, **{r: call.result() for r, call in calls.items()}}
    for number, members in enumerate(parts):
        check({r: found[r][number] for r in members}, members, number)
        for r in members:
            found[r][number].close()


def test_parcels_that_come_in_pieces_and_do_not_fit_the_socket(parent: list[Links]) -> None:
    """Byte by byte, and with a stream that is full before."""
    sock = parent[1].sockets[0]
    assert sock is not None
    with memory("piecemeal") as fd, ThreadPoolExecutor(1) as pool:
        looked = threading.Event()
        waiting = pool.submit(enter, parent[0], [1, 0], 0, 7, look=lambda _: looked.set())
        header = _HEADER.pack(b"hocket/1", 7, 1)
        socket.send_fds(sock, [header[:1]], [fd])
        for i in range(1, len(header)):
            looked.clear()
            assert looked.wait(20)
            sock.send(header[i : i + 1])
        with closing(waiting.result()) as links:
            assert os.pread(links.fds[0], 99, 0) == b"piecemeal"
        taken = socket.recv_fds(sock, len(header), 2)
        assert taken[0] == _HEADER.pack(b"hocket/1", 7, 0)
        for fd in taken[1]:
            os.close(fd)


def test_a_full_socket_is_waited_for(parent: list[Links]) -> None:
    ours, theirs = parent[0].sockets[1], parent[1].sockets[0]
    assert ours is not None
    assert theirs is not None
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += ours.send(bytes(4096))
    with ThreadPoolExecutor(2) as pool:
        looked = threading.Event()
        waiting = pool.submit(enter, parent[0], [0, 1], 0, 1, look=lambda _: looked.set())
        assert looked.wait(20)
        while filled:
            filled -= len(theirs.recv(min(filled, 1 << 16)))
        found = {1: enter(parent[1], [0, 1], 1, 1), 0: waiting.result()}
    check(found, [0, 1], 1)
    for links in found.values():
        links.close()


@pytest.mark.parametrize(
    "header",
    [
        _HEADER.pack(b"hocket/1", 3, 1),
        _HEADER.pack(b"hocket/1", 4, 2),
        _HEADER.pack(b"whatever", 4, 1),
        bytes(_HEADER.size),
    ],
    ids=["another formation", "another rank", "another magic", "zeros"],
)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_does_not_fit_is_refused(parent: list[Links], header: bytes, count: int) -> None:
    before = open_descriptors()
    sock = parent[1].sockets[0]
    assert sock is not None
    with memory() as fd:
        socket.send_fds(sock, [header], [fd] * count)
        with pytest.raises(RendezvousError, match=r"rank 1 \(pid .*\) formed another subgroup than rank 0 \(pid"):
            enter(parent[0], [0, 1], 0, 4)
    gc.collect()
    assert open_descriptors() <= before


def test_the_deadline_names_who_is_missing(parent: list[Links]) -> None:
    before = open_descriptors()
    waited: set[int] = set()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(enter, parent[r], [0, 1, 2, 3], r, 0, 0.3, look=waited.update) for r in (0, 2)]
        for r, call in zip((0, 2), calls, strict=True):
            error = call.exception()
            assert isinstance(error, CollectiveTimeout)
            text = str(error)
            assert text.startswith(f"rank {r} (pid {os.getpid()} on ")
            assert "timed out after 0.3 s of waiting for a subgroup, in vain for rank 1 (pid " in text
            assert ", rank 3 (pid " in text
            assert "rank 0" not in text[9:] or r != 0
    assert waited == {0, 1, 2, 3}
    assert open_descriptors() <= before


def test_a_look_that_raises_ends_the_wait(parent: list[Links]) -> None:
    before = open_descriptors()
    looks: list[float] = []

    def look(waiting: list[int]) -> None:
        assert waiting == [1, 3]
        looks.append(time.monotonic())
        if len(looks) == 10:
            raise KeyError("the parent is broken")

    with pytest.raises(KeyError, match="the parent is broken"):
        enter(parent[2], [1, 3, 2], 2, 0, look=look)
    assert looks[-1] - looks[0] < SOON
    assert open_descriptors() <= before


def test_one_that_leaves_the_parent_is_named(parent: list[Links]) -> None:
    with ThreadPoolExecutor(1) as pool:
        looked = threading.Event()
        waiting = pool.submit(enter, parent[0], [0, 1, 3], 0, 0, look=lambda _: looked.set())
        assert looked.wait(20)
        parent[3].close()
        error = waiting.exception(20)
    assert isinstance(error, PeerLost)
    assert "rank 3 (pid " in str(error)
    assert "left the group" in str(error)


def test_descriptors_used_up_at_every_point(parent: list[Links]) -> None:
    """Either way nothing is kept."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_descriptors()
    failed = 0
    with memory() as fd:
        for free in range(12):
            with ThreadPoolExecutor(2) as pool:
                calls = [
                    pool.submit(meet, Part(i, [0, 1], free), parent[i], fd, Deadline(0.5), nothing) for i in (0, 1)
                ]
                lowest = os.dup(0)
                os.close(lowest)
                try:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, hard))
                    outcomes = [call.exception() for call in calls]
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for call, error in zip(calls, outcomes, strict=True):
                if error is None:
                    call.result().close()
                else:
                    failed += 1
                    assert isinstance(error, (RendezvousError, CollectiveTimeout)), error
            for links in parent:  # what the other one left in the streams
                for sock in links.sockets:
                    with suppress(BlockingIOError):
                        while sock is not None:
                            sock.recv(1 << 16)
    assert open_descriptors() <= before


def test_form_orders_by_key_and_counts_for_those_without_a_colour() -> None:
    rows = np.array([[1, 5, 9], [0, 0, 0], [1, 5, -9], [1, 6, 0], [1, 5, 9]])
    found = []
    for r, (has, color, key) in enumerate(rows.tolist()):
        links = Links([0] * 5, [None if q == r else socket.socket() for q in range(5)], [], [], [], [], [], 5)
        found += [
            (r, number, form(links, lambda row: rows, color if has else None, key, Deadline(9))) for number in range(2)
        ]
        links.close()
    for r, number, part in found:
        members = [[2, 0, 4], None, [2, 0, 4], [3], [2, 0, 4]][r]
        assert part == (None if members is None else Part(members.index(r), members, number))


# ---- whole groups, of processes ----

Rank = Callable[[Any, Connection], None]


@contextmanager
def job(size: int, work: Rank) -> Iterator[tuple[list[Any], list[Connection]]]:
    """Forked ranks that run `work(group, pipe)`; killed at the end."""
    context = multiprocessing.get_context("fork")
    name = secrets.token_hex(8)
    processes, pipes = [], []
    for rank in range(size):
        here, there = context.Pipe()
        processes.append(context.Process(target=_rank, args=(rank, size, name, work, there)))
        processes[-1].start()
        there.close()
        pipes.append(here)
    try:
        yield processes, pipes
    finally:
        for process, pipe in zip(processes, pipes, strict=True):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its children too
            process.join(20)
            process.close()
            pipe.close()


def _rank(rank: int, size: int, name: str, work: Rank, pipe: Connection) -> None:
    os.setpgrp()
    place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": 1}
    os.environ.update({key: str(value) for key, value in place.items()}, MASTER_ADDR=name)
    work(hocket.init(timeout=60.0), pipe)


def report(group: Any, pipe: Connection, call: Callable[[], Any]) -> None:
    """Tell which error the call raises and when, and stay."""
    try:
        call()
        outcome = ("nothing", "")
    except Exception as error:
        outcome = (type(error).__name__, str(error))
    pipe.send((*outcome, time.monotonic()))
    signal.pause()


def splits_for_ever(group: Any, pipe: Connection) -> None:
    group.barrier()
    pipe.send("begun")

    def call() -> None:
        kept: list[Any] = []
        while True:
            kept = [group.split(0, -group.rank), group.subgroup([3, 1, 2, 0]), *kept[:2]]
            for old in kept[2:]:
                old.close()

    report(group, pipe, call)


def check_named(outcomes: dict[int, Any], victim: int, pid: int, since: float) -> None:
    for rank, (kind, text, when) in outcomes.items():
        print(f"rank {rank}: {1000 * (when - since):.1f} ms after the death: {kind}: {text}")
    for kind, text, when in outcomes.values():
        assert kind == "PeerLost"
        assert f"rank {victim} (pid {pid} on " in text
        assert when - since < SOON


@pytest.mark.parametrize("turn", range(6))
def test_a_rank_killed_at_a_random_point_of_forming_subgroups_is_named(turn: int) -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    victim, delay = draw.randrange(4), draw.random() / 20
    print(f"seed {seed}: rank {victim} dies after {delay:.6f} s")
    with job(4, splits_for_ever) as (processes, pipes):
        assert [pipe.recv() for pipe in pipes] == ["begun"] * 4
        threading.Event().wait(delay)
        since = time.monotonic()
        processes[victim].kill()
        outcomes = {r: pipe.recv() for r, pipe in enumerate(pipes) if r != victim and pipe.poll(20)}
        assert len(outcomes) == 3
        check_named(outcomes, victim, processes[victim].pid, since)


def dies_inside(victim: int, sent: int, group: Any, pipe: Connection) -> None:
    """The victim has a child that holds its sockets, and dies when it has sent so many of its three parcels."""
    if group.rank == victim:
        if os.fork() == 0:
            signal.pause()
        original, pushed = parcels.Outgoing.push, []

        def push(parcel: parcels.Outgoing) -> bool:
            if len(pushed) == sent:
                pipe.send(time.monotonic())
                os.kill(os.getpid(), signal.SIGKILL)
            pushed.append(parcel)
            return original(parcel)

        parcels.Outgoing.push = push  # type: ignore[method-assign]
    group.barrier()
    report(group, pipe, lambda: group.split(0, 0))


@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_a_rank_that_dies_inside_is_named_though_its_child_lives(victim: int, sent: int) -> None:
    """By those that still need something of it. The others have all they need, and may learn of it later."""
    with job(4, partial(dies_inside, victim, sent)) as (processes, pipes):
        since = pipes[victim].recv()
        outcomes = {r: pipe.recv() for r, pipe in enumerate(pipes) if r != victim and pipe.poll(20)}
        assert len(outcomes) == 3
        served = sorted(outcomes)[:sent]
        assert all(outcomes[rank][0] in ("nothing", "PeerLost") for rank in served)
        named = {rank: outcome for rank, outcome in outcomes.items() if rank not in served or outcome[0] == "PeerLost"}
        check_named(named, victim, processes[victim].pid, since)


def come_and_go(group: Any, pipe: Connection) -> None:
    """The descriptors after so many splits, and after three hundred more."""
    counts = []
    for times in (20, 150, 150):
        for turn in range(times):
            part = group.split(None if group.rank == turn % 9 else turn % 2, -group.rank)
            if part is not None:
                assert part.all_gather(group.rank).tolist() == [r for r in (3, 2, 1, 0) if r != turn % 9]
                part.close()
        part = None  # its own memory goes with its last reference
        gc.collect()
        counts.append(len(open_descriptors()))
    pipe.send(counts)


def test_three_hundred_splits_leak_no_descriptor() -> None:
    with job(4, come_and_go) as (_, pipes):
        for pipe in pipes:
            assert pipe.poll(120)
            first, *later = pipe.recv()
            assert later == [first, first]


def at_once(group: Any, pipe: Connection) -> None:
    """Two threads form subgroups of two different groups that hold the same ranks, in whatever order."""
    other = group.split(0, 0)
    grand = other.split(0, 0)

    def thread(base: Any, count: int) -> list[list[int]]:
        found = []
        for turn in range(count):
            part = base.split(turn % 2, -base.rank)
            found.append(part.all_gather(group.rank * 10 + turn).tolist())
            part.close()
        return found

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(thread, base, 20) for base in (group, other, grand)]
        pipe.send([call.result() for call in calls])
    signal.pause()


def test_subgroups_of_several_groups_at_once() -> None:
    expected = [[rank * 10 + turn for rank in (3, 2, 1, 0)] for turn in range(20)]
    with job(4, at_once) as (_, pipes):
        for pipe in pipes:
            assert pipe.poll(100)
            assert pipe.recv() == [expected] * 3
