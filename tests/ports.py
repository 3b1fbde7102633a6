"""Ports of loopback for tests that must name one before it is bound."""

from __future__ import annotations

import secrets
import socket


def free_ports(count: int) -> list[int]:
    """Not of those that the system gives to callers, who might take one meanwhile."""
    ports: list[int] = []
    while len(ports) < count:
        port = 20000 + secrets.randbelow(10000)
        with socket.socket() as probe:
            if port not in ports and probe.connect_ex(("127.0.0.1", port)):
                ports.append(port)
    return ports
