"""The torture run: faults at random moments, on random ranks, in every kind of call, and what came of them.

    make torture                               a thousand trials or more, from a seed that is printed
    make torture ARGS="--seed 7 --trials 2000"
    make torture ARGS="--seed 7 --trial 137"   that one again; --repeat 50: as it is a matter of moments
    make torture ARGS="--steps"                no moments: a kill and a stop at each step of csrc/wait/failpoint.h

After each trial:

    HANG   a call did not return by its deadline, or where a rank was gone within what is promised, and 3 seconds
    WRONG  a result that was given as a success is not NumPy's; an input changed; an array that a rank filled anew after
           an error was written; a call failed though nothing had happened; a call that differed went unnoticed
    SPLIT  survivors were told different things of the end, or not which calls they had completed; or they went on in
           groups of different members, or somebody did who was lost
    RAW    an error that is none of hocket's public ones, nor the fault's own
    LEAK   a survivor has more descriptors, threads or mappings than before

Each is written to a file in build/torture as it is found, with what all ranks reported. Exit code 1 where there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from in_rank import SLACK, Report, play, settle, warm_up
from judge import judge
from keep import FOLDER, keep
from regroup import LIMIT, go_on
from scenario import BY_CHANCE, FAULTS, LINES, LINKS, SIGNALS, WORKLOADS, Trial, draw, grid

from moments import state, until
from worlds import TRANSPORTS, Died, World, preload

preload("warm")

KINDS = ("ok", "error", "HANG", "WRONG", "RAW", "LEAK", "SPLIT")
IN_CLEAR = ("tcp", "2x2", "3+1")
LEAST = 30.0  # seconds in which a trial's calls without a fault are through, on the busiest machine


class Result(NamedTuple):
    """What came of a trial: "ok" where every call of every rank succeeded, or "error"; what is wrong with it; whether a
    rank was killed or stopped at the step that the trial names; and, where something is wrong, what ranks reported."""

    outcome: str
    findings: list[tuple[str, str]]
    fired: bool = False
    story: tuple[str, ...] = ()


class Storm:
    """Runs trials, in worlds that it keeps from one trial to the next as far as their processes live."""

    def __init__(self, folder: str, transport: str = "shm") -> None:
        self._transport = transport
        self._worlds: dict[tuple[int, bool], World] = {}
        self._board = str(Path(folder, "rounds"))
        np.zeros(16, np.int64).tofile(self._board)
        self.rounds = np.memmap(self._board, np.int64, "r+")  # by rank: the round it is in; then: its child

    def world(self, trial: Trial) -> World:
        """A world whose processes live, and whose ranks have measured what they hold when nothing happens."""
        integrity = {"HOCKET_INTEGRITY": "1"} if _is_checked(trial) else {}
        world = self._worlds.setdefault(_kind(trial), World(trial.size, self._transport, **integrity))
        if not world.processes:
            world.run(warm_up, fresh=True)
            world.start_alone(settle)
            world.finish(LEAST)
        return world

    def run(self, trial: Trial) -> Result:
        self._story: list[str] = []
        result = self._run(trial)
        return result._replace(story=tuple(self._story)) if result.findings else result

    def _run(self, trial: Trial) -> Result:
        world = self.world(trial)
        self._zombie: int | None = None
        self._fired = False
        self.rounds[:] = 0
        findings: list[tuple[str, str]] = []
        try:
            reports = self._play(world, trial)
        except (TimeoutError, AssertionError) as error:
            return self._end(trial, Result("error", [("HANG", str(error))]))
        self._note("played", reports)
        gone = {rank for rank, report in enumerate(reports) if report is None and rank != self._zombie}
        for rank, report in enumerate(reports):
            if isinstance(report, Report):
                findings += report.findings
            elif report is not None:
                died = isinstance(report, Died)
                findings.append(("RAW", f"rank {rank} {'crashed' if died else f'could not even report: {report!r}'}"))
                gone.add(rank)
        try:
            onward = self._go_on(world, trial, reports, gone)
        except TimeoutError as error:
            return self._end(trial, Result("error", [*findings, ("HANG", f"in recover(): {error}")]))
        self._note("went on", onward)
        self._mend(trial)  # and now comes what was on its way
        findings += judge(trial, reports, onward, self._zombie, self._transport != "shm")
        dead = {rank for rank, report in enumerate(onward) if isinstance(report, Died)}
        self._fired |= trial.struck in dead
        gone |= dead
        world.start_alone(settle, without=gone)
        try:
            settled = world.finish(LEAST, without=gone)
        except TimeoutError as error:
            return self._end(trial, Result("error", [*findings, ("HANG", f"leaving the group: {error}")]))
        self._note("settled", settled)
        forgiven = False  # something, which the next trial would find
        for rank, report in enumerate(settled):
            if isinstance(report, Report):
                told = [(kind, text) for kind, text in report.findings if not trial.forgives(rank, kind)]
                forgiven |= len(told) < len(report.findings)
                findings += [(kind, f"rank {rank}: {text}") for kind, text in told]
            elif report is not None:
                findings.append(("RAW", f"rank {rank}, leaving the group: {report!r}"))
        good = all(report.outcome == "ok" for report in reports if isinstance(report, Report))
        result = Result("ok" if good and not gone else "error", findings, self._fired)
        return self._end(trial, result) if gone or findings or forgiven else result

    def _note(self, what: str, reports: list[Any]) -> None:
        self._story += [f"rank {rank} {what}: {report!r}" for rank, report in enumerate(reports)]

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
        pid = world.processes[min(late)].pid
        self._fired |= state(pid) == "T"
        os.kill(pid, signal.SIGCONT)
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
        if trial.fault in LINKS:
            return self._apart(world, trial, deadline)
        if trial.fault.endswith("at a step"):
            return self._at_a_step(world, trial, deadline)
        if trial.first not in SIGNALS and trial.fault not in SIGNALS:
            return world.finish(
                deadline, without=trial.victim if trial.fault in ("exit", "killed as they meet") else None
            )
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

    def _at_a_step(self, world: World, trial: Trial, deadline: float) -> list[Report | BaseException | None]:
        """Who is struck there tells so by its end, or by standing still once all others have come to theirs."""
        if trial.first == "killed":
            self._moment(trial, world)
            os.kill(world.processes[trial.victim].pid, signal.SIGKILL)
        killed = {trial.victim} if trial.first == "killed" else set()
        fatal = trial.fault in ("killed at a step", "stopped at a step")
        reports = world.finish(deadline, without=killed | ({trial.struck} if fatal else set()))
        if not fatal:
            return reports
        pid, pipe = world.processes[trial.struck].pid, world.pipes[trial.struck]
        until(lambda: state(pid) in "TZX" or pipe.poll(), "an answer, or a rank that is stopped or dead", LEAST)
        self._fired = state(pid) in "TZX"
        if state(pid) == "T":
            self._zombie = trial.struck
        elif not self._fired:
            last = world.finish(deadline, without=set(range(trial.size)) - {trial.struck})[trial.struck]
            self._fired = isinstance(last, Died)
            reports[trial.struck] = None if self._fired else last
        return reports

    def _apart(self, world: World, trial: Trial, deadline: float) -> list[Report | BaseException | None]:
        """The victim's host is cut off from the others: for a moment, or until all have gone on."""
        self._moment(trial, world)
        if trial.fault == "cut off one way":
            world.host(trial.victim).lose(1)
        else:
            world.host(trial.victim).cut()
        if trial.fault == "cut off briefly":
            time.sleep(0.02 + trial.delay * 40)
            self._mend(trial)
        return world.finish(deadline)

    def _mend(self, trial: Trial) -> None:
        if trial.fault in LINKS:
            self._worlds[_kind(trial)].host(trial.victim).mend()

    def _moment(self, trial: Trial, world: World) -> None:
        """Wait until the victim is in the round of the fault, and a little longer."""
        pids = [process.pid for process in world.processes]
        there = lambda: self.rounds[trial.victim] > trial.at or any(state(pid) in "ZX" for pid in pids)  # noqa: E731
        with contextlib.suppress(AssertionError):  # then the others will tell
            until(there, "the round of the fault", LEAST)
        wait_for(trial.delay)

    def _end(self, trial: Trial, result: Result) -> Result:
        """Take new processes for the next trial, and end the children of the old ones."""
        self._mend(trial)
        self._worlds.pop(_kind(trial)).close()
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


