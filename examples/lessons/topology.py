"""What is near whom: hosts, caches, links; as matrices, as a tree, and as `nvidia-smi topo -m` sees it.

    hocket run -n 4 examples/lessons/topology.py

A collective is as fast as its slowest link, so algorithms are chosen by what is near: hocket looks at hosts only
(`group.topology`). Within one, ranks that share a cache are nearer still, if they are bound to cores: `taskset`,
`numactl` and the launchers of clusters do that. A rank that is not bound may run on any core, as the tree shows.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
from by_hand import everyone, say

import hocket

CPUS, MOST = Path("/sys/devices/system/cpu"), 1024  # cores that are told of
ROUNDS = 50


def caches(cpu):
    """Of a core, largest first: (level, size, the cores that share it). Empty where the system does not say."""
    found = set()
    for index in CPUS.glob(f"cpu{cpu}/cache/index*"):
        level, size, shared, kind = (
            (index / f).read_text().strip() for f in ("level", "size", "shared_cpu_list", "type")
        )
        if kind != "Instruction":
            found.add((int(level), size, shared))
    return sorted(found, reverse=True)


def shared_with(mine, level):
    """The cores below the one cache of that level that all of `mine` are below; none where they are below several."""
    below = {shared for cpu in mine for at, _, shared in caches(cpu) if at == level} or {""}
    cores = np.zeros(MOST, np.uint8)
    for span in below.pop().split(",") if len(below) == 1 else []:
        first, _, last = span.partition("-")
        cores[int(first or MOST) : int(last or first or 0) + 1] = 1
    return cores


def microseconds(group, a, b):
    """One way for 8 bytes between two ranks, the best of some; the other ranks wait."""
    ping, best = np.zeros(1), float("inf")
    group.barrier()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        if group.rank == a:
            group.send(ping, b)
            group.recv(b, out=ping)
        elif group.rank == b:
            group.recv(a, out=ping)
            group.send(ping, a)
        best = min(best, (time.perf_counter() - start) / 2)
    return float(group.broadcast(np.array(best), root=a)) * 1e6


def matrix(group, title, cells):
    say(group, f"\n{title}\n" + " " * 4 + "".join(f"{f'r{r}':>9}" for r in range(group.size)))
    for rank, row in enumerate(cells):
        say(group, f"r{rank:<3}" + "".join(f"{cell:>9}" for cell in row))


def tree(group, allowed):
    """Hosts; of this one the caches, the cores, and on each core the ranks that may run there."""
    places = group.topology.places
    for host in sorted(set(places)):
        ranks = [r for r in range(group.size) if places[r] == host]
        say(group, f"\nhost {host}: " + " ".join(f"r{r}" for r in ranks))
        said = set()
        for cpu in np.flatnonzero(allowed[ranks].any(axis=0)).tolist() if host == places[0] else []:
            above = caches(cpu)
            for depth, (level, size, shared) in enumerate(above, 1):
                if (level, shared) not in said:
                    say(group, "   " * depth + f"L{level} {size}, of cores {shared}")
                said.add((level, shared))
            here = " ".join(f"r{r}" for r in ranks if allowed[r, cpu])
            say(group, "   " * (len(above) + 1) + f"core {cpu}: {here}")


def main(group):
    n, places, mine = group.size, group.topology.places, os.sched_getaffinity(0)
    names = np.array([text.encode() for text in group.transports], "S16").view(np.uint8)
    transports = everyone(group, names).view("S16").astype(str)
    matrix(group, "transports: how the rank of the row reaches that of the column", transports)

    below = everyone(group, [shared_with(mine, level) for level in (1, 2, 3)])  # [rank, level, core]
    near = np.full((n, n), "", "U8")
    for a, b in np.ndindex(n, n):
        levels = [i for i in range(3) if below[a, i].any() and (below[a, i] == below[b, i]).all()]
        near[a, b] = "other" if places[a] != places[b] else f"L{levels[0] + 1}" if levels else "host"
    matrix(group, "the nearest that is sure to be shared: a cache, the host, or nothing (other)", near)

    times = [[microseconds(group, a, b) if a != b else 0 for b in range(n)] for a in range(n)]
    matrix(group, "microseconds, one way, for 8 bytes", [[f"{time:.1f}" for time in row] for row in times])

    tree(group, everyone(group, np.isin(np.arange(MOST), list(mine))))
    if not shutil.which("nvidia-smi"):
        say(group, "\nnvidia-smi is not there: nothing is known of GPUs")
    elif group.rank == 0:
        done = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True)
        say(group, "\nGPUs of host 0, by nvidia-smi topo -m:\n" + (done.stdout or done.stderr))


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
