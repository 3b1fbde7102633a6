"""How long the messages are in which sums come home, as the core is told: by what is summed, and on what processor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from hocket._core import Program
from hocket.run import native
from hocket.tuning import choose, topology
from worlds import World

KIB = 1 << 10
MIB = KIB * KIB
Own = Callable[[int], World]


@pytest.fixture(scope="module")
def transport() -> str:
    """Nothing is lent over another one."""
    return "shm"


def bitwise_or(a: Any, b: Any, out: Any) -> None:
    np.bitwise_or(a, b, out=out)


def told(group: Any, l2: int, cores: int) -> dict[str, int]:
    """Bytes of a message of calls of 1 MiB, where each core had so much second-level cache; their results are right."""
    host = topology.Host(cores=cores, l2=l2, memory=topology.this_host().memory)
    said: list[int] = []
    found: dict[str, int] = {}

    def program(*args: Any, **more: Any) -> Program:
        said.append(more["segment"])
        return Program(*args, **more)

    with ExitStack() as stack:
        for module in (topology, native, choose):
            stack.enter_context(patch.object(module, "this_host", lambda: host))
        stack.enter_context(patch.object(native, "Program", program))
        own = stack.enter_context(group.split(0))
        given = [(np.arange(MIB // 4, dtype=np.uint32) * np.uint32(2654435761)) + np.uint32(r * 977) for r in (0, 1)]
        x, total = given[own.rank], given[0] + given[1]
        half = np.array_split(total, 2)[own.rank]
        calls: dict[str, tuple[Callable[[], Any], Any]] = {
            "all_reduce": (lambda: own.all_reduce(x), total),
            "all_reduce, in place": (lambda: own.all_reduce(y := x.copy(), out=y), total),
            "all_reduce, custom": (lambda: own.all_reduce(x, bitwise_or), given[0] | given[1]),
            "all_reduce, one round": (lambda: own.all_reduce(x, algorithm="one_shot"), total),
            "reduce_scatter": (lambda: own.reduce_scatter(x), half),
        }
        for name, (call, wanted) in calls.items():
            said.clear()
            np.testing.assert_array_equal(call(), wanted)
            (found[name],) = said
    return found


@pytest.mark.parametrize(
    ("l2", "cores", "home", "usual", "exchanged"),
    [
        (2 * MIB, 2, 32, 64, 256),  # half of the slots will do
        (2 * MIB, 1, 64, 64, 64),  # who shares a core would change places twice as often
        (1 * MIB, 2, 128, 128, 256),
        (512 * KIB, 2, 64, 64, 128),
    ],
)
def test_sums_that_come_home_have_short_messages(
    own: Own, l2: int, cores: int, home: int, usual: int, exchanged: int
) -> None:
    for found in own(2).run(told, l2, cores):
        kib = {name: segment / KIB for name, segment in found.items()}
        assert kib["all_reduce"] == kib["all_reduce, in place"] == home
        assert kib["all_reduce, custom"] == usual
        assert kib["all_reduce, one round"] == kib["reduce_scatter"] == exchanged
