"""What a rank of several hosts lets the others of its own host do with its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hocket.errors import HocketError
from hosts import reason
from unreadable import become_unreadable
from worlds import World, raised

pytestmark = pytest.mark.skipif(bool(reason()), reason=reason() or "-")


def asks_for_more_than_it_may(group: Any) -> None:
    """What is offered from the second call on, once the kernel refuses it."""
    x = np.arange(100_000) + group.rank

    def gather() -> None:
        joined = group.all_gather(x).reshape(group.size, -1)
        assert (joined - np.arange(100_000) == np.arange(group.size)[:, None]).all()

    for _ in range(3):
        gather()
    become_unreadable()
    group.barrier()
    gather()


def test_in_a_group_of_several_hosts_nothing_is_offered() -> None:
    """There a rank that was given up may complete a call for a moment, when what it reads is its sender's again."""
    for transport in ("shm", "2x2"):
        world = World(4, transport, HOCKET_PROTOCOL="offered")
        try:
            if transport == "shm":
                assert "cannot be copied" in str(raised(HocketError, world.run, asks_for_more_than_it_may))
            else:
                world.run(asks_for_more_than_it_may)
        finally:
            world.close()
