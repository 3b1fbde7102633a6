"""Faults that come from within a rank: what it does in the round of the fault, and at the steps of the protocol."""

from __future__ import annotations

import atexit
import errno
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import failpoints
import numpy as np
from scenario import LINES, SCARCE

import hocket
from moments import descriptors

ARMED = [False]  # whether SIGINT interrupts


class Oops(Exception):
    """What a fault raises."""


def interrupt(number: int, frame: Any) -> None:
    if ARMED[0]:
        ARMED[0] = False
        raise KeyboardInterrupt


def handler(ctx: Any) -> None:
    """A signal handler that calls: no other rank makes this call, so that any of hocket's errors is right."""
    if not ARMED[0]:
        return
    odd = np.ones(7, np.int16)
    way = ctx.trial.seed % 3
    try:
        if way == 0:
            ctx.call(ctx.group.all_reduce, odd)
        elif way == 1:
            ctx.call(ctx.group.barrier)
        else:
            ctx.call(ctx.group.all_reduce, odd, async_op=True)
    except hocket.HocketError:
        pass
    except Exception as error:
        ctx.find("RAW", f"in the handler: {error!r}")


def arm(ctx: Any, when: str) -> None:
    """Where the fault is to happen at a step, and then, it will."""
    trial = ctx.trial
    if not trial.step or not trial.fault.endswith(when) or ctx.rank != trial.struck:
        return
    signals = {"k": signal.SIGKILL, "s": signal.SIGSTOP, "i": signal.SIGINT, "l": 0}
    number = 0 if trial.fault[0] == "k" and trial.seed % 5 == 0 else signals[trial.fault[0]]
    failpoints.arm(trial.step, trial.visit, number, trial.later if trial.fault[0] == "l" else -1.0)


def inject(ctx: Any) -> None:
    """The fault, where it comes from within; some need a call that all ranks make."""
    fault, mine = ctx.trial.first, ctx.rank == ctx.trial.victim
    if fault.startswith("operator"):
        if mine:
            ctx.fault = _raise if fault == "operator raises" else lambda: _busy(ctx.trial.timeout + 0.4)
        x = ctx.keep(ctx.array("for the operator", 100, "float64"))
        x[:] = ctx.rank
        ctx.inputs.clear()
        result = ctx.call(ctx.group.all_reduce, ctx.keep(x), op=ctx.operator)
        ctx.same(result, np.full(100, float(sum(range(ctx.size)))), "a sum by the operator")
        if fault == "operator overruns" and mine and ctx.fault is None:
            ctx.find("WRONG", "a call succeeded whose operator had overrun its deadline")
    elif fault in SCARCE:
        with scarce(ctx, fault) if mine else nullcontext():
            part = ctx.group.split(0, -ctx.rank)
            ctx.same(np.array(ctx.call(part.all_reduce, 1)), np.array(ctx.size), "a sum")
            part.close()
    elif fault == "killed as they meet":
        _meet_again(ctx, mine)
    elif fault in LINES and mine:
        failpoints.arm(LINES[fault], ctx.trial.visit)
    elif mine and fault in WITHIN:
        WITHIN[fault](ctx)


def _raise() -> None:
    raise Oops("in the operator")


def _busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@contextmanager
def scarce(ctx: Any, fault: str) -> Iterator[None]:
    """This rank has few descriptors left; or no memory to share, of which one step fails."""
    seed, limits = ctx.trial.seed, resource.getrlimit(resource.RLIMIT_NOFILE)
    calls = {"memfd_create": (os.memfd_create, errno.ENOMEM), "ftruncate": (os.ftruncate, errno.ENOSPC)}
    name = ("memfd_create", "ftruncate", "unmapped")[seed % 3]
    try:
        if fault.startswith("no descriptors"):
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() - 1 + seed % 8, limits[1]))
        elif name in calls:
            setattr(os, name, _refusal(calls[name][1]))
        else:
            failpoints.arm(name, 1 + seed // 3 % ctx.size)  # of its own or of another's
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for name, (function, _) in calls.items():
            setattr(os, name, function)
        failpoints.disarm()


def _refusal(number: int) -> Callable[..., Any]:
    def refuse(*args: Any) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def _meet_again(ctx: Any, mine: bool) -> None:
    """In another group, beside the one that there is; the victim is killed on the way, or a little later."""
    os.environ["TORCHELASTIC_RUN_ID"] += ".again"

    def end() -> None:
        time.sleep(ctx.trial.later)
        os.kill(os.getpid(), signal.SIGKILL)

    if mine:
        threading.Thread(target=end, daemon=True).start()
    with ctx.call(hocket.init) as group:
        ctx.same(np.array(ctx.call(group.all_reduce, 1)), np.array(ctx.size), "a sum of those that met again")
        ctx.call(group.barrier)
    if mine:
        time.sleep(10.0)


def _exit(ctx: Any) -> None:
    """As an interpreter ends by sys.exit(0): what is registered for that runs, and then the process is gone."""
    _begin_something(ctx)
    if ctx.child:
        os.kill(ctx.child, signal.SIGKILL)
    with suppress(BaseException):
        atexit._run_exitfuncs()
    os._exit(0)


def _exception(ctx: Any) -> None:
    _begin_something(ctx)
    raise Oops("in the middle")


def _begin_something(ctx: Any) -> None:
    """Now and then there is a call in flight that will not be waited for: the others do not make it."""
    if ctx.trial.seed % 2:
        ctx.call(ctx.group.all_reduce, np.ones(13), async_op=True)


def _close(ctx: Any) -> None:
    group, delay = ctx.group, ctx.trial.delay

    def close() -> None:
        end = time.monotonic() + delay
        while time.monotonic() < end:
            pass
        try:
            group.close()
        except BaseException as error:
            ctx.find("RAW", f"close() in another thread: {error!r}")

    threading.Thread(target=close, daemon=True).start()


def _mismatch(ctx: Any) -> None:
    odd: list[Callable[[], Any]] = [
        lambda: ctx.call(ctx.group.all_reduce, np.ones(11, np.int8)),
        lambda: ctx.call(ctx.group.all_gather, np.ones((3, 5))),
        lambda: ctx.call(ctx.group.broadcast, np.ones(17), root=ctx.rank),
        lambda: ctx.call(ctx.group.all_reduce, np.ones(11, np.int8), async_op=True).wait(),
    ]
    odd[ctx.trial.seed % len(odd)]()


WITHIN: dict[str, Callable[[Any], None]] = {
    "exit": _exit,
    "exception": _exception,
    "closed": _close,
    "mismatch": _mismatch,
}
