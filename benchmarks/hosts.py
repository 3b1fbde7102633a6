"""A collective over hosts, beside gloo and beside the bytes alone: `python benchmarks/hosts.py [--ranks 1]`, as root.

The hosts are network namespaces joined by veth, unshaped; every socket uses cubic. The three take turns in one run, in
rounds whose order is drawn, and what is printed are medians over all rounds and their ratios. *pump*: a connection that
carries as many bytes both ways at once, by a loop of Python's over pieces of 256 KiB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

SIZES = (8, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20)
ROUNDS = 7
Call: TypeAlias = Callable[[], object]


def pump(sock: socket.socket, count: int) -> None:
    """So many bytes each way."""
    import select

    into, out = memoryview(bytearray(1 << 18)), memoryview(bytes(1 << 18))
    sent = got = 0
    while sent < count or got < count:
        moved = False
        if sent < count:
            try:
                sent += sock.send(out[: count - sent])
                moved = True
            except BlockingIOError:
                pass
        if got < count:
            try:
                got += sock.recv_into(into, min(1 << 18, count - got))
                moved = True
            except BlockingIOError:
                pass
        if not moved:
            select.select([sock] if got < count else [], [sock] if sent < count else [], [])


def connected(group: Any, address: str) -> socket.socket:
    """The other rank's end of a connection for the pump."""
    if group.rank == 0:
        with socket.create_server((address, 4713)) as listener:
            group.barrier()
            link, _ = listener.accept()
    else:
        group.barrier()
        link = socket.create_connection((address, 4713))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setblocking(False)
    return link


def medians(group: Any, calls: dict[str, Call], nbytes: int) -> dict[str, float]:
    """Seconds that each takes, in rounds of an order that is drawn alike on every rank."""
    turns = 300 if nbytes <= 1 << 14 else 60 if nbytes <= 1 << 20 else 12 if nbytes <= 1 << 23 else 3
    draws = random.Random(nbytes)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in draws.sample(sorted(calls), len(calls)):
            for turn in range(turns + 2):
                group.barrier()
                begin = time.perf_counter()
                calls[name]()
                if turn >= 2:
                    times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in times.items()}


def rank(address: str) -> None:
    """One rank's part; rank 0 prints the medians."""
    import torch
    import torch.distributed as dist

    import hocket

    me, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    group = hocket.init(60, rendezvous=f"tcp://{address}:4711", secret="bench")
    dist.init_process_group("gloo", init_method=f"tcp://{address}:4712", rank=me, world_size=size)
    link = connected(group, address) if size == 2 else None
    found: dict[int, dict[str, float]] = {}
    collective = os.environ["COLLECTIVE"]
    for nbytes in SIZES:
        x = np.ones(max(size, nbytes // 4), np.float32)
        part, tensor = x[: len(x) // size], torch.zeros(len(x))
        whole = np.empty(len(part) * size, np.float32)
        call: Callable[..., object] = {
            "all_reduce": partial(group.all_reduce, x, out=np.empty_like(x)),
            "reduce": partial(group.reduce, x, out=np.empty_like(x) if me == 0 else None),
            "broadcast": partial(group.broadcast, x, out=np.empty_like(x)),
            "all_gather": partial(group.all_gather, part, out=whole),
        }[collective]
        calls: dict[str, Call] = {"hocket": call}
        calls |= {name: partial(call, algorithm=name) for name in os.environ.get("ALGORITHMS", "").split()}
        calls["gloo"] = {
            "all_reduce": partial(dist.all_reduce, tensor),
            "reduce": partial(dist.reduce, tensor, 0),
            "broadcast": partial(dist.broadcast, tensor, 0),
            "all_gather": partial(dist.all_gather_into_tensor, torch.zeros(len(whole)), torch.zeros(len(part))),
        }[collective]
        if link is not None:
            calls["pump"] = partial(pump, link, nbytes)
        found[nbytes] = medians(group, calls, nbytes)
    if me == 0:
        print(json.dumps(found), flush=True)
    group.close()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1, help="on each of the hosts")
    parser.add_argument(
        "--collective", choices=("all_reduce", "reduce", "broadcast", "all_gather"), default="all_reduce"
    )
    parser.add_argument("--algorithms", default="", help="measure these of hocket's, too: one_shot,two_shot")
    parser.add_argument("--at", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.at:
        rank(args.at)
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from hosts import hosts, reason

    if reason():
        sys.exit(f"{reason()}")
    with hosts(args.hosts) as all_hosts:
        for host in all_hosts:
            host.ip("route", "change", "10.213.77.0/24", "dev", "eth0", "congctl", "cubic")
        size = args.hosts * args.ranks
        environ = {"WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        environ |= {"ALGORITHMS": args.algorithms.replace(",", " "), "COLLECTIVE": args.collective}
        command = [sys.executable, __file__, "--at", all_hosts[0].address]
        ranks = [all_hosts[r // args.ranks].start(command, {**environ, "RANK": str(r)}) for r in range(size)]
        outputs = [process.communicate(timeout=900) for process in ranks]
    for process, (_, err) in zip(ranks, outputs, strict=True):
        if process.returncode:
            sys.exit(err)
    found = json.loads(outputs[0][0].splitlines()[-1])
    where = f"{args.hosts} hosts x {args.ranks}"
    print(f"{args.collective} of float32 over {where}, medians in µs; how many times longer the others take")
    for nbytes, taken in found.items():
        own = taken.pop("hocket")
        others = "".join(f"   {name} {1e6 * time:9.1f} ({time / own:5.2f})" for name, time in taken.items())
        print(f"{int(nbytes):>9} B   hocket {1e6 * own:9.1f}{others}")


if __name__ == "__main__":
    main()
