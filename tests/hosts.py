"""A command on each of several hosts that are network namespaces of this machine, as root:

python tests/hosts.py 2 hocket run --node-rank {host} --rendezvous tcp://{first}:4711 ...
"""

from __future__ import annotations

import os
import secrets
import sys

from hocket.bench.hosts import Host, hosts, reason

__all__ = ["Host", "hosts", "reason"]


def main() -> int:
    """`{host}` is its number there, `{first}` the address of the first."""
    count, command = int(sys.argv[1]), sys.argv[2:]
    if why := reason():
        sys.exit(why)
    if not os.environ.get("HOCKET_SECRET"):
        os.environ["HOCKET_SECRET"] = secrets.token_hex(16)
    with hosts(count) as made:
        words = {"first": made[0].address}
        running = [
            host.start([word.format(host=number, **words) for word in command], stdout=None, stderr=None)
            for number, host in enumerate(made)
        ]
        return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
