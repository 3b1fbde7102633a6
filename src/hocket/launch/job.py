"""The ranks of a job at work: one loop over their outputs, their ends, signals and clocks."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from ..deadline import Deadline
from ..rendezvous.server import StoreServer
from ..rendezvous.store import ADMISSIONS, ALL_ENDED
from ..words import named
from . import processes
from .aftermath import CONSEQUENCE, PATIENCE, left_too_early
from .last_words import LastWords
from .outputs import Output, Sink
from .processes import Child, Guard, describe
from .restarts import Fate, Restarts
from .starters import Starter

LINES = 50  # of a rank's errors that are shown again
TIMED_OUT = 124  # the exit code of timeout(1)
_LOOKS = 1.0  # seconds between two looks whether anybody is left to let in those that wait
_MOMENT = 0.5  # seconds in which the others may say what they were in when one failed
_SHOWN = 10.0  # seconds that last words may wait for those of others
_DRAIN = 0.5  # seconds for what is left in the pipes; a process that left its group may keep one open for ever
_PIPEFULS = 16  # that one pipe may hold, of what is read at a time


class Job:
    """The loop: outputs are passed on, ends are noted, and the first failure, signal or deadline ends all ranks. Unless
    the `restarts` say that one that failed is started again, or that the others go on without it.

    The `starter` starts each of the `ranks`, in the environment that `environ(local rank, restarts=)` gives it; the
    first of them reads our stdin. The ranks leave notes for each other in the `store`, unless it is elsewhere.
    """

    def __init__(
        self,
        starter: Starter,
        ranks: Sequence[int],
        environ: Callable[..., dict[str, str]],
        restarts: Restarts,
        store: StoreServer | None,
        signals: int,
        guard: Guard,
        *,
        tags: bool | None,
        limit: Deadline | None,
        grace: float,
    ) -> None:
        self.again: float | None = None  # after how many seconds all are to be started again, where they are
        self._starter, self._ranks, self._environ = starter, ranks, environ
        self._restarts, self._store = restarts, store
        self._guard = guard
        self._words = LastWords(len(ranks))
        self._out, self._err = Sink(1, tags), Sink(2, tags)
        # To a terminal, where no tags are wanted, the ranks write themselves, and see what it can do.
        self._piped = self._out.tags or not self._out.is_terminal
        self._grace = grace
        self._children: list[Child] = []
        self._running: set[Child] = set()
        self._waiting: set[int] = set()  # the ranks that are still to be started
        self._outputs: dict[Output, Child] = {}
        self._errors: dict[Child, Output] = {}
        self._last: Output | None = None  # who spoke last
        self._culprit: Child | None = None
        # The job's exit code, once it is ending, and what tells why.
        self._verdict: tuple[int, Callable[[], str]] | None = None
        # Who failed for lack of a peer, which is still awaited, and what its failure means for the others.
        self._consequence: tuple[Child, int, str] | None = None
        self._left: list[Child] = []  # who ended without an error, in this order
        self._clocks: dict[Callable[[], None], Deadline] = {}
        if limit is not None:
            self._clocks[self._timed_out] = limit
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ, partial(self._signalled, signals))

    def run(self, delay: float = 0.0) -> int:
        """Start the ranks after so many seconds; the exit code once all have ended. Raises OSError where they can't be
        started."""
        ready = self._starter.prepare(self._environ(0, restarts=0), self._guard.watch, piped=self._piped)
        if ready is None:
            self._put_off_all(delay)
        else:
            self._waiting.update(self._ranks)
            self._selector.register(ready, selectors.EVENT_READ, partial(self._prepared, ready))
        while self._running or self._waiting:
            self._turn()
            for ring in [ring for ring, clock in self._clocks.items() if not clock.left()]:
                if self._clocks.pop(ring, None) is not None:  # another one's may have stopped it
                    ring()
            self._starter.begin()
        for child in self._children:
            child.signal(signal.SIGKILL)  # what the ranks left behind
        self._no_cause()
        drain = Deadline(_DRAIN)
        self._clocks = {self._kill: drain}  # only for the select of each turn: there is nothing left to kill
        while self._outputs and drain.left():
            self._turn()
        for output in list(self._outputs):  # of which something that left its rank's group has an end
            self._pass_on(output.end)
            self._part(output)
        code, why = self._verdict or (0, str)
        self._say(why())
        return code

    def close(self) -> None:
        """End what runs, reap all, close all."""
        processes.end(self._running, self._grace)
        for child in self._children:
            child.close()
        for output in self._outputs:
            output.source.close()
        self._selector.close()

    # ---- starting, and passing on ----

    def _put_off(self, rank: int, delay: float) -> None:
        self._waiting.add(rank)
        self._clocks[partial(self._start, rank)] = Deadline(delay)

    def _put_off_all(self, delay: float) -> None:
        for rank in self._ranks:
            self._put_off(rank, delay)

    def _prepared(self, ready: int) -> None:
        self._selector.unregister(ready)
        if self._verdict is None:
            self._starter.finish()
            self._put_off_all(0.0)

    def _start(self, rank: int) -> None:
        self._waiting.discard(rank)
        local = rank - self._ranks[0]
        environ = self._environ(local, restarts=self._restarts.of(rank))
        try:
            process = self._starter.start(environ, self._guard.watch, reads=local == 0, piped=self._piped)
        except InterruptedError:  # which ends the job, in the next turn
            self._waiting.add(rank)
            return
        child = Child(rank, process.pid, process.reap)
        self._children.append(child)
        self._running.add(child)
        self._selector.register(child.fd, selectors.EVENT_READ, partial(self._ended, child))
        self._errors[child] = self._relay(child, Output(process.stderr, self._err, rank, holds=True))
        if process.stdout is not None:
            self._relay(child, Output(process.stdout, self._out, rank))

    def _turn(self) -> None:
        limits = [clock.left() for clock in self._clocks.values()]
        limits += [output.due.left() for output in self._outputs if output.due]
        for key, _ in self._selector.select(min(limits, default=None)):
            key.data()
        for output in self._outputs:
            if output.due and not output.due.left():
                self._pass_on(output.flush)

    def _relay(self, child: Child, output: Output) -> Output:
        self._outputs[output] = child
        self._selector.register(output.source, selectors.EVENT_READ, partial(self._pump, output))
        return output

    def _pump(self, output: Output) -> None:
        if self._pass_on(output.pump) and not output.has_ended:
            self._last = output
        else:
            self._part(output)

    def _part(self, output: Output) -> None:
        self._selector.unregister(output.source)
        child = self._outputs.pop(output)
        output.source.close()
        if output.last_words:
            if child.rank in self._words:  # of an earlier life
                self._show()
            self._words.add(child.rank, str(child), output.last_words.decode(errors="replace"))
            self._clocks.setdefault(self._show, Deadline(_SHOWN))

    def _pass_on(self, how: Callable[[], None]) -> bool:
        try:
            how()
        except BrokenPipeError:  # nobody reads us any longer
            if self._verdict is None:
                self._stop(128 + signal.SIGPIPE, str)
            return False
        return True

    # ---- when a rank ends ----

    def _ended(self, child: Child) -> None:
        self._selector.unregister(child.fd)
        child.let_go()
        self._running.discard(child)
        if self._store is not None:
            self._clocks.setdefault(self._look_who_waits, Deadline(_LOOKS))
        code = child.exit_code()
        if not code:
            self._left.append(child)
            self._restarts.ended(child.rank)
        elif self._verdict is None:
            if self._restarts.is_strict:
                self._fail(child, code)
            else:  # once this turn is over, in which its outputs may still have their say
                self._clocks[partial(self._look_after, child, code)] = Deadline(0.0)

    def _look_after(self, child: Child, code: int) -> None:
        """One has failed in a job that may go on."""
        answer = self._restarts.failed(child.rank, self._store.has if self._store else None)
        if answer.fate is Fate.OVER:
            self._fail(child, code, answer.words)
            return
        child.signal(signal.SIGKILL)  # what it left behind
        self._tell(child, code, answer.words)
        if self._verdict is not None:  # nobody reads us any longer
            return
        if answer.fate is Fate.AGAIN:
            self._put_off(child.rank, answer.delay)
        elif answer.fate is Fate.ALL:
            self._stop(0, str, at_once=False)
            self.again = answer.delay

    def _look_who_waits(self) -> None:
        """Some have ended. Where all that still run wait to be let in by others, nobody will do that."""
        if self._store is None or not self._running:
            return
        waiting = {processes.group_of(pid) for pid in self._store.awaited(ADMISSIONS)}
        if self._waiting or not all(child.pid in waiting for child in self._running):
            self._clocks[self._look_who_waits] = Deadline(_LOOKS)
            return
        self._restarts.came_late(child.rank for child in self._running)
        self._store.close(ALL_ENDED)  # which who waits is told

    def _tell(self, child: Child, code: int, words: str) -> None:
        """At once, and what it said last under it; what those said who lost a peer is much the same, and soon shown
        together."""
        for output in [output for output, whose in self._outputs.items() if whose is child]:
            self._hear_out(output)
        text = self._headline(f"{child} failed: {_how(code)}{words}")
        if child.rank not in self._words:
            text += self._said(child)
        elif code != CONSEQUENCE:
            text += self._words.take(of=[child.rank])
        else:
            self._clocks[self._show] = Deadline(PATIENCE)
        self._write(text)

    def _hear_out(self, output: Output) -> None:
        """All that is left in the pipe of one that has ended."""
        for _ in range(_PIPEFULS):
            if output in self._outputs and output.is_ready():
                self._pump(output)
        if output in self._outputs:  # something that left its group has an end
            self._pass_on(output.flush)

    def _fail(self, child: Child, code: int, meaning: str = "") -> None:
        if code != CONSEQUENCE:
            self._blame(child, code, meaning)
        elif self._consequence is None:
            self._consequence = (child, code, meaning)
            self._clocks[self._no_cause] = Deadline(PATIENCE)

    def _no_cause(self) -> None:
        if self._verdict is None and self._consequence is not None:
            self._blame(*self._consequence)

    def _blame(self, child: Child, code: int, meaning: str) -> None:
        self._culprit = child
        early = left_too_early(self._left, self._errors[child].words) if code == CONSEQUENCE else None
        why = partial(self._blamed, child, code, meaning, early, still_running=bool(self._running))
        self._stop(code if code > 0 else 128 - code, why, at_once=False)

    def _blamed(self, child: Child, code: int, meaning: str, early: Child | None, *, still_running: bool) -> str:
        """The verdict in words, where all that failed alike are named together."""
        alike = self._words.alike(child.rank)
        still_running = still_running and len(alike) < len(self._ranks) - (early is not None)
        others = f"{_how(code)}{meaning}{'; the others were ended' if still_running else ''}"
        who = named(alike) if len(alike) > 1 else str(child)
        if early is not None:
            return f"{early} ended first (exit code 0), while the others still needed it; {who} then failed: {others}"
        return f"{who} failed{'' if len(alike) > 1 or meaning else ' first'}: {others}"

    # ---- ending ----

    def _timed_out(self) -> None:
        if self._verdict is None:
            who = ", ".join(str(child) for child in self._children if child in self._running) or "none"
            self._stop(TIMED_OUT, lambda: f"the job's time is over; these were still running: {who}")

    def _signalled(self, signals: int) -> None:
        for number in os.read(signals, 64):
            name = signal.Signals(number).name
            if self._verdict is None or self.again is not None:
                self._stop(128 + number, partial("{}: the job was ended".format, name), number)
            else:
                self._kill()

    def _stop(self, code: int, why: Callable[[], str], number: int = signal.SIGTERM, *, at_once: bool = True) -> None:
        self._verdict, self.again = (code, why), None
        self._waiting.clear()
        self._clocks = {ring: clock for ring, clock in self._clocks.items() if ring == self._show}
        end = partial(self._end, number)
        if at_once:
            end()
        else:
            self._clocks[end] = Deadline(_MOMENT)

    def _end(self, number: int) -> None:
        self._clocks[self._kill] = Deadline(self._grace)
        for child in self._running:
            child.signal(number)
            child.signal(signal.SIGCONT)  # a stopped process hears nothing

    def _kill(self) -> None:
        for child in self._running:
            child.signal(signal.SIGKILL)

    # ---- speaking ----

    def _show(self) -> None:
        """The last words of those that have ended."""
        self._write(self._words.take())

    def _say(self, why: str) -> None:
        """What others ended with, the headline, and under it the culprit's words."""
        headline = self._headline(why) if why else ""
        if self._culprit is None:
            text = self._words.take() + headline
        else:
            text = self._words.take(besides=self._culprit.rank) + headline
            text += self._words.take() if self._words else self._said(self._culprit)
        self._write(text)

    def _write(self, text: str) -> None:
        if text:
            with suppress(OSError):
                self._err.say(text)

    def _headline(self, words: str) -> str:
        red, plain = ("\x1b[1;31m", "\x1b[0m") if self._err.is_terminal else ("", "")
        return f"{red}hocket run: {words}{plain}\n"

    def _said(self, child: Child) -> str:
        """The last of its errors, unless they are what was printed last anyway."""
        errors = self._errors[child]
        return "" if errors is self._last else "".join(errors.words.splitlines(keepends=True)[-LINES:])


def _how(code: int) -> str:
    return describe(code) + (", for a peer was lost" if code == CONSEQUENCE else "")
