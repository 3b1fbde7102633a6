"""A trial as one rank lives it: the rounds of the workload, what is wrong with the results, faults from within."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import failpoints
import numpy as np
from scenario import ALGORITHMS, APART, HARMLESS, LEAVE, PROMISED, SCARCE, Trial
from within import ARMED, Oops, arm, handler, inject, interrupt
from workloads import STEPS

import hocket
from hocket.errors import untouched
from hocket.rendezvous.join import forget_doors
from hocket.rendezvous.links import Links
from hocket.rendezvous.parcels import Incoming
from moments import held, opened

SLACK = 3.0  # seconds that a call may end beyond its deadline, on a machine that is busy
MARGIN = 70  # elements of an array beside those that a call is given


class Verdict(NamedTuple):
    """What an error says of the end of a group: the same on all ranks that are left."""

    kind: str
    text: str
    lost: tuple[int, ...]
    completed: int
    settled: str


def verdict(error: BaseException | None) -> Verdict | None:
    """That of the innermost cause that has one; without the words where that is an exception of this rank's own."""
    found = None
    while error is not None:
        if isinstance(error, hocket.HocketError) and error.completed is not None:
            own = error.__cause__ is not None and not isinstance(error.__cause__, hocket.HocketError)
            kind, text = ("", "") if own else (type(error).__name__, untouched(str(error)))
            found = Verdict(kind, text, error.lost, error.completed, error.settled)
        error = error.__cause__
    return found


class Report(NamedTuple):
    """What became of a rank: "ok", or the name of the error that ended it; what is wrong with that; what it was told of
    the end of its group; how many calls of that it has completed, where they were counted; and whether it is out."""

    outcome: str
    text: str
    findings: list[tuple[str, str]]  # (HANG, WRONG, RAW, LEAK or SPLIT; what)
    verdict: Verdict | None = None
    good: int | None = None
    left: bool = False


