"""What ranks write, on its way to our own streams: by whole lines, so that ranks do not write into each other's."""

from __future__ import annotations

import os
import re
import select
from typing import IO

from ..deadline import Deadline

TAIL = 1 << 16  # bytes of a rank's errors that are kept
_PROMPT = 0.2  # seconds that a begun line may wait for its end
_HELD = 5.0  # seconds that a traceback may wait for the end of its process, which takes some where cores are busy
# A SyntaxError of the program itself has no first line.
_TRACEBACK = re.compile(rb'^(Traceback \(most recent call last\):|  File ".*", line \d+)$', re.MULTILINE)
_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)


class Sink:
    """One of our own streams. With `tags`, each line begins with the rank that wrote it; None: where a terminal shows
    them."""

    def __init__(self, fd: int, tags: bool | None) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self.tags = self.is_terminal if tags is None else tags
        self._begun: int | None = None  # whose line is not at its end

    def write(self, rank: int, data: bytes) -> None:
        """What a rank has written. Where tags tell ranks apart, each has a line of its own."""
        if self.tags:
            begins = self._begun != rank
            between = b"\n" if begins and self._begun is not None else b""
            self._begun = None if data.endswith(b"\n") else rank
            lines = data.splitlines(keepends=True)
            data = between + b"".join((self._tag(rank) if i or begins else b"") + line for i, line in enumerate(lines))
        write(self.fd, data)

    def say(self, text: str) -> None:
        """Words of our own. Where tags tell ranks apart, they have lines of their own, too."""
        between = b"" if self._begun is None else b"\n"
        self._begun = None
        write(self.fd, between + text.encode())

    def end_line(self, rank: int) -> None:
        """That rank writes no more."""
        if self._begun == rank:
            self.write(rank, b"\n")

    def _tag(self, rank: int) -> bytes:
        colour = _COLOURS[rank % len(_COLOURS)]
        return (f"\x1b[{colour}m[{rank}]\x1b[0m " if self.is_terminal else f"[{rank}] ").encode()


class Output:
    """One stream of one rank. One that `holds` keeps back a traceback, and what follows, for a while: where the process
    has ended by then, these are its `last_words`, and are not passed on."""

    def __init__(self, source: IO[bytes], sink: Sink, rank: int, *, holds: bool = False) -> None:
        self.source = source
        self.due: Deadline | None = None  # when what waits is to be passed on, by `flush`
        self.last_words = b""
        self.has_ended = False
        self._sink, self._rank, self._holds = sink, rank, holds
        self._tail = b""  # the last of it, to be shown again
        self._waiting = b""  # a begun line, or what is held
        self._held = False

    @property
    def words(self) -> str:
        """The last of it, as text."""
        return self._tail.decode(errors="replace")

    def is_ready(self) -> bool:
        """Whether `pump` has something to do."""
        poll = select.poll()
        poll.register(self.source, select.POLLIN)
        return bool(poll.poll(0))

    def pump(self) -> None:
        """Pass on what there is, and notice the end."""
        data = os.read(self.source.fileno(), 1 << 16)
        self._tail = (self._tail + data)[-TAIL:]
        self._waiting += data
        if not data:
            return self.end()
        if not self._held:
            whole, newline, rest = self._waiting.rpartition(b"\n")
            whole += newline
            found = _TRACEBACK.search(whole) if self._holds else None
            at = found.start() if found else len(whole)
            self._held = found is not None
            self._waiting = whole[at:] + rest
            self._pass_on(whole[:at])
            self.due = Deadline(_HELD) if self._held else Deadline(_PROMPT) if rest else None
        if len(self._waiting) > TAIL:
            self.flush()
        return None

    def flush(self) -> None:
        """Pass on what waits."""
        data, self._waiting, self._held, self.due = self._waiting, b"", False, None
        self._pass_on(data)

    def end(self) -> None:
        """Nothing more comes of it."""
        self.has_ended = True
        if self._held:
            self.last_words, self._waiting = self._waiting, b""
        self.flush()
        self._sink.end_line(self._rank)

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._sink.write(self._rank, data)


def write(fd: int, data: bytes) -> None:
    """All of it."""
    view = memoryview(data)
    while view:
        select.select([], [fd], [])  # somebody may have made our terminal non-blocking
        view = view[os.write(fd, view) :]
