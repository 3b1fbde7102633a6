"""The torture run: faults at random moments, on random ranks, in every kind of call, and what came of them.

    make torture                               a thousand trials or more, from a seed that is printed
    make torture ARGS="--seed 7 --trials 2000"
    make torture ARGS="--seed 7 --trial 137"   that one again; --repeat 50: as it is a matter of moments

After each trial:

    HANG   a call did not return by its deadline, or where a rank was gone within what is promised, and 3 seconds
    WRONG  a result that was given as a success is not NumPy's; an input changed; an array that a rank filled anew after
           an error was written; a call failed though nothing had happened; a call that differed went unnoticed
    SPLIT  survivors were told different things of the end, or not which calls they had completed; or they went on in
           groups of different members, or somebody did who was lost
    RAW    an error that is none of hocket's public ones, nor the fault's own
    LEAK   a survivor has more descriptors, threads or mappings than before

Exit code 1 where there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from in_rank import SLACK, Report, play, settle, warm_up
from judge import judge
from regroup import LIMIT, go_on
from scenario import FAULTS, SIGNALS, WORKLOADS, Trial, draw

from moments import state, until
from worlds import TRANSPORTS, Died, World

KINDS = ("ok", "error", "HANG", "WRONG", "RAW", "LEAK", "SPLIT")
LEAST = 30.0  # seconds in which a trial's calls without a fault are through, on the busiest machine


class Result(NamedTuple):
    """What came of a trial: "ok" where every call of every rank succeeded, or "error"; and what is wrong with it."""

    outcome: str
    findings: list[tuple[str, str]]
    errors: Counter[str]


class Storm:
    """Runs trials, in worlds that it keeps from one trial to the next as far as their processes live."""

    def __init__(self, folder: str, transport: str = "shm") -> None:
        self._transport = transport
        self._worlds: dict[int, World] = {}
        self._board = str(Path(folder, "rounds"))
        np.zeros(16, np.int64).tofile(self._board)
        self.rounds = np.memmap(self._board, np.int64, "r+")  # by rank: the round it is in; then: its child

    def world(self, size: int) -> World:
        """A world whose processes live, and whose ranks have measured what they hold when nothing happens."""
        world = self._worlds.setdefault(size, World(size, self._transport))
        if not world.processes:
            world.run(warm_up, fresh=True)
            world.start_alone(settle)
            world.finish(LEAST)
        return world

    def run(self, trial: Trial) -> Result:
        world = self.world(trial.size)
        self._zombie: int | None = None
        self.rounds[:] = 0
        findings: list[tuple[str, str]] = []
        try:
            reports = self._play(world, trial)
        except TimeoutError as error:
            return self._end(trial, Result("error", [("HANG", str(error))], Counter()))
        gone = {rank for rank, report in enumerate(reports) if report is None and rank != self._zombie}
        for rank, report in enumerate(reports):
            if isinstance(report, Report):
                findings += report.findings
            elif report is not None:
                died = isinstance(report, Died)
                findings.append(("RAW", f"rank {rank} {'crashed' if died else f'could not even report: {report!r}'}"))
                gone |= {rank} if died else set()
        try:
            onward = self._go_on(world, trial, reports, gone)
        except TimeoutError as error:
            return self._end(trial, Result("error", [*findings, ("HANG", f"in recover(): {error}")], Counter()))
        findings += judge(trial, reports, onward, self._zombie, self._transport != "shm")
        gone |= {rank for rank, report in enumerate(onward) if isinstance(report, Died)}
        world.start_alone(settle, without=gone)
        try:
            settled = world.finish(LEAST, without=gone)
        except TimeoutError as error:
            return self._end(trial, Result("error", [*findings, ("HANG", f"leaving the group: {error}")], Counter()))
        for rank, report in enumerate(settled):
            if isinstance(report, Report):
                if trial.fault == "interrupted in recover" and trial.step >= 8 and rank == trial.second:
                    continue  # between any two instructions: also before what was opened has a name
                findings += [(kind, f"rank {rank}: {text}") for kind, text in report.findings]
            elif report is not None:
                findings.append(("RAW", f"rank {rank}, leaving the group: {report!r}"))
        errors = Counter(report.outcome for report in reports if isinstance(report, Report))
        outcome = "error" if gone or set(errors) - {"ok"} else "ok"
        result = Result(outcome, findings, errors)
        return self._end(trial, result) if gone or findings else result

    def _go_on(self, world: World, trial: Trial, reports: list[Any], gone: set[int]) -> list[Any]:
        """What becomes of those that are left; None for all others."""
        out = {rank for rank, report in enumerate(reports) if rank in gone or (report is not None and report.left)}
        zombie, many = self._zombie, set(range(trial.size))
        if not gone and zombie is None and all(report.outcome == "ok" for report in reports):
            return [None] * trial.size
        late = set() if zombie is None else {zombie}
        world.start(go_on, trial, without=out | late)
        if trial.fault == "stopped in recover" and trial.second not in out:
            late = {trial.second}
        deadline = LEAST + 4 * LIMIT
        onward = world.finish(deadline, without=out | late)
        if not late:
            return onward
        os.kill(world.processes[min(late)].pid, signal.SIGCONT)
        if zombie is not None:
            reports[zombie] = world.finish(deadline, without=many - late)[zombie]
            if not isinstance(reports[zombie], Report) or reports[zombie].left:
                return onward
            world.start(go_on, trial, without=many - late)
        last = world.finish(deadline, without=many - late)
        return [last[rank] if rank in late else report for rank, report in enumerate(onward)]

    def _play(self, world: World, trial: Trial) -> list[Report | BaseException | None]:
        """The reports by rank, None where a rank was to die."""
        world.start(play, trial, self._board, fresh=True, timeout=trial.timeout)
        deadline = LEAST + trial.timeout
        if trial.first not in SIGNALS and trial.fault not in SIGNALS:
            return world.finish(deadline, without=trial.victim if trial.fault == "exit" else None)
        pid = world.processes[trial.victim].pid
        self._moment(trial, world)
        signals = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT, "handler calls": signal.SIGUSR2}
        os.kill(pid, signals.get(trial.first, signal.SIGSTOP))
        if trial.fault == "two killed":
            wait_for(trial.later)
            os.kill(world.processes[trial.second].pid, signal.SIGKILL)
            return world.finish(deadline, without={trial.victim, trial.second})
        if trial.first == "killed":
            return world.finish(deadline, without=trial.victim)
        if trial.fault == "zombie":
            self._zombie = trial.victim
            return world.finish(deadline, without=trial.victim)
        if trial.fault not in ("stopped long", "stopped briefly"):
            return world.finish(deadline)
        if trial.fault == "stopped briefly":
            time.sleep(0.02 + trial.delay * 40)
            os.kill(pid, signal.SIGCONT)
            return world.finish(deadline)
        others = world.finish(deadline, without=trial.victim)  # they have given up, and filled their arrays anew
        os.kill(pid, signal.SIGCONT)
        last = world.finish(deadline, without=set(range(trial.size)) - {trial.victim})
        others[trial.victim] = last[trial.victim]
        return others

    def _moment(self, trial: Trial, world: World) -> None:
        """Wait until the victim is in the round of the fault, and a little longer."""
        pids = [process.pid for process in world.processes]
        there = lambda: self.rounds[trial.victim] > trial.at or any(state(pid) in "ZX" for pid in pids)  # noqa: E731
        with contextlib.suppress(AssertionError):  # then the others will tell
            until(there, "the round of the fault", LEAST)
        wait_for(trial.delay)

    def _end(self, trial: Trial, result: Result) -> Result:
        """Take new processes for the next trial, and end the children of the old ones."""
        self._worlds.pop(trial.size).close()
        for child in self.rounds[trial.size : 2 * trial.size]:
            if child:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
        return result

    def close(self) -> None:
        for world in self._worlds.values():
            world.close()


def wait_for(seconds: float) -> None:
    """Awake, since moments matter."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make torture", description="Faults at random moments, and their end")
    parser.add_argument("--seed", type=int, help="of all that is drawn; by default another one each time")
    parser.add_argument("--trials", type=int, default=len(FAULTS) * len(WORKLOADS) * 5, help="how many (%(default)s)")
    parser.add_argument("--trial", type=int, help="only this one")
    parser.add_argument("--only", metavar="FAULT", help='those whose fault has that in its name, as "in recover"')
    parser.add_argument("--repeat", type=int, default=1, help="how often each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after so many seconds")
    parser.add_argument("--transport", choices=TRANSPORTS, default="shm", help="over which (%(default)s)")
    args = parser.parse_args(words)
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    numbers = list(range(args.trials)) if args.trial is None else [args.trial]
    numbers = [number for number in numbers if (args.only or "") in draw(seed, number).fault]
    print(f"torture: seed {seed}, {len(numbers) * args.repeat} trials", flush=True)
    table: dict[str, Counter[str]] = {fault: Counter() for fault in FAULTS}
    begin = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="hocket-torture-") as folder,
        contextlib.closing(Storm(folder, args.transport)) as storm,
    ):
        for done, (number, _) in enumerate(itertools.product(numbers, range(args.repeat)), 1):
            trial = draw(seed, number)
            if args.trial is not None and done == 1:
                print(f"trial {number}: {trial}")
            result = storm.run(trial)
            kinds = sorted({kind for kind, _ in result.findings}) or [result.outcome]
            table[trial.fault].update(kinds)
            if result.findings:
                _tell(f"--seed {seed} --transport {args.transport}", trial, result)
            _progress(done, len(numbers) * args.repeat, table, trial)
            if time.monotonic() - begin > args.seconds:
                break
    _show(table, done, time.monotonic() - begin)
    bad = sum(table[fault][kind] for fault in table for kind in KINDS[2:])
    print(f"torture: seed {seed}: {done} trials, {bad} findings")
    return 1 if bad else 0


