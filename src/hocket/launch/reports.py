"""What becomes of each rank: its report, as it travels to who started the ranks, and which of several failures counts.

`do` is the life of a rank, wherever it runs; `gather` is the other end, whoever brings the reports.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..deadline import Deadline
from ..errors import CollectiveTimeout, HocketError, PeerLost
from .aftermath import PATIENCE, Process, is_consequence, left_too_early, trimmed


class RemoteTraceback(Exception):
    """The `__cause__` of an error that a rank raised: which one, and its traceback there, as text."""


@dataclass(frozen=True)
class Report:
    """What became of one rank: its result, pickled, or how it failed."""

    result: bytes | None = None
    error: bytes | None = None  # the exception, where it can be pickled
    summary: str = ""
    trace: str = ""
    consequence: bool = False
    when: float = field(default_factory=time.monotonic)  # one clock for all processes of a host


# ---- in the rank ----


def do(call: bytes, dumps: Callable[[Any], bytes] = pickle.dumps) -> Report:
    """Make the pickled `call`, a function with its arguments, and report."""
    try:
        fn, args, kwargs = pickle.loads(call)
        return Report(result=dumps(_call(fn, args, kwargs)))
    except BaseException as error:
        return _failed(error, dumps)


def _call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except SystemExit as leave:
        if leave.code in (None, 0):
            return None
        raise


def _failed(error: BaseException, dumps: Callable[[Any], bytes]) -> Report:
    pickled = None
    with suppress(Exception):
        pickled = dumps(error) if isinstance(error, Exception) else None
    with trimmed(error):
        frame = error.__traceback__
        while frame and frame.tb_next and frame.tb_frame.f_code.co_filename == __file__:  # this page is no news
            frame = frame.tb_next
        trace = "".join(traceback.format_exception(type(error), error, frame))
    summary = traceback.format_exception_only(type(error), error)[-1].strip()
    return Report(error=pickled, summary=summary, trace=trace, consequence=is_consequence(error))


# ---- where the ranks were started ----


@dataclass
class Rank:
    """One of them, as who started it sees it."""

    process: Process
    report: Report | None = None

    def failure(self, early: Process | None = None) -> Exception:
        """What to raise for a rank that failed, perhaps since another one left too `early`."""
        assert self.report is not None
        after = f", after {early} had returned while the others still needed it" if early else ""
        if not self.report.trace:
            return PeerLost(f"{self.process} {self.report.summary}{after}")
        error = None
        with suppress(Exception):  # whatever a foreign class does when it is unpickled
            error = pickle.loads(self.report.error or b"")
        if not isinstance(error, Exception):
            error = HocketError(f"{self.process} failed: {self.report.summary}")
        if hasattr(error, "add_note"):
            error.add_note(f"raised by {self.process}{after}")
        error.__cause__ = RemoteTraceback(f"{self.process} raised it{after}:\n\n{self.report.trace}")
        return error


R = TypeVar("R", bound=Rank)


def gather(ranks: Sequence[R], deadline: Deadline | None, hear: Callable[[float | None], None], caller: str) -> None:
    """Wait until all have reported a result; raises the first error, or CollectiveTimeout after the deadline.

    `hear(seconds)` waits for news for so long at most, and puts down the reports that came.
    """
    patience: Deadline | None = None
    while waiting := [rank for rank in ranks if rank.report is None]:
        if (failed := _first(ranks)) is not None:
            patience = patience or Deadline(PATIENCE)
            if not failed[0] or not patience.left():
                break
        if deadline is not None and not deadline.left():
            who = ", ".join(str(rank.process) for rank in waiting)
            raise CollectiveTimeout(f"{caller}: after {deadline} these had not returned: {who}")
        hear(min((limit.left() for limit in (deadline, patience) if limit is not None), default=None))
    if (failed := _first(ranks)) is not None:
        raise failed[2].failure(_early(ranks, failed[2]))


def results(ranks: Sequence[Rank]) -> list[Any]:
    """Those of ranks that all have one."""
    return [pickle.loads(rank.report.result) for rank in ranks if rank.report and rank.report.result]


def _first(ranks: Sequence[R]) -> tuple[bool, float, R] | None:
    """The failure that counts: causes before consequences, then by time."""
    failed = [(r.report.consequence, r.report.when, r) for r in ranks if r.report and r.report.result is None]
    return min(failed, key=lambda failure: failure[:2], default=None)


def _early(ranks: Sequence[Rank], failed: Rank) -> Process | None:
    """Who returned while a rank that failed for lack of a peer still needed it."""
    done = [rank for rank in ranks if rank.report and rank.report.result is not None]
    done.sort(key=lambda rank: rank.report.when if rank.report else 0.0)
    if failed.report is None or not failed.report.consequence:
        return None
    return left_too_early([rank.process for rank in done], failed.report.trace)