class Context:
    """What a rank's workload works with. The collectives are called through `call`, arrays come from `array`."""

    def __init__(self, group: Any, trial: Trial, rounds: np.ndarray) -> None:
        self.group, self.trial, self.rounds = group, trial, rounds
        self.rank, self.size = group.rank, group.size
        self.rng = random.Random(trial.seed)  # the same on every rank
        self.findings: list[tuple[str, str]] = []
        self.child = 0
        self.fault: Callable[[], None] | None = None  # what the Python operator does next
        self.wholes: list[np.ndarray] = []
        self.named: dict[str, np.ndarray] = {}
        self.inputs: list[tuple[np.ndarray, np.ndarray]] = []  # that must not change, and what they were
        self.refilled = False
        self.longest = 0.0  # seconds of a call that succeeded: for so long one takes on this machine, as busy as it is
        self.good = group._calls.endpoint.survey(0.0, False)[group.rank][2]  # calls that this rank has completed
        self.groups: list[Any] = []  # that came after this one,
        self.kept: list[tuple[np.ndarray, np.ndarray]] = []  # and arrays there, and what is in them

    # ---- for the workloads

    def array(self, name: str, count: int, dtype: Any = None, place: str = "") -> np.ndarray:
        """The array of that name, the same one in each round; guarded by a margin on both sides."""
        if name not in self.named:
            make = self.group.empty if (place or self.trial.place) == "arena" else np.empty
            whole = make(count + 2 * MARGIN, dtype or self.trial.dtype)
            whole[:] = 77
            self.wholes.append(whole)
            self.named[name] = whole[MARGIN : MARGIN + count]
        return self.named[name]

    def algorithm(self, collective: str) -> str | None:
        ways = ALGORITHMS[collective]
        return ways[self.trial.algorithm % len(ways)]

    def keep(self, x: np.ndarray) -> np.ndarray:
        """An input, which must not change until the round is over."""
        self.inputs.append((x, x.copy()))
        return x

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Make a call, with the trial's timeout where none is given, and see whether it ends in time. What is promised
        of faults counts from these on, which come in the middle of a call, and not where it succeeds."""
        begin = time.monotonic()
        timeout = options.pop("timeout", self.trial.timeout)
        limit = min(timeout, PROMISED.get(self.trial.fault, timeout) + self.longest)
        if self.trial.workload in (*APART, "messages"):  # who leaves concerns those that wait for it
            limit = timeout if self.trial.first in LEAVE else limit
        try:
            result = function(*args, timeout=timeout, **options)
            self.good += 1
            self.longest, limit = max(self.longest, time.monotonic() - begin), timeout
            return result
        finally:
            took = time.monotonic() - begin
            mine = self.rank in (self.trial.victim, self.trial.struck, self.trial.second) and "stop" in self.trial.fault
            mine = mine or (self.rank == self.trial.victim and self.trial.fault == "zombie")
            if took > limit + SLACK and not mine:
                self.find("HANG", f"a call that may take {limit:.1f} s took {took:.1f} s")

    def same(self, got: Any, expected: np.ndarray, what: str) -> None:
        """A result that was given as such is right, bit for bit."""
        if got is None or got.shape != expected.shape or got.dtype != expected.dtype or (got != expected).any():
            shown = "None" if got is None else f"{got.dtype}{list(got.shape)} {got.reshape(-1)[:4]}"
            self.find("WRONG", f"{what}: {shown} is not {expected.dtype}{list(expected.shape)} {expected[:4]}")

    def operator(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        """The sum, in Python; where a fault is due in an operator, here it is."""
        np.add(a, b, out)
        fault, self.fault = self.fault, None
        if fault is not None:
            fault()

    def find(self, kind: str, text: str) -> None:
        self.findings.append((kind, f"rank {self.rank}: {text}"))

    # ---- after a round, and at the end

    def look_at_inputs(self) -> None:
        for x, before in self.inputs:
            if (x != before).any():
                self.find("WRONG", f"an input changed, from element {int(np.flatnonzero(x != before)[0])} on")
        self.inputs.clear()

    def refill(self) -> None:
        """After an error the arrays are this rank's again."""
        for i, x in enumerate(self.named.values()):
            x[:] = (np.arange(len(x)) * 3 + i) % 101
        self.refilled = True

    def look_at_refilled(self) -> None:
        for i, (name, x) in enumerate(self.named.items() if self.refilled else []):
            wrong = np.flatnonzero(x != (np.arange(len(x)) * 3 + i) % 101)
            if len(wrong):
                what = f"{len(wrong)} of {len(x)} elements of {name!r} written after the error, from {wrong[0]} on"
                self.find("WRONG", f"{what}: {x[wrong[:4]]}")
        for x, before in self.kept:
            if (x != before).any():
                self.find("WRONG", "an array of the new group changed")
        for whole in self.wholes:
            if (whole[:MARGIN] != 77).any() or (whole[-MARGIN:] != 77).any():
                self.find("WRONG", "memory beside an array of a call was written")


NOW: list[Context] = []  # the trial that this process is in
BEFORE: list[tuple[int, int, int]] = []  # what it held after its first trial,
OPEN: set[str] = set()  # and which descriptors
STAGES: list[tuple[str, set[str]]] = []  # which it had since: for a leak that may not come again
# Of whose calls some are several; and faults that make calls themselves.
MANIFOLD = ("small", "uneven", "async", "persistent", "messages", "subgroups", "threads")
RAISED = ("exception", "interrupted", "interrupted at a step", "operator raises")
ELSEWHERE = (*SCARCE, "killed as they meet")  # whose errors may be those of another group, too
UNCOUNTED = ("closed", "handler calls", *ELSEWHERE, "exception", "exit", "mismatch")


