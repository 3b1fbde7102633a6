"""What `Group.metrics` counts, against what the calls must have moved."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import hocket
from worlds import Worlds

SLOW = 0.5  # seconds


def counted(group: Any) -> Any:
    x, rows = np.arange(1000, dtype=np.float64) + group.rank, np.arange(3, dtype=np.int32)
    for _ in range(40):
        group.all_reduce(x, algorithm="one_shot")
    for _ in range(2):
        group.all_gather(rows, algorithm="direct")
    group.broadcast(x, root=group.size - 1, algorithm="direct")
    following, preceding = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    sent = group.send(np.ones(group.rank + 1, np.int16), following, async_op=True)
    assert group.recv(preceding).size == preceding + 1
    sent.wait()
    group.barrier()
    return group.metrics()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_calls_bytes_and_messages_are_counted(world: Worlds, size: int) -> None:
    everyone = world(size).run(counted, fresh=True)
    for rank, metrics in enumerate(everyone):
        kinds = {(call.collective, call.algorithm): call for call in metrics.calls}
        counts = {kind: (call.calls, call.bytes) for kind, call in kinds.items()}
        assert counts["all_reduce", "one_shot"] == (40, 40 * 8000)
        assert counts["all_gather", "direct"][0] >= 2  # and as the group was formed over hosts, and measured
        assert counts["broadcast", "direct"] == (1, 8000)
        assert sum(count for (name, _), (count, _) in counts.items() if name == "barrier") == 1
        assert all(call.seconds >= call.waiting >= 0 and call.moving > 0 for call in kinds.values())
        assert metrics.errors == {}
        assert [peer.rank for peer in metrics.peers] == list(range(size))
        gathered = (counts["all_gather", "direct"][1] // size) if size > 1 else 0
        for peer in metrics.peers:
            if peer.rank == rank and size > 1:
                assert peer[2:] == (0,) * 7
                continue
            all_reduced = 40 * 8000 if size > 1 else 0
            broadcast = [8000 * (size > 1 and root == size - 1) for root in (rank, peer.rank)]
            assert peer.bytes_sent == all_reduced + gathered + broadcast[0]
            assert peer.bytes_received == all_reduced + gathered + broadcast[1]
            to, of = peer.rank == (rank + 1) % size, peer.rank == (rank - 1) % size
            assert (peer.messages_sent, peer.message_bytes_sent) == (to, to * 2 * (rank + 1))
            assert (peer.messages_received, peer.message_bytes_received) == (of, of * 2 * (peer.rank + 1))


def straggles(group: Any, nbytes: int) -> float:
    """Rank 1 computes meanwhile."""
    x = np.ones(nbytes, np.uint8)
    group.barrier()
    end = time.monotonic() + SLOW
    while group.rank == 1 and time.monotonic() < end:
        pass
    group.all_reduce(x)
    return sum(call.waiting for call in group.metrics().calls if call.collective == "all_reduce")


@pytest.mark.parametrize("nbytes", [8, 1 << 20])
def test_who_waits_for_a_straggler_knows_it(world: Worlds, nbytes: int) -> None:
    first, second, third = world(3).run(straggles, nbytes, fresh=True)
    assert min(first, third) > second + SLOW / 2


def fails(group: Any) -> Any:
    with pytest.raises(hocket.CollectiveTimeout):
        group.recv((group.rank + 1) % 2, timeout=0.01)
    with pytest.raises(hocket.MismatchError):
        group.all_reduce(np.ones(3 + group.rank))
    with pytest.raises(hocket.GroupBroken):
        group.barrier()
    return group.metrics()


def test_errors_are_counted_by_name(world: Worlds) -> None:
    for metrics in world(2).run(fails, fresh=True):
        assert metrics.errors == {"CollectiveTimeout": 1, "MismatchError": 1}
        assert not any(call.collective == "all_reduce" for call in metrics.calls)
