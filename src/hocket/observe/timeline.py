"""What each rank did when: a file for each rank in the folder HOCKET_TRACE, and one of all of them, which
https://ui.perfetto.dev opens (and chrome://tracing).

A rank is a process there and each of its groups a thread, as calls of different groups may overlap. The times of all
ranks are those of rank 0's clock: ranks of one host share theirs, and how far that of another one is off is measured as
Cristian did ("Probabilistic clock synchronization", Distributed Computing 3, 1989): the quickest of a few questions
tells it best, to within half of its way there and back.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .._core import Trace
from ..config.observed import trace_folder
from ..errors import HocketError

MOST = 1 << 18  # calls of a rank: some 60 MB of text
MERGED = "trace.json"
QUESTIONS = 8
TAG = 1 << 20  # of the messages that ask for the time, before a group is anybody's


class Talks(Protocol):
    """A group, as far as it matters here."""

    @property
    def rank(self) -> int:
        """Which one of the group's."""
        ...

    def send(self, x: Any, dst: int, *, tag: int = 0) -> Any:
        """A message."""
        ...

    def recv(self, src: int, *, tag: int = 0) -> Any:
        """A message."""
        ...


class Timeline:
    """That of this process: all of its groups are in it, and the first tells its rank."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.trace = folder, Trace(MOST)
        self.rank = -1
        self.behind: int | None = None  # nanoseconds, where that has been measured
        self._title = ""
        self._groups: dict[int, str] = {}
        self.is_written = True  # all that was done in its groups

    def enter(self, number: int, rank: int, names: list[str]) -> None:
        """A group is formed."""
        if self.rank < 0:
            self.rank, self._title = rank, names[rank]
        self.is_written = False
        self._groups[number] = f"group {number}: rank {rank} of {len(names)}"

    def write(self) -> None:
        """All that was done until now. Raises HocketError where the folder cannot be written to."""
        file = self.folder / f"rank-{self.rank}.json"
        begun = self.folder / f".rank-{self.rank}.{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            begun.write_text(json.dumps({"traceEvents": self._events(), "displayTimeUnit": "ns"}))
            begun.replace(file)
            self.is_written = True
        except OSError as error:
            raise HocketError(f"the timeline cannot be written to {file}: {error.strerror}") from None

    def _events(self) -> list[dict[str, Any]]:
        of = {"pid": self.rank}
        title = self._title + (f", {self.trace.dropped} later calls left out" if self.trace.dropped else "")
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "args": {"name": title}, **of},
            {"ph": "M", "name": "process_sort_index", "args": {"sort_index": self.rank}, **of},
        ]
        for number, name in self._groups.items():
            events.append({"ph": "M", "name": "thread_name", "args": {"name": name}, "tid": number, **of})
        for text, group, begun, took, waited, failed in self.trace.events:
            args = {"call": text, "waiting_us": waited / 1e3, **({"failed": True} if failed else {})}
            when = {"ts": (begun + (self.behind or 0)) / 1e3, "dur": took / 1e3}
            name = text.partition("(")[0] + (" (failed)" if failed else "")
            events.append({"ph": "X", "cat": "hocket", "name": name, "args": args, "tid": group, **when, **of})
        return events


_timeline: Timeline | None = None


def _forget() -> None:
    global _timeline
    _timeline = None


os.register_at_fork(after_in_child=_forget)  # the parent's is the parent's


def timeline() -> Timeline | None:
    """That of this process, if HOCKET_TRACE names a folder."""
    global _timeline
    folder = trace_folder()
    if folder is None:
        return None
    if _timeline is None or _timeline.folder != folder:
        _timeline = Timeline(folder)
    return _timeline


def align(group: Talks, traces: Sequence[bool], places: Sequence[int]) -> None:
    """Measure how far the clocks of hosts are apart, where ranks of a new group write timelines: as `traces` tells,
    some of them may not. What the first group found stays."""
    line = timeline()
    others = [rank for rank, place in enumerate(places) if traces[rank] and place != places[0]] if traces[0] else []
    before = 0 if line is None else line.behind or 0
    found = behind(group, others, lambda: time.monotonic_ns() + before)
    if line is not None and line.behind is None:
        line.behind = found


def behind(group: Talks, others: list[int], clock: Callable[[], int] = time.monotonic_ns) -> int:
    """How many nanoseconds this rank's clock is behind rank 0's, for each of `others` in turn; 0 for all else."""
    found = 0
    nothing = np.zeros(0, np.int64)
    for other in others:
        if group.rank not in (0, other):
            continue
        best = 0
        for question in range(QUESTIONS):
            if group.rank == 0:
                group.recv(other, tag=TAG)
                group.send(np.array([clock()], np.int64), other, tag=TAG)
                continue
            asked = clock()
            group.send(nothing, 0, tag=TAG)
            told = int(group.recv(0, tag=TAG)[0])
            heard = clock()
            if question == 0 or heard - asked < best:
                best, found = heard - asked, told - (asked + heard) // 2
    return found


def merge(folder: Path) -> Path:
    """One file of all ranks' in `folder`, which begins at 0. Raises HocketError where there are none."""
    files = sorted(folder.glob("rank-*.json"))
    if not files:
        raise HocketError(f"there are no timelines in {folder}: a rank writes its own when it leaves")
    events = [event for file in files for event in json.loads(file.read_text())["traceEvents"]]
    first = min((event["ts"] for event in events if "ts" in event), default=0)
    for event in events:
        if "ts" in event:
            event["ts"] = round(event["ts"] - first, 3)
    merged = folder / MERGED
    merged.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
    return merged


def clear(folder: Path) -> None:
    """Take away what an earlier job has left there."""
    for file in [*folder.glob("rank-*.json"), folder / MERGED]:
        file.unlink(missing_ok=True)