def _tell(args: str, trial: Trial, result: Result) -> None:
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}trial {trial.number}: {trial}", file=sys.stderr)
    for kind, text in sorted(set(result.findings))[:6]:
        print(f"  {kind}  {text}", file=sys.stderr)
    print(f'  again: make torture ARGS="{args} --trial {trial.number} --repeat 20"', file=sys.stderr, flush=True)


def _progress(done: int, trials: int, table: dict[str, Counter[str]], trial: Trial) -> None:
    total: Counter[str] = sum(table.values(), Counter())
    counts = "  ".join(f"{kind} {total[kind]}" for kind in KINDS)
    line = f"{done}/{trials}  {counts}"
    if sys.stderr.isatty():
        print(f"\r\033[K{line}  {trial.workload}, {trial.fault}", end="", file=sys.stderr, flush=True)
    elif done % 50 == 0:
        print(line, file=sys.stderr, flush=True)


def _show(table: dict[str, Counter[str]], trials: int, seconds: float) -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"{'':20}" + "".join(f"{kind:>7}" for kind in KINDS))
    for fault, counts in table.items():
        print(f"{fault:20}" + "".join(f"{counts[kind] or '.':>7}" for kind in KINDS))
    print(f"{trials} trials in {seconds:.0f} s, calls may end {SLACK:g} s after their deadline")


if __name__ == "__main__":
    sys.exit(main())
