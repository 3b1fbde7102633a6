"""Descriptors that are used up: init either works or says so, leaves nothing, and works when there are some again."""

from __future__ import annotations

import errno
import gc
import os
import re
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


def held() -> set[str]:
    """What this process has open, when all is read that is read once."""
    with hocket.init(timeout=60.0) as group:
        total(group)
    gc.collect()
    return open_descriptors()


def alone() -> list[str]:
    """What init says with so many free descriptors."""
    before = held()
    outcomes = []
    for free in range(21):
        try:
            with few(free), hocket.init(timeout=20.0) as group:
                outcomes.append(f"works: {total(group)}")
        except RendezvousError as error:
            outcomes.append(str(error))
        assert open_descriptors() <= before, free
    with hocket.init(timeout=20.0) as group:
        return [*outcomes, f"works: {total(group)}"]


def test_a_world_of_one() -> None:
    (outcomes,) = spawn(alone, 1)
    assert len(outcomes) == 22
    assert outcomes[-2:] == ["works: 1"] * 2
    failures = [outcome for outcome in outcomes if outcome != "works: 1"]
    assert outcomes[: len(failures)] == failures  # what is enough remains so
    check_words(failures)


def check_words(failures: list[str]) -> None:
    assert failures
    for words in failures:
        assert re.search(r"this process has used up its file descriptors: \d+ are allowed \(ulimit -n\)", words), words
        assert "different hosts" not in words


def among_others(victim: int) -> tuple[list[str], int]:
    """The victim tries with ever more descriptors. The others wait in one init for it, from the beginning."""
    before = held()
    failures: list[str] = []
    while True:
        try:
            with few(len(failures) if group_rank() == victim else 64):
                group = hocket.init(timeout=60.0)
        except RendezvousError as error:
            failures.append(str(error))
            assert len(open_descriptors() - before) <= 1, failures  # its door, for the next try
            continue
        with group:
            result = total(group)
        assert open_descriptors() <= before
        return failures, result


def group_rank() -> int:
    return int(os.environ["RANK"])


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_that_is_starved_says_so_and_meets_the_others_as_soon_as_it_has_enough(victim: int) -> None:
    found = spawn(among_others, 3, (victim,))
    assert [result for _, result in found] == [6, 6, 6]
    assert [len(failures) > 5 for failures, _ in found] == [rank == victim for rank in range(3)]
    assert [len(failures) for failures, _ in found].count(0) == 2
    check_words(found[victim][0])


def test_no_bare_error_gets_out_and_no_error_of_ours_is_changed() -> None:
    with pytest.raises(RendezvousError, match=r"^this: .*fs\.file-max"), explained("this"):
        raise OSError(errno.ENFILE, "words")
    with pytest.raises(RendezvousError, match=r"^this: \[Errno 12\] words"), explained("this"):
        raise OSError(errno.ENOMEM, "words")
    with pytest.raises(PeerLost, match="ours"), explained("this"):
        raise PeerLost("ours")
