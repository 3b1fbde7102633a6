"""Places in a program: which of the lines on a stack is the user's own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType

PACKAGE = str(Path(__file__).parent) + os.sep
STANDARD = str(Path(os.__file__).parent) + os.sep


_given = threading.local()


def place() -> str:
    """Where the program is that has called into hocket on this thread: " at train.py:31"; "" where nobody has."""
    return getattr(_given, "place", "") or _at(_frames(sys._getframe(1)))


@contextmanager
def made_at(place: str) -> Iterator[None]:
    """What this thread does now was asked for there, by another thread perhaps."""
    before, _given.place = getattr(_given, "place", ""), place
    try:
        yield
    finally:
        _given.place = before


def place_of(error: BaseException) -> str:
    """Where the program raised it, in the same words."""
    return _at(reversed(list(_lines(error.__traceback__))))


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """Without hocket's frames, and those of the standard library that they called; all of it where nothing is left."""
    kept: list[TracebackType] = []
    at, dropped = trace, False
    while at is not None:
        filename = at.tb_frame.f_code.co_filename
        dropped = _is_own(filename) or (dropped and _is_standard(filename))
        if not dropped:
            kept.append(at)
        at = at.tb_next
    result = None
    for frame in reversed(kept):
        result = TracebackType(result, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return result or trace


def ends_in_users(trace: TracebackType | None) -> bool:
    """Whether it was raised in a function that hocket calls, such as an operator, and not by hocket."""
    *_, (filename, _) = _lines(trace) if trace is not None else [("", 0)]
    return not _is_own(filename) and not _is_standard(filename)


def _is_standard(filename: str) -> bool:
    return filename.startswith(("<frozen ", STANDARD)) and "site-packages" not in filename


def _is_own(filename: str) -> bool:
    return filename.startswith(PACKAGE)


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _lines(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _at(lines: Iterable[tuple[str, int]]) -> str:
    """The first of them, from the inside out, that neither hocket nor what lies between it and a program has."""
    for filename, line in lines:
        if not _is_passed_over(filename, "torch" in sys.modules):
            return f" at {_shown(filename)}:{line}"
    return ""


@lru_cache(maxsize=4096)  # each asynchronous call of torch's asks
def _is_passed_over(filename: str, with_torch: bool) -> bool:
    """hocket's own; torch calls hocket, the command hocket or Python's runpy calls a program, and threading what a
    thread of hocket's does."""
    torch = getattr(sys.modules["torch"], "__file__", None) if with_torch else None
    if _is_own(filename) or (torch and filename.startswith(str(Path(torch).parent) + os.sep)):
        return True
    return (
        filename.startswith("<frozen ")
        or filename == threading.__file__
        or Path(filename).name in ("hocket", "runpy.py")
    )


def _shown(filename: str) -> str:
    """Below the working directory as one would name it there."""
    try:
        return filename.removeprefix(os.getcwd() + os.sep)  # noqa: PTH109 - a Path takes ten times as long
    except OSError:  # it was deleted
        return filename
