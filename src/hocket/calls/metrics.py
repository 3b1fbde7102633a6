"""What a rank's calls have cost, `Group.metrics`, and by which path they went, `Group.statistics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .._core import Messages
from ..run.native import Native
from .session import Session


class CallMetrics(NamedTuple):
    """Calls of one collective by one algorithm that have been completed.

    `bytes` are those of their vectors, as `hocket bench` counts them: what an all_reduce takes, an all_gather yields, a
    reduce_scatter takes apart. `seconds` is the time in them, from entering to the end, and `waiting` what of it went
    by while nothing could be moved or folded, since no other rank had got there. Both are estimates: of calls of less
    than 64 KiB, the first sixteen and then every sixteenth are timed.
    """

    collective: str
    algorithm: str
    calls: int
    bytes: int
    seconds: float
    waiting: float

    @property
    def moving(self) -> float:
        """Seconds in which something was copied, folded or sent."""
        return max(0.0, self.seconds - self.waiting)


class PeerMetrics(NamedTuple):
    """What went to one rank and came from it, over `transport` (as in `Group.transports`): bytes of collectives' plans,
    whichever way they went, and messages of `send` and `recv`, each when it was over. `fallbacks` counts the ways to it
    that have broken, while it lived and another one was there."""

    rank: int
    transport: str
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    message_bytes_sent: int
    messages_received: int
    message_bytes_received: int
    fallbacks: int = 0


class Metrics(NamedTuple):
    """Of one rank of a group: calls by kind, traffic by rank, and the errors that were raised, by name."""

    calls: tuple[CallMetrics, ...]
    peers: tuple[PeerMetrics, ...]
    errors: dict[str, int]


class Statistics(NamedTuple):
    """What one rank of a group has begun. A call or a message is fast where it looked like an earlier one, and went
    through no Python; the first of its kind is not. A call that is several in one (a broadcast to a rank that does not
    know what it will get, an uneven all_to_all, a subgroup) counts as these."""

    fast_calls: int
    slow_calls: int
    fast_messages: int
    slow_messages: int


def collect(
    native: Native,
    messages: Messages,
    session: Session,
    transports: tuple[str, ...],
    ways_lost: Callable[[int], int],
) -> Metrics:
    """All of it, as of now."""
    calls = (
        CallMetrics(*kind, meter.calls, meter.bytes, meter.seconds, meter.waiting)
        for kind, meter in sorted(native.meters.copy().items())
    )
    peers = (
        PeerMetrics(rank, transport, *native.traffic.of(rank), *messages.moved(rank), ways_lost(rank))
        for rank, transport in enumerate(transports)
    )
    return Metrics(tuple(call for call in calls if call.calls), tuple(peers), dict(session.errors))
