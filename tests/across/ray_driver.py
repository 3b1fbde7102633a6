"""What drives the Ray cluster of test_ray_cluster.py: a line with a name comes in, a line of JSON goes out.

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
from unittest import mock

import numpy as np
import ray
from ray.util import placement_group_table
from ray.util.placement_group import PlacementGroup

import hocket
import hocket.ray
from hocket.deadline import Deadline
from hocket.launch.reports import gather
from hocket.ray import _answers as answers

OUT = 1


def say(**words: Any) -> None:
    os.write(OUT, (json.dumps(words) + "\n").encode())


# ---- what ranks do ----


def vector(rank: int, count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float64) % 1000 + 7 * rank


def sums(counts: list[int], *, folder: str) -> dict[str, Any]:
    """The last rank hangs on its way out. The others wait until it is there, and so return after it."""
    mark = Path(folder, "leaving")
    hocket.ray.GRACE = 1
    with hocket.init() as group:
        found = [group.all_reduce(vector(group.rank, count)) for count in counts]
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        place = [int(os.environ[name]) for name in names]
        here, places = os.uname().nodename, group._links.places
    if group.rank == 3:
        atexit.register(lambda: (mark.touch(), signal.pause()))
    while group.rank != 3 and not mark.exists():
        time.sleep(0.005)
    secret = os.environ["HOCKET_SECRET"]
    return {"rank": group.rank, "secret": secret, "host": here, "place": place, "places": places, "found": found}


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


def leaves_early() -> None:
    group = hocket.init()
    if group.rank == 0:
        group.all_reduce(np.ones(10), timeout=60)


def pauses(folder: str = "") -> None:
    hocket.init().barrier()
    if folder:
        Path(folder, os.environ["RANK"]).touch()
    signal.pause()


def never() -> None:
    raise AssertionError("there was room")


# ---- what the driver does ----


def results(folder: str) -> None:
    """Four ranks on two nodes, with short messages and long ones."""
    counts = [1, 1000, 300_000]
    needs = {"CPU": 0.5, "memory": 10_000_000, "slot": 1}  # which one node alone would have, too
    found = hocket.ray.run(sums, 4, (counts,), {"folder": folder}, resources=needs, strategy="SPREAD", timeout=60)
    expected = [sum(vector(rank, count) for rank in range(4)) for count in counts]
    assert [each["rank"] for each in found] == [0, 1, 2, 3]
    assert len({each["secret"] for each in found}) == 1
    assert len(found[0]["secret"]) == 32
    assert "HOCKET_SECRET" not in os.environ
    for each in found:
        for mine, right in zip(each["found"], expected, strict=True):
            np.testing.assert_array_equal(mine, right)
    same = {name: found[0][name] for name in ("places", "secret")}
    say(hosts=[each["host"] for each in found], place=[each["place"] for each in found], **same)


def failing(fn: Callable[[], None], size: int = 2, **options: Any) -> Callable[[], None]:
    """Run it, and tell what is raised."""

    def command() -> None:
        try:
            say(begun=True)
            hocket.ray.run(fn, size, **{"strategy": "STRICT_SPREAD", **options})
        except BaseException as error:
            say(kind=type(error).__name__, text=str(error), cause=str(error.__cause__))

    return command


def late() -> None:
    """A deadline that passes as soon as all are at work."""

    def impatient(ranks: Any, deadline: Deadline, *others: Any) -> None:
        assert deadline.seconds == 100
        gather(ranks, Deadline(0.1), *others)

    with mock.patch("hocket.ray.gather", impatient):
        failing(pauses, 1, timeout=100)()


def slow_start() -> None:
    """A deadline that passes before any actor can have started."""
    with mock.patch("hocket.ray._answers", lambda asked, start: answers(asked, Deadline(0))):
        failing(never)()


def interrupted() -> None:
    """A Ctrl-C while there is no room."""

    def wait(self: PlacementGroup, seconds: float) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return placed(self, seconds)

    placed = PlacementGroup.wait
    with mock.patch.object(PlacementGroup, "wait", wait):
        failing(never, 5)()


def left() -> None:
    """Which placement groups there still are."""
    say(left=[each for each in placement_group_table().values() if each["state"] != "REMOVED"])


COMMANDS: dict[str, Callable[..., None]] = {
    "results": results,
    "raises": failing(raises),
    "dies": failing(dies),
    "late": late,
    "slow start": slow_start,
    "interrupted": interrupted,
    "leaves_early": failing(leaves_early),
    "pauses": lambda folder: failing(pauses, args=(folder,))(),
    "no room": failing(never, 5, start_timeout=1, strategy="PACK"),
    "no such thing": failing(never, 1, timeout=1, resources={"anvil": 2, "CPU": 0.5}),
    "no strategy": failing(never, 1, strategy="SOMEHOW"),
    "no resources": failing(never, 1, resources={"CPU": 0}),
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
