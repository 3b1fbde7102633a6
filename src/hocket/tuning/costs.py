"""What messages, bytes and folding cost on a cluster."""

from __future__ import annotations

import math
from typing import NamedTuple

from .units import Pieces


class Costs(NamedTuple):
    """What things cost. Times in seconds, rates in seconds per byte. The values of no cluster, but like many."""

    alpha: float = 2e-6  # a message between hosts, from NIC to NIC
    hop: float = 0.3e-6  # each further switch, or host, on its way
    local: float = 0.3e-6  # a message within a host
    send: float = 0.2e-6  # of the sender's processor, for each message
    receive: float = 0.2e-6  # of the receiver's
    nic: float = 8e-11  # a byte through a NIC, in or out: 100 Gbit/s
    shm: Pieces = ((math.inf, 1e-10),)  # a byte that a rank reads from another one of its host: 10 GB/s
    memory: float = 1e-11  # a byte that anybody of the host reads from another: 100 GB/s for all together
    reduce: float = 1e-10  # a byte that is folded into another: gamma, 10 GB/s
    between: float = 8e-10  # a byte between two sites: 10 Gbit/s
    distance: float = 10e-3  # a message from site to site
