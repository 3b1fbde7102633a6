"""How long it takes until all know of a rank that was killed, or stopped, and until those that are left go on.

    python benchmarks/recovery.py [--rounds 30] [--layout 0,0,0,0] [--fault killed]

Each round is a job of its own: ranks that all-reduce without a pause, of which one, another each time, is killed, or
stopped. *Known*: from that moment until the last of the others has the error. *Going on*: from there until the last of
them has the result of its first call in the new group. A layout of several hosts, as 0,0,1,1, takes root: they are
network namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

import numpy as np
from rich.console import Console
from rich.table import Table

import hocket
from hocket.bench.hosts import hosts

SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
Row = tuple[float, float]  # seconds: known, going on


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


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


def one_round(layout: list[int], victim: int, number: signal.Signals) -> Row:
    with ExitStack() as stack:
        made = stack.enter_context(hosts(max(layout) + 1)) if max(layout) else []
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        environ = {"WORLD_SIZE": str(len(layout)), "HOCKET_SECRET": secrets.token_hex(8), "OPENBLAS_NUM_THREADS": "1"}
        environ["HOCKET_RENDEZVOUS"] = f"tcp://{made[0].address}:4710" if made else f"file://{folder}/job"
        command = [sys.executable, __file__, "--rank"]
        ranks = []
        for rank, host in enumerate(layout):
            told = {**environ, "RANK": str(rank)}
            if made:
                ranks.append(made[host].start(command, told))
            else:
                ranks.append(subprocess.Popen(command, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True))
        pids = [json.loads(process.stdout.readline())["pid"] for process in ranks if process.stdout]
        begin = time.monotonic()
        os.kill(pids[victim], number)
        left = [process for rank, process in enumerate(ranks) if rank != victim]
        said = [json.loads(process.stdout.readline()) for process in left if process.stdout]
        for process in ranks:
            process.kill()
            process.wait()
    known = max(end["known"] for end in said)
    return known - begin, max(end["going"] for end in said) - known


def shown(seconds: list[float]) -> list[str]:
    return [f"{1000 * float(np.percentile(seconds, q)):.0f} ms" for q in (50, 99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--layout", default="0,0,0,0", help="the host of each rank")
    parser.add_argument("--fault", choices=SIGNALS, default="killed")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return rank_of_hocket()
    layout = [int(host) for host in given.layout.split(",")]
    rows = [one_round(layout, turn % len(layout), SIGNALS[given.fault]) for turn in range(given.rounds)]
    table = Table("ranks on hosts", "fault", "", "p50", "p99", title=f"{given.rounds} rounds")
    known, going = [list(column) for column in zip(*rows, strict=True)]
    table.add_row(given.layout, given.fault, "known to all", *shown(known))
    table.add_row("", "", "going on, after that", *shown(going))
    Console().print(table)
    return None


if __name__ == "__main__":
    main()
