"""How long it takes until all know of a rank that was killed or stopped, or of a host that was cut off, and until those
that are left go on.

    python benchmarks/recovery.py [--rounds 30] [--layout 0,0,0,0] [--fault killed]

Each round is a job of its own: ranks that all-reduce without a pause, of which one, another each time, is killed, or
stopped; or the host of one is cut off, and all on it count as gone. *Known*: from that moment until the last of the
others has the error. *Going on*: from there until the last of them has the result of its first call in the new group. A
layout of several hosts, as 0,0,1,1, takes root: they are network namespaces.

Where ranks of one host are killed, and torch is installed, the same job runs over gloo under `torchrun --max-restarts`,
in turns with the other. There it is known when the last of the others has the error, or has been ended by torchrun; and
all go on, the killed one too, when they have been started again: they begin anew, where hocket's are as they were.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hocket
from hocket.bench.hosts import hosts

SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
CUT = "cut"
Row = tuple[float, float]  # seconds: known, going on
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--max-restarts", "1000000", "--nproc-per-node"]
# Else ranks that torchrun 2.13 starts again get the store of before, and gloo finds the addresses of the dead in it.
A_NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
PATIENCE = 120.0  # seconds, for torchrun to start the job again


def say(**what: object) -> None:
    """In one piece: several ranks write into one pipe."""
    os.write(1, f"{json.dumps(what)}\n".encode())


def rank_of_hocket() -> None:
    x = np.ones(1000)
    with hocket.init() as group:
        for _ in range(20):
            group.all_reduce(x)
        say(pid=os.getpid())
        try:
            while True:
                group.all_reduce(x)
        except hocket.HocketError:
            known = time.monotonic()
        left = group.recover(allow_minority=True)
        left.all_reduce(x)
        say(known=known, going=time.monotonic())
        left.close()


def rank_of_gloo() -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    x = torch.ones(1000, dtype=torch.float64)
    dist.init_process_group("gloo")
    who = {"rank": dist.get_rank(), "start": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
    for _ in range(1 if who["start"] else 20):
        dist.all_reduce(x, dist.ReduceOp.MAX)
    say(**who, pid=os.getpid(), going=time.monotonic())
    try:
        while True:
            dist.all_reduce(x, dist.ReduceOp.MAX)
    except RuntimeError:
        say(**who, known=time.monotonic())
        raise


RANKS = {"hocket": rank_of_hocket, "gloo": rank_of_gloo}


def round_of_torchrun(size: int, victim: int) -> Row:
    with torchrun(size) as said, ThreadPoolExecutor(size) as watchers:
        pids = {}
        while len(pids) < size:
            line = next(said)
            pids[line["rank"]] = line["pid"]
        pidfds = {rank: os.pidfd_open(pid) for rank, pid in pids.items()}
        begin = time.monotonic()
        os.kill(pids[victim], signal.SIGKILL)
        ends = {rank: watchers.submit(until_it_ends, pidfd) for rank, pidfd in pidfds.items() if rank != victim}
        known, going = {}, defaultdict[int, list[float]](list)
        while not any(len(each) == size for each in going.values()):
            line = next(said)
            if line["start"]:
                going[line["start"]] += [line["going"]] if "going" in line else []
            else:
                known[line["rank"]] = line["known"]
        last = max(min(known.get(rank, np.inf), end.result()) for rank, end in ends.items())
        for pidfd in pidfds.values():
            os.close(pidfd)
    return last - begin, max(max(each) for each in going.values() if len(each) == size) - last


@contextmanager
def torchrun(size: int) -> Iterator[Iterator[dict[str, Any]]]:
    """What the ranks of a job say. After a while it is ended, and with that what they say."""
    command = [sys.executable, *TORCHRUN, str(size), __file__, "--rank", "gloo"]
    environ = {**os.environ, **A_NEW_STORE, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environ, **pipes) as agent:
        patience = threading.Timer(PATIENCE, agent.terminate)
        patience.start()
        try:
            yield map(json.loads, agent.stdout)
        except StopIteration:
            raise RuntimeError(f"torchrun did not start the job again within {PATIENCE:g} s") from None
        finally:
            patience.cancel()
            agent.terminate()  # it ends its ranks


def until_it_ends(pidfd: int) -> float:
    select.select([pidfd], [], [])
    return time.monotonic()


def round_of_hocket(layout: list[int], victim: int, fault: str) -> Row:
    with ExitStack() as stack:
        made = stack.enter_context(hosts(max(layout) + 1)) if max(layout) else []
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        environ = {"WORLD_SIZE": str(len(layout)), "HOCKET_SECRET": secrets.token_hex(8), "OPENBLAS_NUM_THREADS": "1"}
        environ["HOCKET_RENDEZVOUS"] = f"tcp://{made[0].address}:4710" if made else f"file://{folder}/job"
        command = [sys.executable, __file__, "--rank", "hocket"]
        ranks = []
        for rank, host in enumerate(layout):
            told = {**environ, "RANK": str(rank)}
            if made:
                ranks.append(made[host].start(command, told))
            else:
                ranks.append(subprocess.Popen(command, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True))
        pids = [json.loads(process.stdout.readline())["pid"] for process in ranks if process.stdout]
        begin = time.monotonic()
        if fault == CUT:
            made[layout[victim]].cut()
            gone = {rank for rank, host in enumerate(layout) if host == layout[victim]}
        else:
            os.kill(pids[victim], SIGNALS[fault])
            gone = {victim}
        left = [process for rank, process in enumerate(ranks) if rank not in gone]
        said = [json.loads(process.stdout.readline()) for process in left if process.stdout]
        for process in ranks:
            process.kill()
            process.wait()
    known = max(end["known"] for end in said)
    return known - begin, max(end["going"] for end in said) - known


def shown(seconds: list[float]) -> list[str]:
    return [f"{1000 * float(np.percentile(seconds, q)):.0f} ms" for q in (50, 99)]


def table(given: argparse.Namespace, ours: list[Row], theirs: list[Row]) -> Table:
    title = f"{len(ours)} rounds, ranks on hosts {given.layout}, one {given.fault}"
    made = Table(
        "",
        "",
        "p50",
        "p99",
        *(["\N{MULTIPLICATION SIGN} p50", "\N{MULTIPLICATION SIGN} p99"] if theirs else []),
        title=title,
    )
    parts = "known to all", "going on"
    columns = [list(column) for column in zip(*ours, strict=True)]
    for part, mine in zip(parts, columns, strict=True):
        made.add_row("hocket", part, *shown(mine))
    for part, mine, other in zip(parts, columns, zip(*theirs, strict=True), strict=False):
        ratios = [np.percentile(other, q) / np.percentile(mine, q) for q in (50, 99)]
        made.add_row("torchrun + gloo", part, *shown(list(other)), *(f"{ratio:.1f}" for ratio in ratios))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--layout", default="0,0,0,0", help="the host of each rank")
    parser.add_argument("--fault", choices=(*SIGNALS, CUT), default="killed")
    parser.add_argument("--rank", choices=RANKS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return RANKS[given.rank]()
    layout = [int(host) for host in given.layout.split(",")]
    if given.fault == CUT and len(set(layout)) == 1:
        parser.error("a host can be cut off where there are several: --layout 0,0,1,1")
    compared = given.fault == "killed" and not max(layout) and importlib.util.find_spec("torch") is not None
    ours, theirs = [], []
    for turn in range(given.rounds):
        victim = turn % len(layout)
        ours.append(round_of_hocket(layout, victim, given.fault))
        if compared:
            theirs.append(round_of_torchrun(len(layout), victim))
    Console().print(table(given, ours, theirs))
    return None


if __name__ == "__main__":
    main()
