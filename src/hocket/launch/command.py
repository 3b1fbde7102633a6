"""`hocket run`: a program in several processes at once, and all of them anew where they have to meet anew."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from errno import EAGAIN
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ..config.children import Node, child_environ
from ..deadline import Deadline
from ..rendezvous import sockets
from ..rendezvous.server import StoreServer
from . import NO_MORE, processes
from .job import Job
from .processes import Guard
from .restarts import Restarts
from .starters import Forks, Programs, Starter


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
    max_restarts: int = 0,
    min_ranks: int | None = None,
    preload: Sequence[str] = (),
) -> int:
    """Run `command` as `size` ranks and return the job's exit code.

    That is 0, or the code of the rank that failed first (128 + signal for one that was killed), 124 after `timeout`
    seconds, or 128 + signal where this process is told to end. When a rank fails, the others get SIGTERM half a second
    later, and SIGKILL `grace` seconds after that; no process of the job outlives this call, or this process. To be
    called in the main thread. `tag_output`: each line begins with its rank; by default, of several ranks at a terminal.
    As one `node` of several it runs that one's part of the job, and the ranks meet where it says. They serve their
    metrics at `metrics`, a port or host:port, and those that follow, and write their timelines to `trace`, a folder.

    With `max_restarts`, or fewer `min_ranks` than `size`, a failure ends the job only where `Restarts` says so, with
    the code of who failed then; it is 0 where at least `min_ranks` ended well, and the others were given up.

    The modules `preload`, and hocket's own, are imported once, in a process that the ranks are forked from; where there
    are none, each rank is a program of its own. The command is a .py file or a module then.
    """
    first = node.rank * size if node else 0
    restarts = Restarts(ranks := range(first, first + size), max_restarts, min_ranks)
    tags = False if size == 1 and tag_output is None else tag_output
    limit = None if timeout is None else Deadline(timeout)
    given = partial(child_environ, size=size, node=node, metrics=metrics, trace=trace, min_ranks=min_ranks)
    code = 0
    delay: float | None = 0.0
    starter: Starter = Programs(command)
    with ExitStack() as all_lives:
        all_lives.enter_context(_no_gaps())
        signals = all_lives.enter_context(_signals())
        if preload:
            starter = all_lives.enter_context(closing(Forks(command, ["hocket.group", *preload], signals)))
        while delay is not None:
            with ExitStack() as stack:
                guard, environ, store = stack.enter_context(_meeting(given, node))
                job = Job(starter, ranks, environ, restarts, store, signals, guard, tags=tags, limit=limit, grace=grace)
                stack.enter_context(closing(job))
                code, delay = job.run(delay), job.again
    return code


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


def preloaded(command: Sequence[str], modules: str | None) -> list[str]:
    """The names in "numpy,torch", to be imported before ranks are forked. ValueError where they are none, and where the
    command is nothing that could use them."""
    if modules is None:
        return []
    names = [name.strip() for name in modules.split(",")]
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise ValueError(f'"{modules}" is no list of modules such as numpy,torch')
    if command[0] != sys.executable:
        raise ValueError("what is preloaded is of use to a .py file or a module (-m), not to any program")
    return names


def reason(error: Exception) -> str:
    """In words, why `run_command` could not start a rank."""
    return NO_MORE if isinstance(error, OSError) and error.errno == EAGAIN else sockets.reason(error)


_Environ: TypeAlias = Callable[..., dict[str, str]]  # of a local rank that was started again so many times: restarts=


@contextmanager
def _meeting(given: _Environ, node: Node | None) -> Iterator[tuple[Guard, _Environ, StoreServer | None]]:
    """Where ranks can meet, and who ends them; what each is to be told, and where they leave notes, unless the store
    is on another host. Always new: what is left of an earlier meeting does not find its way here."""
    address, secret = f"@hocket-{os.urandom(16).hex()}", os.urandom(16)
    with ExitStack() as stack:
        guard = stack.enter_context(closing(Guard()))
        store = None if node else stack.enter_context(closing(StoreServer(address, secret=secret).start()))
        port = stack.enter_context(processes.reserved_port())
        yield guard, partial(given, address=address, secret=secret, port=port), store


@contextmanager
def _no_gaps() -> Iterator[None]:
    """A standard stream that is closed is /dev/null meanwhile, lest something else that we open takes its number."""
    with ExitStack() as opened:
        while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
            opened.callback(os.close, null)
            os.set_inheritable(null, True)
        os.close(null)
        yield


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
