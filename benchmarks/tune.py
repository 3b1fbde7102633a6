"""How good the predictions of a profile are, and the choices made by it: over calls that `hocket tune` did not measure.

    hocket tune && python benchmarks/tune.py -n 2,4

Each algorithm of each call is timed in turns with the others. *error* is |predicted / measured - 1|, and *regret* how
much longer the chosen algorithm took than the fastest one that auto may choose, and than the fastest there is.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import numpy as np

from hocket.bench.figures import binary, duration
from hocket.bench.peers import LIBRARIES
from hocket.bench.sweep import Effort, Field, task_for
from hocket.config.observed import profile_place
from hocket.tuning.choose import candidates, choose
from hocket.tuning.predict import predict
from hocket.tuning.saved import found
from hocket.tuning.topology import Topology

SIZES = (64, 2 << 10, 24 << 10, 160 << 10, 768 << 10, 3 << 20, 10 << 20)  # none of which is measured by `hocket tune`
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "scan")
BEYOND = {"all_reduce": ("ring", "recursive_halving"), "all_gather": ("ring",), "reduce_scatter": ("ring",)}
LONGEST = {"scan": 1 << 20}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("-n", "--ranks", default="2", help="numbers of ranks on this machine, with commas")
    asked.add_argument("--seconds", type=float, default=0.08, help="about so long for one algorithm of one call")
    given = asked.parse_args()
    profile, why = found(*profile_place())
    if profile is None:
        raise SystemExit(why or "this machine has no profile: `hocket tune` makes one")
    errors, among, all_of = list[float](), list[float](), list[float]()
    for size in map(int, given.ranks.split(",")):
        topology = Topology.of([0] * size, profile=profile)
        for found_errors, *regrets in measured(size, topology, given.seconds):
            errors += found_errors
            among.append(regrets[0])
            all_of.append(regrets[1])
    print(f"error of {len(errors)} predictions: median {statistics.median(errors):.0%}, p95 {p95(errors):.0%}")
    for what, regret in (("that auto may choose", among), ("of all that were timed", all_of)):
        good = sum(x <= 0.05 for x in regret) / len(regret)
        print(f"regret beside the best {what}: at most 5 % in {good:.0%} of {len(regret)} calls, p95 {p95(regret):.0%}")


def measured(size: int, topology: Topology, seconds: float) -> list[tuple[list[float], float, float]]:
    """For each call: the errors of what auto may choose, and both regrets."""
    rows = []
    with Field({"hocket": LIBRARIES["hocket"]}, size) as field:
        for collective in COLLECTIVES:
            mine = candidates(collective, topology)
            for nbytes in (each for each in SIZES if each <= LONGEST.get(collective, each)):
                names = [*mine, *BEYOND.get(collective, ())]
                effort = Effort(rounds=3, seconds=seconds, check=0)
                task = task_for(collective, nbytes, size, effort, algorithm=",".join(names))
                times = {row["algorithm"]: row["p50_us"] / 1e6 for row in field.compare(task, effort) if row["samples"]}
                said = {name: predict(collective, name, nbytes, topology) or float("nan") for name in mine}
                chosen = choose(collective, nbytes, size, topology).algorithm
                off = [abs(said[name] / times[name] - 1) for name in mine]
                best = min(times[name] for name in mine)
                rows.append((off, times[chosen] / best - 1, times[chosen] / min(times.values()) - 1))
                cells = (
                    f"{name} {duration(times[name])} ({duration(said[name]) if name in said else '-'})"
                    for name in names
                )
                print(f"{collective:15} {size} x {binary(nbytes):>8}  {chosen:9} {'  '.join(cells)}")
    return rows


def p95(values: Sequence[float]) -> float:
    return float(np.percentile(values, 95))


if __name__ == "__main__":
    main()