def play(group: Any, trial: Trial, board: str) -> Report:
    """All rounds, or those until the first error."""
    rounds = np.memmap(board, np.int64, "r+")
    ctx = Context(group, trial, rounds)
    NOW[:] = [ctx]
    STAGES[:] = [("as it began", opened())]
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGUSR2, lambda *_: handler(ctx))
    outcome, text, told, left = "ok", "", None, False
    try:
        ARMED[0] = True
        for k in range(trial.rounds):
            rounds[ctx.rank] = k + 1
            if k == trial.at:
                arm(ctx, "at a step")
                inject(ctx)
            STEPS[trial.workload](ctx, k)
            ctx.look_at_inputs()
        ctx.call(group.barrier)
        ARMED[0] = False
        if trial.first == "mismatch":
            ctx.find("WRONG", "a call that differs went unnoticed")
    except BaseException as error:
        ARMED[0] = False
        outcome, text, left = _judge(ctx, error)
        told = verdict(error) if trial.workload not in APART and trial.fault not in ELSEWHERE else None
    finally:
        failpoints.disarm()
        ARMED[0] = False
        STAGES.append(("when it had played", opened()))
        rounds[ctx.rank] = 1 << 40
    if ctx.child:
        os.kill(ctx.child, signal.SIGKILL)
        os.waitpid(ctx.child, 0)
    counted = trial.workload not in MANIFOLD and trial.first not in UNCOUNTED and outcome != "KeyboardInterrupt"
    good = ctx.good if counted else None
    return Report(outcome, text, ctx.findings, told, good, left)


def _judge(ctx: Context, error: BaseException) -> tuple[str, str, bool]:
    """What an error is called; after it the inputs are as they were, and the arrays are filled anew. Whether this rank
    leaves then."""
    trial, mine = ctx.trial, ctx.rank == ctx.trial.struck
    own: tuple[type[BaseException], ...] = (Oops, KeyboardInterrupt) if mine else ()
    public = isinstance(error, hocket.HocketError)
    if not public and not (isinstance(error, own) and trial.fault in RAISED):
        trace = "".join(traceback.format_exception(error)[-4:])
        ctx.find("RAW", f"{type(error).__module__}.{type(error).__name__}: {error}\n{trace}")
    elif trial.fault in HARMLESS:
        ctx.find("WRONG", f"a call failed, and nothing had happened: {type(error).__name__}: {error}")
    if trial.fault != "closed":  # its arrays are
        ctx.look_at_inputs()
    left = trial.fault == "closed" and mine
    if not public and (trial.seed % 3 or trial.workload in MANIFOLD):  # of which calls may still be in flight
        ctx.group.__exit__(type(error), error, None)
        left = True
    ctx.refill()
    return type(error).__name__, str(error), left


def warm_up(group: Any) -> None:
    """What a process makes once and keeps, it makes here."""
    group.all_reduce(np.ones(10), async_op=True).wait()
    group.all_reduce_init(np.ones(10))()
    with group.split(0) as part:
        part.all_gather(group.empty(10))


def settle(_: None) -> Report:
    """When the group has been left and all others have reported: nothing came late, and nothing is left behind."""
    findings = []
    if NOW:
        ctx = NOW.pop()
        ctx.findings.clear()
        while ctx.groups:
            ctx.groups.pop().close()
        ctx.look_at_refilled()
        forget_doors()
        findings = list(ctx.findings)
        ctx.__dict__.clear()  # the arrays, and whatever else knows the group
    if not BEFORE:
        BEFORE.append(held())
        OPEN.update(opened())
    end = time.monotonic() + 2
    while not _as_before() and time.monotonic() < end:
        time.sleep(0.01)
    if not _as_before():
        stages = [("after the first trial", OPEN), *STAGES, ("now", opened())]
        new = ", ".join(f"{each} ({_who_knows(each)} knows of it)" for each in sorted(stages[-1][1] - OPEN))
        listed = "".join(f"\n  {name}: {sorted(had)}" for name, had in stages)
        findings.append(("LEAK", f"descriptors, threads, mappings: {BEFORE[0]} became {held()}: {new}{listed}"))
    return Report("settled", "", findings)


def _who_knows(each: str) -> str:
    """Who would close a descriptor."""
    number = int(each.partition(":")[0])
    holders = [it for it in gc.get_objects() if isinstance(it, (Links, Incoming))]
    return ", ".join(type(it).__name__ for it in holders if number in _numbers(it)) or "nobody"


def _numbers(it: Links | Incoming) -> list[int]:
    return it.fds if isinstance(it, Incoming) else [*it.fds, *it.pidfds, *it.events]


def _as_before() -> bool:
    return all(now <= then for now, then in zip(held(), BEFORE[0], strict=True))
