"""Two ranks of one host are stopped, one after the other, when the only other host is gone. One of them goes on, and
the other one hears of it: each of them alone would be enough to go on.

    rank 0   takes 1 and 2 for lost ✕ (stopped at STEP: before it says so)  ▶ and is continued at last
    rank 1   ✕ (stopped)                       ▶ takes 0 and 2 for lost
    rank 2   ✕ (killed)

To be run as `duel.py STEP`, with the extension that has failpoints; exit code 0 where one went on, and one only.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import Any

import failpoints
import numpy as np

import hocket
from moments import Signs, state, until
from worlds import World, preload

preload("warm")

PATIENCE = 60.0


def calls(group: Any, signs: Signs, step: str) -> tuple[int, ...]:
    """Until one fails; whom this rank was told to be lost."""
    if group.rank == 0:
        failpoints.arm(step, 1, signal.SIGSTOP)
    while True:
        try:
            group.all_reduce(np.ones(3))
        except hocket.PeerLost as error:
            return error.lost
        signs.give(f"{group.rank} is on its way")


def go_on(group: Any) -> str:
    """With whom, or the error."""
    try:
        return f"goes on with {group.recover(timeout=20).size}"
    except hocket.HocketError as error:
        return f"{type(error).__name__}: {error}"


def main(step: str) -> int:
    """One story."""
    world = World(3, "2x2")
    with tempfile.TemporaryDirectory() as folder:
        signs = Signs(folder)
        world.start(calls, signs, step, timeout=PATIENCE)
        pids = [process.pid for process in world.processes]
        for rank in range(3):
            signs.wait(f"{rank} is on its way", PATIENCE)
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(pids[2], signal.SIGKILL)
        until(lambda: state(pids[0]) == "T", "rank 0 stopped by itself", PATIENCE)
        os.kill(pids[1], signal.SIGCONT)
        told = [world.finish(PATIENCE, without={0, 2})[1]]
        os.kill(pids[0], signal.SIGCONT)
        told.append(world.finish(PATIENCE, without={1, 2})[0])
        world.start(go_on, without={2})
        *onward, _ = world.finish(PATIENCE, without={2})
        world.close()
    print(told, onward)
    out = [text for text in onward if text.startswith("PeerLost: the others went on without rank ")]
    return 0 if len(out) == 1 and "goes on with 1" in onward else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
