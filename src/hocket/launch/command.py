"""`hocket run`: a program in several processes at once. One loop over their outputs, their ends, signals and clocks."""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from ..config.children import Node, child_environ
from ..deadline import Deadline
from ..rendezvous.server import StoreServer
from ..words import named
from . import processes
from .aftermath import CONSEQUENCE, PATIENCE, left_too_early
from .last_words import LastWords
from .outputs import Output, Sink, write
from .processes import Child, Guard, describe

LINES = 50  # of a rank's errors that are shown again
TIMED_OUT = 124  # the exit code of timeout(1)
_MOMENT = 0.5  # seconds in which the others may say what they were in when one failed
_SHOWN = 10.0  # seconds that last words may wait for those of others
_DRAIN = 0.5  # seconds for what is left in the pipes; a process that left its group may keep one open for ever


def run_command(
    command: Sequence[str],
    size: int,
    *,
    tag_output: bool | None = None,
    timeout: float | None = None,
    grace: float = processes.GRACE,
    node: Node | None = None,
    metrics: str | None = None,
    trace: Path | None = None,
) -> int:
    """Run `command` as `size` ranks and return the job's exit code.

    That is 0, or the code of the rank that failed first (128 + signal for one that was killed), 124 after `timeout`
    seconds, or 128 + signal where this process is told to end. When a rank fails, the others get SIGTERM half a second
    later, and SIGKILL `grace` seconds after that; no process of the job outlives this call, or this process. To be
    called in the main thread. `tag_output`: each line begins with its rank; by default, of several ranks at a terminal.
    As one `node` of several it runs that one's part of the job, and the ranks meet where it says. They serve their
    metrics at `metrics`, a port or host:port, and those that follow, and write their timelines to `trace`, a folder.
    """
    address, secret = f"@hocket-{secrets.token_hex(16)}", secrets.token_bytes(16)
    with ExitStack() as stack:
        signals = stack.enter_context(_signals())
        guard = stack.enter_context(closing(Guard()))
        if node is None:
            stack.enter_context(closing(StoreServer(address, secret=secret).start()))
        port = stack.enter_context(processes.reserved_port())
        tags = False if size == 1 and tag_output is None else tag_output
        job = stack.enter_context(closing(_Job(signals, guard, LastWords(size), tags, timeout, grace)))
        before = node.rank * size if node else 0
        for rank in range(size):
            environ = child_environ(rank, size, address, secret, port, node=node, metrics=metrics, trace=trace)
            job.start(before + rank, command, environ, reads=rank == 0)
        return job.run()


def command_line(argv: Sequence[str], *, module: bool = False) -> list[str]:
    """The command line for `argv`: scripts and modules run under this Python. ValueError for no program."""
    program = argv[0]
    if module:
        return [sys.executable, "-m", *argv]
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise ValueError(f"{program}: there is no such file")
        return [sys.executable, *argv]
    if shutil.which(program) is None:
        hint = "it is not executable" if Path(program).exists() else "there is no such program"
        raise ValueError(f"{program}: {hint} (Python scripts end in .py; use -m for a module)")
    return list(argv)


