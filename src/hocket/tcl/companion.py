"""The process beside a plain tclsh: it reads commands from the pipe and answers each. `package/hocket.tcl` is the other
end, and says what goes over the pipe.

A script says when it ends; a pipe that ends without a word means that its tclsh was killed, and this process ends at
once, in the middle of a call too, as the rank that it was one with: the other ranks get a PeerLost.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from .._core import VERSION
from .script import NAMES, OK, Script

A_WHILE = 200e-6  # seconds


def serve() -> None:
    """Until the script ends. Standard output is the pipe alone's: what else is written there goes to standard error.
    To signals, which are for the script, hocket.tcl has made this process deaf before it began."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with source, sink:
        leaving = threading.Event()
        threading.Thread(target=_watch, args=(source.fileno(), leaving), daemon=True).start()
        send(sink, (VERSION, *NAMES))
        script = Script()
        while (words := soon(source)) is not None:
            name, *rest = words
            if name == "leave":
                status = script.leave(int(rest[0]), rest[1], rest[2])
                leaving.set()
                send(sink, (OK, str(status)))
                return
            send(sink, script.reply(name, rest))


def soon(source: BinaryIO) -> list[str] | None:
    """The next command. A script often has one at once: to be woken for it takes longer than to look for it a while."""
    poll, end = select.poll(), time.perf_counter() + A_WHILE
    poll.register(source, select.POLLIN)
    while not poll.poll(0) and time.perf_counter() < end:
        os.sched_yield()
    return receive(source)


def receive(source: BinaryIO) -> list[str] | None:
    """The words of a command; None at the end of the pipe."""
    line = source.readline()
    if not line.endswith(b"\n"):
        return None
    lengths = [int(length) for length in line.split()]
    body = source.read(sum(lengths))
    if len(body) != sum(lengths):
        return None
    words, begin = [], 0
    for length in lengths:
        words.append(body[begin : begin + length].decode(errors="replace"))
        begin += length
    return words


def send(sink: BinaryIO, words: Sequence[str]) -> None:
    """The same way back."""
    each = [word.encode(errors="replace") for word in words]
    sink.write(b" ".join(b"%d" % len(word) for word in each) + b"\n" + b"".join(each))
    sink.flush()


def _watch(pipe: int, leaving: threading.Event) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # the end alone
    poll.poll()
    if not leaving.is_set():
        os._exit(1)
