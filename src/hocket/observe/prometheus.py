"""`Group.metrics` of all groups of this process, served to Prometheus at HOCKET_METRICS.

They are in the registry that `prometheus_client` keeps for the process, so a program that serves its own metrics has
hocket's among them once `serve` or `register` was called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ..calls.metrics import Metrics
from ..config.observed import metrics_address
from ..errors import HocketError

NEEDS = "HOCKET_METRICS needs the Prometheus client: pip install 'hocket[metrics]'"


class Counted(Protocol):
    """A group, as far as it matters here."""

    number: int

    @property
    def rank(self) -> int:
        """Which rank of it."""
        ...

    @property
    def size(self) -> int:
        """Of how many."""
        ...

    def metrics(self) -> Metrics:
        """What it has counted."""
        ...


Groups = Callable[[], Iterable[Counted]]

_registered = _served = False


def serve(groups: Groups) -> None:
    """Serve what `groups()` have counted, if HOCKET_METRICS says where, and unless it is done already.

    Rank by rank: the port is what it says plus the local rank. Raises HocketError where it cannot be served, and
    RendezvousError where the variable makes no sense.
    """
    global _served
    address = metrics_address()
    if address is None or _served:
        return
    register(groups)
    from prometheus_client import start_http_server

    host, port = address
    try:
        start_http_server(port, host)
    except OSError as error:
        where = f"{host}:{port}"
        raise HocketError(f"metrics cannot be served at {where}, as HOCKET_METRICS says: {error.strerror}") from None
    _served = True


def register(groups: Groups) -> None:
    """Put what `groups()` have counted among the process's metrics, unless it is there already. Raises HocketError
    where there is no Prometheus client."""
    global _registered
    if _registered:
        return
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        raise HocketError(NEEDS) from None
    REGISTRY.register(_Collector(groups))
    _registered = True


class _Collector:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def describe(self) -> list[Any]:
        """Nothing is collected when this is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """All families, as of now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        own = ["group", "rank"]
        kind, peer = [*own, "collective", "algorithm"], [*own, "peer", "transport", "direction"]
        sizes = GaugeMetricFamily("hocket_group_size", "Ranks of an open group.", labels=own)
        calls = CounterMetricFamily("hocket_calls", "Collective calls completed.", labels=kind)
        vectors = CounterMetricFamily("hocket_call_bytes", "Bytes of their vectors.", labels=kind)
        seconds = CounterMetricFamily("hocket_call_seconds", "Estimated time in them.", labels=[*kind, "state"])
        moved = CounterMetricFamily("hocket_peer_bytes", "Bytes that calls moved from rank to rank.", labels=peer)
        messages = CounterMetricFamily("hocket_messages", "Messages of send and recv.", labels=peer)
        lengths = CounterMetricFamily("hocket_message_bytes", "Bytes of these messages.", labels=peer)
        fallbacks = CounterMetricFamily("hocket_fallbacks", "Ways to a rank that broke.", labels=[*own, "peer"])
        errors = CounterMetricFamily("hocket_errors", "Errors raised by calls.", labels=[*own, "error"])
        for group in self._groups():
            found, me = group.metrics(), [str(group.number), str(group.rank)]
            sizes.add_metric(me, group.size)
            for call in found.calls:
                of = [*me, call.collective, call.algorithm]
                calls.add_metric(of, call.calls)
                vectors.add_metric(of, call.bytes)
                seconds.add_metric([*of, "waiting"], call.waiting)
                seconds.add_metric([*of, "moving"], call.moving)
            for other in found.peers:
                if other.rank == group.rank and not other.messages_sent + other.messages_received:
                    continue
                out, back = ([*me, str(other.rank), other.transport, way] for way in ("sent", "received"))
                moved.add_metric(out, other.bytes_sent)
                moved.add_metric(back, other.bytes_received)
                messages.add_metric(out, other.messages_sent)
                messages.add_metric(back, other.messages_received)
                lengths.add_metric(out, other.message_bytes_sent)
                lengths.add_metric(back, other.message_bytes_received)
                fallbacks.add_metric([*me, str(other.rank)], other.fallbacks)
            for name, count in found.errors.items():
                errors.add_metric([*me, name], count)
        yield from (sizes, calls, vectors, seconds, moved, messages, lengths, fallbacks, errors)