class _Job:
    """The loop: outputs are passed on, ends are noted, and the first failure, signal or deadline ends all ranks."""

    def __init__(
        self, signals: int, guard: Guard, words: LastWords, tags: bool | None, timeout: float | None, grace: float
    ) -> None:
        self._guard = guard
        self._words = words
        self._out, self._err = Sink(1, tags), Sink(2, tags)
        # To a terminal, where no tags are wanted, the ranks write themselves, and see what it can do.
        self._piped = self._out.tags or not self._out.is_terminal
        self._grace = grace
        self._children: list[Child] = []
        self._running: set[Child] = set()
        self._outputs: dict[Output, Child] = {}
        self._errors: dict[Child, Output] = {}
        self._last: Output | None = None  # who spoke last
        self._culprit: Child | None = None
        # The job's exit code, once it is ending, and what tells why.
        self._verdict: tuple[int, Callable[[], str]] | None = None
        self._consequence: tuple[Child, int] | None = None  # who failed for lack of a peer, which is still awaited
        self._left: list[Child] = []  # who ended without an error, in this order
        self._clocks: dict[Callable[[], None], Deadline] = {}
        if timeout is not None:
            self._clocks[self._timed_out] = Deadline(timeout)
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ, partial(self._signalled, signals))

    def start(self, rank: int, command: Sequence[str], environ: dict[str, str], *, reads: bool) -> None:
        """Start one rank. One that `reads` gets our stdin; where that is a terminal it leaves our session, or reading
        from it would stop it."""
        process = subprocess.Popen(
            command,
            env={**environ, "PYTHONUNBUFFERED": "1"} if self._piped else environ,
            stdin=None if reads else subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._piped else None,
            stderr=subprocess.PIPE,
            preexec_fn=os.setsid if reads and os.isatty(0) else os.setpgrp,
            bufsize=0,
        )
        self._guard.watch(process.pid)
        child = Child(rank, process.pid, process.wait)
        self._children.append(child)
        self._running.add(child)
        self._selector.register(child.fd, selectors.EVENT_READ, partial(self._ended, child))
        assert process.stderr is not None
        self._errors[child] = self._relay(child, Output(process.stderr, self._err, rank, holds=True))
        if process.stdout is not None:
            self._relay(child, Output(process.stdout, self._out, rank))

    def run(self) -> int:
        """Until all ranks have ended."""
        while self._running:
            self._turn()
            for ring, clock in list(self._clocks.items()):
                if not clock.left():
                    del self._clocks[ring]
                    ring()
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

    def _ended(self, child: Child) -> None:
        self._selector.unregister(child.fd)
        self._running.discard(child)
        code = child.exit_code()
        if not code:
            self._left.append(child)
        if not code or self._verdict is not None:
            return
        if code != CONSEQUENCE:
            self._blame(child, code)
        elif self._consequence is None:
            self._consequence = (child, code)
            self._clocks[self._no_cause] = Deadline(PATIENCE)

    def _no_cause(self) -> None:
        if self._verdict is None and self._consequence is not None:
            self._blame(*self._consequence)

    def _blame(self, child: Child, code: int) -> None:
        self._culprit = child
        early = left_too_early(self._left, self._errors[child].words) if code == CONSEQUENCE else None
        why = partial(self._blamed, child, code, early, still_running=bool(self._running))
        self._stop(code if code > 0 else 128 - code, why, at_once=False)

    def _blamed(self, child: Child, code: int, early: Child | None, *, still_running: bool) -> str:
        """The verdict in words, where all that failed alike are named together."""
        how = describe(code) + (", for a peer was lost" if code == CONSEQUENCE else "")
        alike = self._words.alike(child.rank)
        still_running = still_running and len(alike) < len(self._children) - (early is not None)
        others = f"{how}{'; the others were ended' if still_running else ''}"
        who = named(alike) if len(alike) > 1 else str(child)
        if early is not None:
            return f"{early} ended first (exit code 0), while the others still needed it; {who} then failed: {others}"
        return f"{who} failed{'' if len(alike) > 1 else ' first'}: {others}"

    def _timed_out(self) -> None:
        if self._verdict is None:
            who = ", ".join(str(child) for child in self._children if child in self._running)
            self._stop(TIMED_OUT, lambda: f"the job's time is over; these were still running: {who}")

    def _signalled(self, signals: int) -> None:
        for number in os.read(signals, 64):
            name = signal.Signals(number).name
            if self._verdict is None:
                self._stop(128 + number, partial("{}: the job was ended".format, name), number)
            else:
                self._kill()

    def _stop(self, code: int, why: Callable[[], str], number: int = signal.SIGTERM, *, at_once: bool = True) -> None:
        self._verdict = (code, why)
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

    def _show(self) -> None:
        """The last words of those that have ended."""
        with suppress(OSError):
            write(2, self._words.take().encode())

    def _say(self, why: str) -> None:
        """What others ended with, the headline, and under it the culprit's words, unless they are what was printed last
        anyway."""
        red, plain = ("\x1b[1;31m", "\x1b[0m") if self._err.is_terminal else ("", "")
        headline = f"{red}hocket run: {why}{plain}\n" if why else ""
        if self._culprit is None:
            text = self._words.take() + headline
        else:
            errors = self._errors[self._culprit]
            text = self._words.take(besides=self._culprit.rank) + headline
            if self._words:
                text += self._words.take()
            elif errors is not self._last:
                text += "".join(errors.words.splitlines(keepends=True)[-LINES:])
        with suppress(OSError):
            write(2, text.encode())


@contextmanager
def _signals() -> Iterator[int]:
    """A pipe in which the numbers of the signals appear that tell this process to end."""
    here, there = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    told = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: None) for number in told}
    wakeup = signal.set_wakeup_fd(there, warn_on_full_buffer=False)
    try:
        yield here
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(here)
        os.close(there)
