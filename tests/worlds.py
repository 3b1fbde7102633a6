"""Worlds: real processes with a group between them, kept alive from one test to the next.

    world(4).run(f, x)            f(group, x) on each of 4 ranks -> [result of rank 0, ..., result of rank 3]
    world(4).run(f, fresh=True)   the same in a new group, which f may break: the next run gets another one
    world(4).outcomes(f)          as run, but errors are returned in the place of results and not raised
    world(4, "shm")               over that transport; the fixture `world` is parametrised over all of TRANSPORTS

`f` is a function at the top of a test module. The processes are forked from a server that has imported everything
once, so a new one costs milliseconds. Each run has a deadline, after which the processes print where they are and are
killed; a world whose process died is built anew for the next run. When pytest ends, in whatever way, the server ends
and the kernel kills the rest.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import importlib.util
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hosts import Host, hosts

E = TypeVar("E", bound=BaseException)

SIZES = (1, 2, 3, 4, 5, 8)
TIMEOUT = 60.0  # of the groups: beyond every deadline that a test of speedy detection would accept
DEADLINE = 120.0  # of one run

# Of links nothing is measured: what is chosen is to be the same in every run.
GIVEN = {"HOCKET_SECRET": "of these worlds", "HOCKET_WIRE": "256K"}


class Transport(NamedTuple):
    """The variables that make the processes of a world choose it; and, where it takes several hosts (hosts.py), the
    host of each rank: the ranks after the last one go round."""

    variables: dict[str, str]
    layout: tuple[int, ...] = ()
    certified: bool = False
    through_ucx: bool = False


# Every transport there is. What tests/conformance promises is proved over each: another one is one line here.
TRANSPORTS = {
    "shm": Transport({}),
    "tcp": Transport({"HOCKET_TRANSPORT": "tcp", **GIVEN}),
    "tls": Transport({"HOCKET_TRANSPORT": "tcp", "HOCKET_INTEGRITY": "1", **GIVEN}, certified=True),
    "ucx": Transport({"HOCKET_TRANSPORT": "ucx", "UCX_TLS": "posix,sysv,cma,self", **GIVEN}, through_ucx=True),
    "2x2": Transport(GIVEN, (0, 0, 1, 1)),
    "3+1": Transport(GIVEN, (0, 0, 0, 1)),
}
USUAL = ("shm", "tcp")  # the others where pytest is told --transports

_jobs = itertools.count()
_context = multiprocessing.get_context("forkserver")


def preload(*modules: str) -> None:
    """Have the fork server, which is not there yet, import these, and no others."""
    _context.set_forkserver_preload(list(modules))


preload("pytest", "hypothesis", "hocket.group", "hocket.plans.algorithms")


class Died(Exception):
    """The process of a rank ended while it should have run."""


def survivors(outcomes: list[Any]) -> list[Any]:
    """What those gave back that did not die; an error of one is raised."""
    for each in outcomes:
        if isinstance(each, BaseException) and not isinstance(each, Died):
            raise each
    return [each for each in outcomes if not isinstance(each, Died)]


class Remote(Exception):
    """The traceback of an error as it was in the rank's process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class World:
    """`size` processes and the group between them."""

    def __init__(self, size: int, transport: str = "shm", **variables: str) -> None:
        self.size, self.transport, self.variables = size, transport, variables
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        self.group = ""  # its name; a new name makes the processes connect anew

    def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
        """Results by rank, options as of `outcomes`. Raises the first error that is no consequence of another's."""
        outcomes = self.outcomes(function, *args, **options)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors:
            consequences = ("PeerLost", "GroupBroken")
            raise min(errors, key=lambda error: (type(error).__name__ in consequences, error.__dict__["arrival"]))
        return outcomes

    def outcomes(
        self,
        function: Callable[..., Any],
        *args: Any,
        fresh: bool = False,
        timeout: float = TIMEOUT,
        deadline: float = DEADLINE,
    ) -> list[Any]:
        """Result, error or `Died` by rank. `timeout` is the new group's, where one is made."""
        self.start(function, *args, fresh=fresh, timeout=timeout)
        outcomes = self.finish(deadline)
        if fresh or any(isinstance(outcome, BaseException) for outcome in outcomes):
            self.group = ""
        return outcomes

    def start(
        self,
        function: Callable[..., Any],
        *args: Any,
        fresh: bool = False,
        timeout: float = TIMEOUT,
        without: Collection[int] = (),
    ) -> None:
        """Begin; `finish` must follow. Where ranks are left out, the others keep their group."""
        if not without and not (self.processes and all(process.is_alive() for process in self.processes)):
            self.close()
            self._open()
        if fresh or not self.group:
            self.group = f"{os.getpid()}.{next(_jobs)}"
        command = pickle.dumps((self.group, timeout, function, args))
        for rank in set(range(self.size)).difference(without):
            self.pipes[rank].send_bytes(command)

    def start_alone(self, function: Callable[..., Any], *args: Any, without: Collection[int] = ()) -> None:
        """Begin `function(None, *args)`, after each of these ranks has left its group; `finish` must follow."""
        if not self.processes:
            self._open()
        self.group = ""
        command = pickle.dumps(("", TIMEOUT, function, args))
        for rank in set(range(self.size)).difference(without):
            self.pipes[rank].send_bytes(command)

    def outcomes_alone(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Result, error or `Died` by rank of `function(None, *args)`, in processes without a group."""
        self.start_alone(function, *args)
        return self.finish()

    def finish(self, deadline: float = DEADLINE, without: int | Collection[int] | None = None) -> list[Any]:
        """Result, error or `Died` by rank; kills the world, and raises TimeoutError, after `deadline` seconds. Ranks
        that will not answer, or not yet, can be left out: their places hold None."""
        outcomes: dict[int, Any] = dict.fromkeys([without] if isinstance(without, int) else without or ())
        end = time.monotonic() + deadline
        while len(outcomes) < self.size:
            waited = {self.pipes[rank]: rank for rank in range(self.size) if rank not in outcomes}
            ready = wait(list(waited), max(0.0, end - time.monotonic()))
            if not ready:
                self._show_stacks(list(waited.values()))
                self.close()
                late = TimeoutError(f"ranks {sorted(waited.values())} of {self.size} did not end in {deadline} s")
                failed = (outcome for outcome in outcomes.values() if isinstance(outcome, BaseException))
                raise late from next(failed, None)  # which they may have waited for
            for pipe in ready:
                outcomes[waited[pipe]] = self._receive(waited[pipe], len(outcomes))  # type: ignore[index]
        return [outcomes[rank] for rank in range(self.size)]

    def _receive(self, rank: int, arrival: int) -> Any:
        try:
            good, value, text = pickle.loads(self.pipes[rank].recv_bytes())
        except (EOFError, ConnectionResetError):
            self.processes[rank].join(10)  # its pipe closes a moment before it is dead
            good, value, text = False, Died(f"the process of rank {rank} ended"), "(none)"
        if not good:
            value.__cause__ = Remote(text)
            value.__dict__["arrival"] = arrival
        return value

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to the process of a rank."""
        os.kill(self.processes[rank].pid, number)

    def host(self, rank: int) -> Host:
        """That of a rank, where they are on several."""
        layout = TRANSPORTS[self.transport].layout
        return _hosts()[layout[rank % len(layout)]]

    def close(self) -> None:
        """Kill the processes, stopped ones too."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join(10)
        for pipe in self.pipes:
            pipe.close()
        self.processes, self.pipes, self.group = [], [], ""

    def _open(self) -> None:
        transport = TRANSPORTS[self.transport]
        chosen = {**transport.variables, **self.variables, **(_certificates() if transport.certified else {})}
        if transport.through_ucx:
            chosen["HOCKET_UCX"] = libucp()
        if transport.layout:
            first = first_host()
            chosen |= {"HOCKET_RENDEZVOUS": f"tcp://{first}:{4100 + next(_jobs)}", "MASTER_ADDR": first}
        for rank in range(self.size):
            ours, theirs = _context.Pipe()
            place = _hosts()[transport.layout[rank % len(transport.layout)]].pid if transport.layout else 0
            process = _context.Process(target=_serve, args=(rank, self.size, theirs, chosen, place), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def _show_stacks(self, ranks: list[int]) -> None:
        for rank in ranks:
            print(f"rank {rank} hangs here:", file=sys.stderr, flush=True)
            with contextlib.suppress(ProcessLookupError):
                self.signal(rank, signal.SIGUSR1)
            wait([self.pipes[rank]], 0.5)  # so that the stacks do not mix


def raised(kind: type[E] | tuple[type[E], ...], function: Callable[..., Any], *args: Any, **options: Any) -> E:
    """The error of that kind that the call raises. AssertionError if it raises none; any other error goes through."""
    try:
        result = function(*args, **options)
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised; the result is {result!r}")


class Worlds:
    """One world per size and transport, made when first asked for, unless it is among those that are `made` already.
    `transport` is that of those that name none."""

    def __init__(self, transport: str = "shm", made: dict[tuple[int, str], World] | None = None) -> None:
        self.transport = transport
        self._worlds = {} if made is None else made

    def __call__(self, size: int, transport: str | None = None) -> World:
        key = size, transport or self.transport
        if key not in self._worlds:
            self._worlds[key] = World(*key)
        return self._worlds[key]

    def close(self) -> None:
        for world in self._worlds.values():
            world.close()


class _Rank:
    """What the process of one rank holds between commands: its group."""

    def __init__(self, rank: int, size: int, chosen: dict[str, str]) -> None:
        place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
        os.environ.update({name: str(value) for name, value in place.items()})
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", **chosen})
        self.name, self.group = "", None

    def do(self, name: str, timeout: float, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if name != self.name:
            self.leave()
        if name != self.name and name:
            os.environ["TORCHELASTIC_RUN_ID"] = name
            import hocket

            group = hocket.init(timeout=max(timeout, TIMEOUT))  # to meet takes time, too
            group.timeout = timeout
            self.name, self.group = name, group
        return function(self.group, *args)

    def leave(self, error: BaseException | None = None) -> None:
        """Close the group; with an error, so that the other ranks learn of it instead of waiting."""
        group, self.name, self.group = self.group, "", None
        if group is not None:
            group.__exit__(type(error) if error else None, error, None)


@cache
def _hosts() -> list[Host]:
    """Two, for as long as pytest runs."""
    return _held.enter_context(hosts(2))


def first_host() -> str:
    """The address of the first of these."""
    return _hosts()[0].address


def libucp() -> str:
    """That of the wheel."""
    wheel = importlib.util.find_spec("libucx")
    if wheel is None or wheel.origin is None:
        raise RuntimeError("there is no UCX to test with: make .venv/ucx")
    return str(Path(wheel.origin).with_name("lib") / "libucp.so.0")


@cache
def _certificates() -> dict[str, str]:
    from certificates import certified  # which imports for longer than a process takes to start

    return certified(Path(_held.enter_context(tempfile.TemporaryDirectory())))


_held = contextlib.ExitStack()
atexit.register(_held.close)


def _enter(host: int) -> None:
    """Move to the host that this process holds."""
    for kind in ("net", "uts", "ipc", "mnt"):
        with Path(f"/proc/{host}/ns/{kind}").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"the namespace {kind} of {host} cannot be entered")


def _serve(rank: int, size: int, pipe: Connection, chosen: dict[str, str], host: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the fork server, which ends with pytest
    if host:
        _enter(host)
    faulthandler.register(signal.SIGUSR1)
    here = _Rank(rank, size, chosen)
    while True:
        try:
            command = pipe.recv_bytes()
        except EOFError:
            return
        try:
            reply = pickle.dumps((True, here.do(*pickle.loads(command)), ""))
        except BaseException as error:
            text = traceback.format_exc()
            with contextlib.suppress(Exception):
                here.leave(error)
            reply = _pickled(error, text)
        pipe.send_bytes(reply)


def _pickled(error: BaseException, text: str) -> bytes:
    try:
        reply = pickle.dumps((False, error, text))
        pickle.loads(reply)
    except Exception:
        reply = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), text))
    return reply
