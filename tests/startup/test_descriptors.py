"""Descriptors that are used up: init either works or says so, leaves nothing, and works when there are some again."""

from __future__ import annotations

import errno
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from launching import open_descriptors

import hocket
from hocket.errors import PeerLost, RendezvousError
from hocket.launch.spawn import spawn
from hocket.rendezvous.links import forget_doors
from hocket.rendezvous.sockets import explained


@contextmanager
def few(free: int) -> Iterator[None]:
    """This process can open so many descriptors more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = [os.dup(0) for _ in range(free + 1)]
    for fd in lowest:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def total(group: Any) -> int:
    return int(group.all_reduce(np.array([group.rank + 1]))[0])


def starve(victim: int, most: int) -> list[str]:
    """The victim's outcomes, for each number of free descriptors. The others try until they meet it; then all do."""
    rank = int(os.environ["RANK"])
    outcomes = []
    with hocket.init(timeout=20.0) as group:  # what is read once, is
        assert total(group) == group.size * (group.size + 1) // 2
    gc.collect()
    before = open_descriptors()
    if rank == victim:
        for free in range(most):
            try:
                with few(free), hocket.init(timeout=0.3):
                    outcomes.append("works")
            except RendezvousError as error:
                outcomes.append(str(error))
            forget_doors()
            assert open_descriptors() <= before, free
    return outcomes


def alone() -> tuple[list[str], int]:
    outcomes = starve(0, 21)
    with hocket.init(timeout=20.0) as group:
        return outcomes, total(group)


def test_a_world_of_one() -> None:
    ((outcomes, result),) = spawn(alone, 1)
    assert result == 1
    assert outcomes[-1] == "works"
    check_words([outcome for outcome in outcomes if outcome != "works"])


def check_words(failures: list[str]) -> None:
    assert failures
    for words in failures:
        assert "used up its file descriptors: " in words or "did not arrive" in words or "could not be" in words, words
        assert "different hosts" not in words
    first = failures[0]
    assert "this process has used up its file descriptors: " in first
    assert "are allowed (ulimit -n)" in first


def with_others(victim: int) -> tuple[list[str], int]:
    """The others come only when the victim has enough: it finds their cards missing, or no descriptors, before."""
    outcomes = starve(victim, 21)
    with hocket.init(timeout=60.0) as group:
        return outcomes, total(group)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_starved_meets_the_others_later(victim: int) -> None:
    found = spawn(with_others, 3, (victim,))
    assert [result for _, result in found] == [6, 6, 6]
    check_words(found[victim][0])
    assert not any(outcome == "works" for outcome in found[victim][0])


def starved_amid_others(victim: int) -> tuple[list[str], int]:
    """All try to meet at the same time, with ever more descriptors for the victim, until that succeeds on all."""
    rank = int(os.environ["RANK"])
    failures = []
    with hocket.init(timeout=20.0) as group:
        total(group)
    gc.collect()
    before = open_descriptors()
    free = 0
    while True:
        try:
            with few(free if rank == victim else 60):
                group = hocket.init(timeout=30.0 if rank != victim or free > 40 else 2.0)
        except RendezvousError as error:
            failures.append(str(error))
            assert len(open_descriptors() - before) <= 1  # the door, for the next try
            free += 1
            continue
        with group:
            return failures, total(group)


@pytest.mark.parametrize("victim", [0, 2])
def test_ranks_meet_as_soon_as_the_starved_one_has_enough(victim: int) -> None:
    found = spawn(starved_amid_others, 3, (victim,))
    assert [result for _, result in found] == [6, 6, 6]
    check_words(found[victim][0])
    assert len(found[victim][0]) > 5


def test_no_bare_error_gets_out_and_no_error_of_ours_is_changed() -> None:
    with pytest.raises(RendezvousError, match=r"^this: .*fs\.file-max"), explained("this"):
        raise OSError(errno.ENFILE, "words")
    with pytest.raises(RendezvousError, match=r"^this: \[Errno 12\] words"), explained("this"):
        raise OSError(errno.ENOMEM, "words")
    with pytest.raises(PeerLost, match="ours"), explained("this"):
        raise PeerLost("ours")