def _is_checked(trial: Trial) -> bool:
    return trial.fault == "a bit is flipped"


def _kind(trial: Trial) -> tuple[int, bool]:
    """Of the world that it is played in."""
    return trial.size, _is_checked(trial)


def _absent(transport: str) -> tuple[str, ...]:
    """The faults that there are not over that transport."""
    links = () if TRANSPORTS[transport].layout else LINKS
    return links if transport in IN_CLEAR else (*links, *LINES)


_storms: list[Storm] = []  # that of this process


def _begin(transport: str) -> None:
    folder = tempfile.TemporaryDirectory(prefix="hocket-torture-")
    _storms.append(Storm(folder.name, transport))
    Finalize(None, folder.cleanup, exitpriority=1)
    Finalize(None, _storms[0].close, exitpriority=2)


def _run(trial: Trial) -> Result:
    return _storms[0].run(trial)


def results(trials: Iterable[Trial], jobs: int, transport: str, seconds: float) -> Iterator[tuple[Trial, Result]]:
    """As they come: most trials wait, so that several storms pass side by side, each in a process with worlds of its
    own. After so many seconds none is begun."""
    end = time.monotonic() + seconds
    left = iter(trials)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin, (transport,)) as pool:
        running: dict[Future[Result], Trial] = {}
        while True:
            for trial in itertools.islice(left, jobs - len(running) if time.monotonic() < end else 0):
                running[pool.submit(_run, trial)] = trial
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def main(words: list[str] | None = None) -> int:
    args = _parser().parse_args(words)
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    numbers = list(range(args.trials)) if args.trial is None else [args.trial]
    drawn = grid(args.transport) if args.steps else [draw(seed, number, _absent(args.transport)) for number in numbers]
    chosen = [trial for trial in drawn if (args.only or "") in trial.fault and args.trial in (None, trial.number)]
    trials = [trial for trial in chosen for _ in range(args.repeat)]
    print(f"torture: seed {seed}, {len(trials)} trials", flush=True)
    if args.trial is not None:
        print(f"trial {args.trial}: {trials[0]}")
    name = f"{f'seed-{seed}' if not args.steps else 'steps'}-{args.transport}"
    again = f"--{f'seed {seed}' if not args.steps else 'steps'} --transport {args.transport} --jobs {args.jobs}"
    table: dict[str, Counter[str]] = {fault: Counter() for fault in FAULTS}
    fired: dict[str, bool] = {}
    begin, done = time.monotonic(), 0
    for trial, result in results(trials, args.jobs, args.transport, args.seconds):
        done += 1
        table[trial.fault].update(sorted({kind for kind, _ in result.findings}) or [result.outcome])
        if result.findings:
            command = f'make torture ARGS="{again} --trial {trial.number} --repeat 20"'
            kept = keep(args.findings, name, command, trial, result.findings, result.story)
            _tell(command, trial, result, kept)
        if trial.step:
            fired[trial.step] = fired.get(trial.step, False) or result.fired
        _progress(done, len(trials), table, trial)
    _show(table, done, time.monotonic() - begin)
    bad = sum(table[fault][kind] for fault in table for kind in KINDS[2:])
    print(f"torture: seed {seed}: {done} trials, {bad} findings")
    missed = [step for step, came in fired.items() if not came and step not in BY_CHANCE] if args.steps else []
    if missed:
        print(f"torture: no rank ended at {', '.join(missed)}")
    return 1 if bad or missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make torture", description="Faults at random moments, and their end")
    parser.add_argument("--seed", type=int, help="of all that is drawn; by default another one each time")
    parser.add_argument("--trials", type=int, default=len(FAULTS) * len(WORKLOADS) * 5, help="how many (%(default)s)")
    parser.add_argument("--trial", type=int, help="only this one")
    parser.add_argument("--only", metavar="FAULT", help='those whose fault has that in its name, as "in recover"')
    parser.add_argument("--steps", action="store_true", help="a kill and a stop at each step of the protocol instead")
    parser.add_argument("--repeat", type=int, default=1, help="how often each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after so many seconds")
    parser.add_argument("--transport", choices=TRANSPORTS, default="shm", help="over which (%(default)s)")
    parser.add_argument(
        "--findings",
        metavar="FOLDER",
        type=Path,
        default=FOLDER,
        help="where each is written as it is found (%(default)s)",
    )
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="trials at a time (%(default)s)")
    return parser


def _tell(again: str, trial: Trial, result: Result, kept: Path) -> None:
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}trial {trial.number}: {trial}", file=sys.stderr)
    for kind, text in sorted(set(result.findings))[:6]:
        print(f"  {kind}  {text}", file=sys.stderr)
    print(f"  again: {again}\n  all of it: {kept}", file=sys.stderr, flush=True)


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
