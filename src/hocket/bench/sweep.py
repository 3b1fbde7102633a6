"""What is measured, in rounds in which the libraries take turns, and what comes of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from .figures import bus_factor, elements
from .hosts import Host
from .peers import FLOORS, LIMITS, Peer
from .peers.data import GETS_BLOCK, GIVES_BLOCK, TRAINING, Task, kind
from .session import LibraryFailed, Session

# Up to here a call is over before a clock is read: calls in a row are timed instead.
BATCHED_BYTES = 4096
BATCH = 32
PILOT = 2
# Calls, with each root. Of long ones hocket chooses first among three ways to send, in up to 148 calls, and then, of 2
# to 16 MiB, between two to write results, in up to 72 (csrc/engine/choice.h).
SETTLING = 220
LONGEST = 60.0  # seconds of these calls, which are one task: half of what a session waits for one
LEAST = 3


@dataclass(frozen=True)
class Effort:
    """How much is measured: so many rounds, of at most `times` samples and about `seconds` over all rounds each. Where
    that time is not used up there are more rounds, up to `again` times as many."""

    rounds: int = 5
    times: int = 20
    warmup: int = 2
    check: int = 1
    seconds: float = 0.5
    again: int = 1


@dataclass
class Entry:
    """One thing that is timed beside others: a task for one library, and its samples, in seconds, by round."""

    key: str
    session: Session
    task: Task
    library: str = ""
    algorithm: str = ""
    predicted: float | None = None
    wrong: int = 0
    lacks: bool = False
    error: str = ""
    samples: list[list[float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds: the median over rounds of each round's median. NaN where there is nothing."""
        return statistics.median(statistics.median(one) for one in self.samples) if self.samples else float("nan")

    def percentile(self, percent: float) -> float:
        """Seconds, over all samples."""
        pooled = [sample for one in self.samples for sample in one]
        return float(np.percentile(pooled, percent)) if pooled else float("nan")

    def row(self) -> dict[str, Any]:
        """Everything about it, flat, for JSON, CSV and tables. Times in µs, bandwidths in GB/s (10⁹)."""
        task, ranks = self.task, self.session.ranks
        nbytes = task.count * kind(task.dtype).itemsize
        half = 0.5 if task.collective == "send_recv" else 1.0  # there and back is two
        median = self.median * half
        bandwidth = nbytes / median / 1e9
        return {
            "collective": task.collective,
            "library": self.library,
            "key": self.key,
            "ranks": ranks,
            "hosts": len(self.session.hosts) or 1,
            "rate": self.session.hosts[0].rate if self.session.hosts else "",
            "bytes": nbytes,
            **{name: getattr(task, name) for name in ("count", "dtype", "op", "in_place", "memory", "form", "batch")},
            "algorithm": self.algorithm,
            "predicted_us": None if self.predicted is None else self.predicted * 1e6,
            "samples": sum(map(len, self.samples)),
            "p50_us": median * 1e6,
            "p99_us": self.percentile(99) * half * 1e6,
            "algbw": bandwidth,
            "busbw": bandwidth * bus_factor(task.collective, ranks),
            "wrong": self.wrong,
            "lacks": self.lacks,
            "error": self.error,
        }


def task_for(collective: str, nbytes: int, ranks: int, effort: Effort, **options: Any) -> Task:
    """The task for about `nbytes`, of whole elements and equal parts."""
    itemsize = kind(options.get("dtype", "float32")).itemsize
    blocks = collective in (*GIVES_BLOCK, *GETS_BLOCK, "all_to_all")
    count = 0 if collective in ("barrier", *TRAINING) else elements(nbytes, itemsize, ranks, blocks)
    batch = TRAINING.get(collective) or (BATCH if count * itemsize <= BATCHED_BYTES else 1)
    return Task(collective, count, batch=batch, warmup=effort.warmup, check=effort.check, **options)


