"""What drives the Ray cluster of test_ray.py: a line with a name comes in, a line of JSON goes out.

The functions that ranks run lie in this script, as they do in a user's: Ray sends them along.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.util import placement_group_table

import hocket
import hocket.ray

OUT = 1


def say(**words: Any) -> None:
    os.write(OUT, (json.dumps(words) + "\n").encode())


# ---- what ranks do ----


def vector(rank: int, count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float64) % 1000 + 7 * rank


def sums(counts: list[int], *, folder: str) -> dict[str, Any]:
    rank = int(os.environ["RANK"])
    atexit.register(signal.pause if rank == 3 else Path(folder, str(rank)).touch)
    hocket.ray.GRACE = 1  # for rank 3, which does not end
    with hocket.init() as group:
        found = [group.all_reduce(vector(group.rank, count)) for count in counts]
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        place = [int(os.environ[name]) for name in names]
        here, places = os.uname().nodename, group._links.places
    return {"rank": group.rank, "host": here, "place": place, "places": places, "found": found}


def raises() -> None:
    group = hocket.init()
    if group.rank == 1:
        raise KeyError("the key")
    signal.pause()


def dies() -> None:
    group = hocket.init()
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group.all_reduce(np.ones(10), timeout=60)


def dies_alone() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def leaves_early() -> None:
    group = hocket.init()
    if group.rank == 0:
        group.all_reduce(np.ones(10), timeout=60)


def pauses() -> None:
    hocket.init().barrier()
    signal.pause()


def never() -> None:
    raise AssertionError("there was room")


# ---- what the driver does ----


def results(folder: str) -> None:
    """Four ranks on two nodes, with short messages and long ones."""
    counts = [1, 1000, 300_000]
    found = hocket.ray.run(sums, 4, (counts,), {"folder": folder}, strategy="SPREAD")
    expected = [sum(vector(rank, count) for rank in range(4)) for count in counts]
    assert [each["rank"] for each in found] == [0, 1, 2, 3]
    for each in found:
        for mine, right in zip(each["found"], expected, strict=True):
            np.testing.assert_array_equal(mine, right)
    say(hosts=[each["host"] for each in found], place=[each["place"] for each in found], places=found[0]["places"])


def failing(fn: Callable[[], None], size: int = 2, **options: Any) -> Callable[[], None]:
    """Run it, and tell what is raised."""

    def command() -> None:
        try:
            say(begun=True)
            hocket.ray.run(fn, size, **{"strategy": "STRICT_SPREAD", **options})
        except BaseException as error:
            say(kind=type(error).__name__, text=str(error), cause=str(error.__cause__))

    return command


def left() -> None:
    """Which placement groups there still are."""
    say(left=[each for each in placement_group_table().values() if each["state"] != "REMOVED"])


COMMANDS: dict[str, Callable[..., None]] = {
    "results": results,
    "raises": failing(raises),
    "dies": failing(dies),
    "dies_alone": failing(dies_alone),
    "leaves_early": failing(leaves_early),
    "pauses": failing(pauses),
    "no room": failing(never, 5, start_timeout=1, strategy="PACK"),
    "no room yet": failing(never, 5),
    "no such thing": failing(never, 1, timeout=1, resources={"anvil": 2, "CPU": 0.5}),
    "no strategy": failing(never, 1, strategy="SOMEHOW"),
    "left": left,
}


def main() -> None:
    global OUT
    OUT = os.dup(1)
    os.dup2(2, 1)  # Ray has things to say, too
    ray.init(address=sys.argv[1], log_to_driver=False)
    while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
        time.sleep(0.05)
    say(ready=True)
    for line in sys.stdin:
        obey(*line.strip().split(": "))


def obey(command: str, *words: str) -> None:
    try:
        COMMANDS[command](*words)
    except Exception:
        say(error=traceback.format_exc())


if __name__ == "__main__":
    main()
