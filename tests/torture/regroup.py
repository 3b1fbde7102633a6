"""After a trial, as one rank lives it: what it was told of the end, and the group of those that are left."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import failpoints
import numpy as np
from in_rank import NOW, SLACK, STAGES, Context, Verdict, verdict
from scenario import Trial
from within import ARMED, arm, scarce

import hocket
from moments import opened

TOO_FEW = "are no majority"  # of ranks of several hosts
LIMIT = 10.0  # seconds of recover()
PATIENCE = 5.0  # seconds of the call before it: where nothing is wrong, it succeeds on all
ENOUGH = 20.0  # seconds of a call in the new group, in which one that is stopped is known to be
WORK_BYTES = 4096


class Onward(NamedTuple):
    """What became of a rank that called recover(): "whole" (nothing had ended its group), "regrouped", or the name of
    the error; what it was told of the end; the ranks of the new group as they were in the old one, and its history."""

    outcome: str
    text: str
    findings: list[tuple[str, str]]
    verdict: Verdict | None
    members: tuple[int, ...] = ()
    history: tuple[Any, ...] = ()


def go_on(group: Any, trial: Trial) -> Onward:
    """The next call says what ended the group; then comes another one. Whoever is lost in that, too, is left out."""
    ctx = NOW[0]
    ctx.findings = []
    if not ctx.refilled:
        ctx.refill()
    told, first = None, ""
    try:
        for _ in range(2 if trial.fault == "a bit is flipped" else 1):  # of one link: it may end well on another rank
            ctx.call(group.barrier, timeout=max(trial.timeout, PATIENCE))
        whole = True
    except hocket.HocketError as error:
        told, whole, first = verdict(error), False, f"{type(error).__name__}: {error}"
    mine = ctx.rank == trial.second and trial.fault.endswith("in recover")
    members = tuple(range(ctx.size))
    history: tuple[Any, ...] = ()
    old = new = group
    try:
        for _ in range(4):
            with trouble(ctx) if mine else nullcontext():
                new = again(ctx, old)
            mine = False
            STAGES.append(("when it had recovered", opened()))
            ctx.groups.append(new)
            history = tuple(loss._replace(at=0.0) for loss in new.history)
            members = tuple(r for i, r in enumerate(members) if i not in history[-1].ranks)
            if new.size != len(members) or members[new.rank] != ctx.rank:
                ctx.find("SPLIT", f"rank {new.rank} of {new.size} after {history}")
            try:
                use(ctx, new, members)
                return Onward("regrouped", "", ctx.findings, told, members, history)
            except hocket.PeerLost:  # who was lost at the very end of recover()
                old = new
        ctx.find("SPLIT", "no group lasts")
    except hocket.HocketError as error:
        if TOO_FEW in str(error) and len(set(old.topology.places)) > 1 and not trial.few:
            return Onward("few", str(error), ctx.findings, told)
        if whole and type(error) is hocket.HocketError:
            return Onward("whole", "", ctx.findings, None)
        return Onward(type(error).__name__, f"{error} (after {first or 'a good call'})", ctx.findings, told)
    except KeyboardInterrupt:  # just when recover() returned: the others hear of it
        if trial.fault != "interrupted in recover":
            raise
        new.close()
        gc.collect()
    except BaseException as error:
        ctx.find("RAW", f"in recover(): {type(error).__name__}: {error}")
    return Onward("lost", "", ctx.findings, told)


def again(ctx: Context, old: Any) -> Any:
    """The group after that one; where this rank is interrupted in the middle, it tries once more."""
    begin = time.monotonic()
    try:
        return old.recover(timeout=LIMIT, allow_minority=ctx.trial.few)
    except KeyboardInterrupt:
        gc.collect()  # what it may have returned
        begin = time.monotonic()
        return old.recover(timeout=LIMIT, allow_minority=ctx.trial.few)
    finally:
        victims = {"stopped in recover": ctx.trial.second, "zombie": ctx.trial.victim}
        stopped = victims.get(ctx.trial.fault) == ctx.rank
        if (took := time.monotonic() - begin) > LIMIT + SLACK and not stopped:
            ctx.find("HANG", f"recover(timeout={LIMIT}) took {took:.1f} s")


def use(ctx: Context, new: Any, members: tuple[int, ...]) -> None:
    """Several calls, among arrays of its own that nobody else is to write from then on."""
    x = new.empty(WORK_BYTES // 8, "int64")
    for turn in range(3):
        x[:] = np.arange(len(x)) + 1000 * ctx.rank + turn
        every = [np.arange(len(x)) + 1000 * r + turn for r in members]
        total, joined, root = np.sum(every, axis=0), np.concatenate(every), turn % len(members)
        ctx.same(ctx.call(new.all_reduce, x, timeout=ENOUGH), total, "a sum of those that are left")
        ctx.same(ctx.call(new.all_gather, x, timeout=ENOUGH), joined, "all_gather of those that are left")
        got = ctx.call(new.broadcast, x, root=root, timeout=ENOUGH)
        ctx.same(got, every[root], "a broadcast of those that are left")
    ctx.kept.append((x, x.copy()))


def trouble(ctx: Context) -> AbstractContextManager[None]:
    fault = ctx.trial.fault
    return scarce(ctx, fault) if fault.startswith("no ") else tripped(ctx)


@contextmanager
def tripped(ctx: Context) -> Iterator[None]:
    """In there, once, this rank is killed, stopped or interrupted: at a step of the protocol, or at any moment."""
    trial, armed = ctx.trial, [not ctx.trial.step]

    def sometime() -> None:
        end = time.monotonic() + trial.later / 2
        while time.monotonic() < end:
            time.sleep(0.0001)
        if armed[0]:
            os.kill(os.getpid(), {"k": signal.SIGKILL, "s": signal.SIGSTOP, "i": signal.SIGINT}[trial.fault[0]])

    thread = threading.Thread(target=sometime, daemon=True)
    ARMED[0] = trial.fault == "interrupted in recover"
    arm(ctx, "in recover")
    if armed[0]:
        thread.start()
    try:
        yield
    finally:
        armed[0] = ARMED[0] = False
        failpoints.disarm()
        if not trial.step:
            thread.join()