def take_turns(entries: Sequence[Entry], effort: Effort) -> None:
    """Fill in the entries: in each round every library has its turn, while the others sleep; another one begins.

    Three rounds come first that do not count: one checks results, and has in it what a library does once, at its first
    calls, of which there may be more than are for warming up (with each root); one finds how many samples fit; and in
    one a library finds out, if it does, how it makes all later calls.
    """
    times = {}
    for entry in entries:
        pilot = replace(entry.task, times=PILOT)
        checked = _ask(entry, pilot)
        answers = checked and _ask(entry, replace(pilot, check=0))
        if answers:
            entry.wrong = sum(answer["wrong"] for answer in checked)
            entry.library = entry.library or entry.session.name
            entry.algorithm, entry.predicted = answers[0]["algorithm"], answers[0]["predicted"]
            each = max(answer["wall"] for answer in answers) / (PILOT + entry.task.warmup)
            fit = effort.seconds / effort.rounds / max(each, 1e-9) - effort.warmup
            times[entry.key] = max(LEAST, min(effort.times, int(fit)))
            calls = SETTLING * (entry.session.ranks if entry.task.rooted else 1)
            settling = min(-(-calls // entry.task.batch), int(min(2 * effort.seconds, LONGEST) / max(each, 1e-9)))
            _ask(entry, replace(pilot, times=max(1, settling), check=0))
    begin = time.perf_counter()
    for turn in range(effort.rounds * effort.again):
        if turn >= effort.rounds and time.perf_counter() - begin > effort.seconds * len(times):
            break
        first = turn % len(entries)
        for entry in (*entries[first:], *entries[:first]):
            if entry.key in times and not entry.error:
                answers = _ask(entry, replace(entry.task, times=times[entry.key], check=0))
                if answers:
                    slowest, bare = (np.max([each[k] for each in answers], axis=0) for k in ("seconds", "bare"))
                    entry.samples.append((slowest - bare).tolist())


def _ask(entry: Entry, task: Task) -> list[dict[str, Any]]:
    """What the ranks answer; nothing where the library lacks this, or failed."""
    if entry.session.dead:
        entry.error = entry.session.dead
        return []
    try:
        answers = entry.session.ask("time", **asdict(task))
    except LibraryFailed as error:
        entry.error = str(error)
        return []
    entry.lacks = any("lacks" in answer for answer in answers)
    return [] if entry.lacks else answers


class Field:
    """The libraries of a comparison, each with `ranks` processes, until the end of the block; on `hosts`, if given.

    Those that cannot be started are in `absent`, with the reason; without hocket itself, LibraryFailed.
    """

    def __init__(self, libraries: Mapping[str, Peer], ranks: int, hosts: Sequence[Host] = ()) -> None:
        self.ranks, self.libraries, self.hosts = ranks, libraries, hosts
        self.sessions: dict[str, Session] = {}
        self.absent: dict[str, str] = {}
        self._stack = ExitStack()
        try:
            for name in libraries:
                self._start(name)
        except BaseException:
            self._stack.close()
            raise

    def revive(self) -> None:
        """Start anew what has failed, so that one failure is not the end of a long report."""
        for name in [name for name, session in self.sessions.items() if session.dead]:
            self.sessions[name].close()
            self._start(name)

    def _start(self, name: str) -> None:
        try:
            session = Session(self.libraries[name], self.ranks, self.hosts)
        except LibraryFailed as error:
            if name == "hocket":
                raise
            self.absent[name] = str(error)
        else:
            self.sessions[name] = self._stack.enter_context(session)

    def entries(self, task: Task) -> list[Entry]:
        """The same task for every library. What only hocket has, peers get the plain form of; not so the hocket of
        another environment. Of several algorithms, with commas in between, all but the first are entries of their
        own."""
        first, *more = task.algorithm.split(",")
        form = "call" if task.form == "protect" else task.form
        own, plain = replace(task, algorithm=first), replace(task, algorithm="", memory="private", form=form)
        bare = replace(plain, check=0)
        found = []
        for key, session in self.sessions.items():
            folder = key.removeprefix("hocket ")
            if key == "hocket":
                found.append(Entry(key, session, own))
                found += [
                    Entry(f"hocket {each}", session, replace(task, algorithm=each), library=each) for each in more
                ]
            elif folder != key:
                found.append(Entry(key, session, own, library=f"{session.name} ({folder})"))
            else:
                found.append(Entry(key, session, plain if session.peer.checked else bare))
        return found

    def compare(self, task: Task, effort: Effort) -> list[dict[str, Any]]:
        """Rows, one per library, hocket's first."""
        entries = self.entries(task)
        take_turns(entries, effort)
        return side_by_side(entries)

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def side_by_side(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Rows of what took turns, hocket's first; each with how many times as long as hocket it takes."""
    return [{**entry.row(), "of_hocket": _times(entry, entries[0])} for entry in entries]


def _times(one: Entry, other: Entry) -> float:
    """How many times as long as the other one it takes: the median over rounds, each of which both had at one time. A
    machine may be half as fast a moment later."""
    rounds = zip(one.samples, other.samples, strict=False)  # one may have failed since
    times = [statistics.median(a) / statistics.median(b) for a, b in rounds]
    return statistics.median(times) if times else float("nan")


def is_peer(key: str) -> bool:
    """Whether it is another library: neither another of hocket's algorithms, nor a bare loop."""
    return key not in FLOORS | LIMITS and not key.startswith("hocket")


def ratio(rows: Sequence[dict[str, Any]], others: Callable[[str], bool] = is_peer) -> float:
    """Best peer / hocket, of the rows of one comparison: above one, hocket is ahead. NaN without both."""
    timed = [row for row in rows if not math.isnan(row["p50_us"])]
    own = next((row["p50_us"] for row in timed if row["key"] == "hocket"), math.nan)
    # Rows that were kept before there was "of_hocket" are without it.
    times = [row.get("of_hocket", row["p50_us"] / own) for row in timed if others(row["key"])]
    return math.nan if math.isnan(own) else min(times, default=math.nan)
