"""One library's processes: started once, given tasks, asleep in between."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn

from .hosts import Host
from .peers import Peer

STARTING = 120.0
HEARTBEAT = 1.0
LAST_WORDS = 3.0


class LibraryFailed(RuntimeError):
    """A library did not start, broke off or took too long; with the end of what it printed."""


class Session:
    """`ranks` processes of one library, each on a Unix socket of its own, in a folder that only this user can enter.
    They are spread over `hosts` if there are any, all of which see that folder.

    Raises LibraryFailed when they do not all report within `starting` seconds.
    """

    def __init__(self, peer: Peer, ranks: int, hosts: Sequence[Host] = (), *, starting: float = STARTING) -> None:
        self.peer, self.ranks, self.hosts, self.name, self.dead = peer, ranks, hosts, peer.name, ""
        self._stack = ExitStack()
        try:
            self._start(starting)
        except BaseException:
            self.close()
            raise

    def _start(self, starting: float) -> None:
        place = self.peer.place()
        if place is None:
            raise LibraryFailed(self.peer.advice())
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hocket-bench-")))
        address = str(self._folder / "controller")
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(address)
        listener.listen(self.ranks)
        output = self._stack.enter_context((self._folder / "output").open("wb"))
        cores = len(os.sched_getaffinity(0))
        # Each leads a group, to be ended with all it starts; all are in one session, to give way to one another.
        self._processes = [
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, preexec_fn=os.setpgrp
            )
            for command in self.peer.commands(place, address, self.ranks, cores, self.hosts)
        ]
        self._stack.callback(self._end)
        deadline = time.monotonic() + starting
        hello = {}
        for _ in range(self.ranks):
            self._until(deadline, [listener], "start")
            connection, _ = listener.accept()
            stream = self._stack.enter_context(connection.makefile("r"))
            self._stack.enter_context(connection)
            self._until(deadline, [connection], "start")
            told = json.loads(stream.readline())
            hello[told["rank"]] = (connection, stream)
            self.name = told["library"]
        self._streams = [hello[rank] for rank in range(self.ranks)]

    def ask(self, what: str, *, limit: float = 120.0, **task: Any) -> list[dict[str, Any]]:
        """Give a task to all ranks; their answers, by rank. Raises LibraryFailed, and then this is of no more use."""
        line = json.dumps({"what": what, **task}) + "\n"
        for connection, _ in self._streams:
            with suppress(OSError):
                connection.sendall(line.encode())
        deadline = time.monotonic() + limit
        answers, streams = {}, dict(self._streams)
        while streams:  # as they come: a rank that failed may be one that all others wait for
            for connection in self._until(deadline, list(streams), what):
                answers[connection] = self._answer(streams.pop(connection))
        return [answers[connection] for connection, _ in self._streams]

    def _answer(self, stream: IO[str]) -> dict[str, Any]:
        try:
            text = stream.readline()
        except OSError:
            text = ""
        if not text:
            self._fail("broke off")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            self._fail("failed", answer["error"])
        return answer

    def _until(self, deadline: float, sources: Sequence[socket.socket], what: str) -> list[socket.socket]:
        """Sleep until something comes, looking now and then whether the library is still there. From where it comes."""
        while not (ready := _readable(sources, min(HEARTBEAT, max(0.0, deadline - time.monotonic())))):
            if any(process.poll() not in (None, 0) for process in self._processes):
                self._fail("broke off")
            if time.monotonic() >= deadline:
                self._fail(f"took too long to {what}")
        return ready

    def _fail(self, how: str, said: str = "") -> NoReturn:
        if how == "broke off":  # the launcher will say why
            self._wait(LAST_WORDS)
        said = said or (self._folder / "output").read_text(errors="replace").strip()[-2000:]
        self.dead = f"{self.name} with {self.ranks} ranks {how}" + (f":\n{said}" if said else "")
        raise LibraryFailed(self.dead)

    def _end(self) -> None:
        """The ranks end when their sockets close. Those that do not are ended, with all that they lead."""
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                if number is not None and process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
            self._wait(5.0)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the processes, if any are left."""
        self._stack.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _readable(sources: Sequence[socket.socket], seconds: float) -> list[socket.socket]:
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ, source)
        return [key.data for key, _ in selector.select(seconds)]
