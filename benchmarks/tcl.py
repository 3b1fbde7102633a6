"""What an all-reduce of four floats costs from Tcl, over the same call from Python.

    python benchmarks/tcl.py [--ranks 1 2] [--rounds 30]

Three jobs stand side by side: Python, `hocket tclsh`, and any tclsh with its companion. They take turns, a batch of
calls each, so that what else the machine does befalls all alike; the numbers are medians of these turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hocket.tcl import PACKAGE

CALLS = 200  # in a batch
PYTHON = """
import sys, time, numpy as np, hocket
rounds, calls = map(int, sys.argv[1:])
with hocket.init(timeout=600) as group:
    x = np.ones(4, np.float32)
    for _ in range(rounds):
        if group.rank == 0:
            sys.stdin.readline()
        group.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            group.all_reduce(x)
        if group.rank == 0:
            print((time.perf_counter() - begin) / calls * 1e6, flush=True)
"""
TCL = """
package require hocket
lassign $argv rounds calls
torch::distributed_init -timeout 600
set x [torch::ones 4]
proc batch {x calls} {time {torch::distributed_all_reduce $x} $calls}
for {set round 0} {$round < $rounds} {incr round} {
    if {[torch::get_rank] == 0} {gets stdin}
    torch::distributed_barrier
    set spent [lindex [batch $x $calls] 0]
    if {[torch::get_rank] == 0} {puts $spent; flush stdout}
    torch::tensor_free {*}[lrange [torch::tensor_list] 1 end]
}
"""
GOALS = {"hocket tclsh": 15, "tclsh": 150}  # microseconds over Python


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="numbers of processes")
    parser.add_argument("--rounds", type=int, default=30, help="batches of each")
    options = parser.parse_args()
    for ranks in options.ranks:
        medians = {name: statistics.median(times) for name, times in measured(ranks, options.rounds).items()}
        print(f"{ranks} ranks, all-reduce of 4 float32, microseconds")
        for name, median in medians.items():
            goal = f", {median - medians['python']:+.1f} (at most {GOALS[name]})" if name in GOALS else ""
            print(f"  {name:14}{median:8.1f}{goal}")


def measured(ranks: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds of one call in each batch of each; the first batch, in which all is new, left out."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "script.py").write_text(PYTHON)
        (folder / "script.tcl").write_text(TCL)
        ways = {
            "python": ["script.py"],
            "hocket tclsh": ["hocket", "tclsh", "script.tcl"],
            "tclsh": ["tclsh", "script.tcl"],
        }
        jobs = {
            name: stack.enter_context(job(ranks, [*way, str(rounds + 1), str(CALLS)], folder))
            for name, way in ways.items()
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, process in jobs.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                times[name].append(float(process.stdout.readline()))
    return {name: spent[1:] for name, spent in times.items()}


def job(ranks: int, command: list[str], folder: Path) -> subprocess.Popen[str]:
    """Its ranks, of which the first one waits for a line before each batch, and the others for the first one."""
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TCLLIBPATH": f"{{{PACKAGE}}}",
    }
    line = [sys.executable, "-m", "hocket", "run", "-n", str(ranks), *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=folder, env=environ, stdin=pipe, stdout=pipe, text=True)


if __name__ == "__main__":
    main()
