"""Jobs on hosts: one process for each rank, that runs a program of `on_hosts`."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from hosts import Host

PROGRAMS = Path(__file__).with_name("on_hosts.py")
SECRET = secrets.token_hex(8)
# Ranks that others start on host0 and host1: what each of them says.
MEETING = """
import json, os, socket
import numpy as np, hocket
with hocket.init(25) as group:
    name = np.array([int(socket.gethostname()[-1])])
    n, total = group.size, group.all_reduce(np.arange(300_000) * 7 + group.rank)
    assert (total == np.arange(300_000) * 7 * n + n * (n - 1) // 2).all()
    said = json.dumps({"rank": group.rank, "hosts": group.all_gather(name).tolist()})
    os.write(1, (said + chr(10)).encode())  # in one piece, as all share a pipe
"""


def met(out: str) -> list[list[int]]:
    """The hosts of all ranks, as each of them sees it, in the order of ranks."""
    said = {each["rank"]: each["hosts"] for each in (json.loads(line) for line in out.splitlines() if "rank" in line)}
    return [said[rank] for rank in range(len(said))]


class Job:
    """Ranks on hosts, which meet on the host of rank 0."""

    port = 4700

    def __init__(self, hosts: list[Host], layout: tuple[int, ...], program: str, **environ: str) -> None:
        Job.port += 1
        self.hosts, self.layout, self.program = hosts, layout, program
        self.environ = {
            "HOCKET_RENDEZVOUS": f"tcp://{hosts[layout[0]].address}:{Job.port}",
            "HOCKET_SECRET": SECRET,
            "WORLD_SIZE": str(len(layout)),
            "LAYOUT": "".join(map(str, layout)),
            "OPENBLAS_NUM_THREADS": "1",
            **environ,
        }
        self.ranks = [self.start(rank) for rank in range(len(layout))]

    def start(self, rank: int, **environ: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAMS), self.program]
        return self.hosts[self.layout[rank]].start(command, {**self.environ, "RANK": str(rank), **environ})

    def line(self, rank: int) -> dict[str, Any]:
        """What it says next. Not a byte more is read: `communicate` knows nothing of what a file holds already."""
        stdout, text = self.ranks[rank].stdout, b""
        assert stdout is not None
        while not text.endswith(b"\n") and (byte := os.read(stdout.fileno(), 1)):
            text += byte
        said: dict[str, Any] = json.loads(text or "{}")
        return said

    def ends(self, without: int | None = None, seconds: float = 60) -> list[dict[str, Any]]:
        """The last line of each rank; fails for one that is a crash."""
        last: list[dict[str, Any]] = []
        for rank, process in enumerate(self.ranks):
            if rank == without:
                last.append({})
                continue
            out, err = process.communicate(timeout=seconds)
            assert process.returncode == 0, f"rank {rank}: {err}"
            last.append(json.loads(out.splitlines()[-1]))
        return last

    def good(self) -> None:
        for rank, end in enumerate(self.ends()):
            assert end == {"good": True}, f"rank {rank}: {end}"
