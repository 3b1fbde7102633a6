"""How quickly bytes go between hosts, as far as the kernel decides."""

from __future__ import annotations

import socket
from typing import NamedTuple

from ..errors import RendezvousError
from ..rendezvous.sockets import steer
from .findings import Check, Finding, Here, note, ok, problem, size, warning
from .network import options_of, read_speed

_LITTLE, _SOME = 1 << 20, 4 << 20  # bytes that a connection may have under way


class Congestion(NamedTuple):
    """What was wished for, empty for nothing; why it cannot be had; what the kernel takes else; what it allows."""

    wished: str
    refused: str
    default: str
    allowed: str


def read_congestion(here: Here) -> Congestion:
    """By asking for it, as hocket does."""
    wished = options_of(here).congestion
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            steer(sock, wished or "cubic")
            refused = ""
        except RendezvousError as error:
            refused = str(error)
    names = ("tcp_congestion_control", "tcp_allowed_congestion_control")
    return Congestion(wished, refused, *(here.maybe(f"proc/sys/net/ipv4/{name}") for name in names))


def judge_congestion(facts: Congestion) -> list[Finding]:
    """One that cannot be had; without a wish, cubic."""
    if not facts.refused:
        return ok("congestion control", facts.wished or "cubic")
    if facts.wished:
        return problem(
            "congestion control",
            facts.refused,
            "each connection of the job asks for it, and init fails",
            f"modprobe tcp_{facts.wished}, and allow it (sysctl net.ipv4.tcp_allowed_congestion_control)",
        )
    if facts.default == "cubic":
        return ok("congestion control", "cubic")
    return warning(
        "congestion control",
        f"cubic cannot be had, and {facts.default} is what connections get; allowed: {facts.allowed}",
        "over BBR, 64 MiB took twice as long between hosts as over cubic; others were not timed",
        f"modprobe tcp_cubic; sysctl net.ipv4.tcp_allowed_congestion_control='{facts.allowed} cubic'",
    )


class Windows(NamedTuple):
    """How far the kernel lets a connection's two buffers grow, in bytes, and the interface's Mbit/s, 0: unknown."""

    receive: int
    send: int
    mbits: int


def read_windows(here: Here) -> Windows:
    """The last of the three numbers of tcp_rmem and tcp_wmem."""
    sizes = [int(here.text(f"proc/sys/net/ipv4/{name}").split()[2]) for name in ("tcp_rmem", "tcp_wmem")]
    return Windows(sizes[0], sizes[1], read_speed(here).mbits)


def judge_windows(facts: Windows) -> list[Finding]:
    """Less than what is under way on a quick network; hocket leaves it to the kernel how far they grow."""
    least = min(facts.receive, facts.send)
    enough = max(_SOME, 4 * _SOME if facts.mbits >= 25000 else 0)
    told = f"buffers up to {size(facts.receive)} in, {size(facts.send)} out"
    if least >= enough:
        return ok("buffers", told)
    made = warning if least < _LITTLE else note
    remedy = f"sysctl net.ipv4.tcp_rmem='4096 131072 {enough}' net.ipv4.tcp_wmem='4096 65536 {enough}'"
    if least >= _SOME:
        remedy += ", or HOCKET_TCP_STREAMS=4"
    return made(
        "buffers",
        f"a connection has {told}",
        "no more than that is under way at a time: 4 MiB fill 10 Gbit/s over 3 ms, there and back",
        remedy,
    )


CHECKS = (
    Check("congestion control", read_congestion, judge_congestion),
    Check("buffers", read_windows, judge_windows),
)
