"""A straggler: one slow rank makes all others wait. What they counted tells which one it is, and a timeline shows it.

    hocket run -n 4 examples/lessons/straggler.py
    hocket run -n 4 --trace timelines examples/lessons/straggler.py

and timelines/trace.json at https://ui.perfetto.dev: the calls of the slow rank begin late and are short, and those of
all others are long and end when its do. The same is served to Prometheus with --metrics 9400 (docs/metrics.md).
"""

import time

import numpy as np
from by_hand import everyone, say

import hocket

STEPS, SLOW, QUICK = 20, 0.010, 0.001  # seconds of computing in a step


def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def waited(group):
    """Seconds that this rank has waited for others in its all_reduces."""
    return sum(call.waiting for call in group.metrics().calls if call.collective == "all_reduce")


def main(group):
    late = group.size - 1
    gradient = np.ones(1 << 14)  # 128 KiB: of such calls each is timed
    before = waited(group)
    group.barrier()
    for _ in range(STEPS):
        compute(SLOW if group.rank == late else QUICK)
        group.all_reduce(gradient)

    waits = everyone(group, waited(group) - before)
    for rank, seconds in enumerate(waits):
        say(group, f"r{rank} waited {seconds * 1e3:6.1f} ms in {STEPS} steps")
    say(group, f"the straggler is r{waits.argmin()}, which waits least: all others wait for it")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
