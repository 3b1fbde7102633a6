"""What a check has found, how much it matters, and where checks look."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from ..launchers import Environ


class Level(IntEnum):
    """How much a finding matters: there is nothing to look at; it is well; it matters to the last percents; to how fast
    or how safe hocket is; or to whether it works."""

    NONE = -1
    OK = 0
    NOTE = 1
    WARNING = 2
    PROBLEM = 3


class Finding(NamedTuple):
    """What was found of one thing; and where that is not well, why it matters to hocket, and what to do."""

    level: Level
    check: str
    found: str
    why: str = ""
    remedy: str = ""


def ok(check: str, found: str) -> list[Finding]:
    """One that is well."""
    return [Finding(Level.OK, check, found)]


def none(check: str, found: str) -> list[Finding]:
    """Something that is not there, and that nobody needs."""
    return [Finding(Level.NONE, check, found)]


def note(check: str, found: str, why: str, remedy: str) -> list[Finding]:
    """One that is worth knowing."""
    return [Finding(Level.NOTE, check, found, why, remedy)]


def warning(check: str, found: str, why: str, remedy: str) -> list[Finding]:
    """One that makes hocket slow, or less safe."""
    return [Finding(Level.WARNING, check, found, why, remedy)]


def problem(check: str, found: str, why: str, remedy: str) -> list[Finding]:
    """One that makes hocket fail."""
    return [Finding(Level.PROBLEM, check, found, why, remedy)]


@dataclass(frozen=True)
class Here:
    """Where checks look: at files below `root`, which has a /proc and a /sys, and at the variables of the environment
    that concern hocket; and for whom: a job of `ranks` ranks on each of `nodes` hosts."""

    variables: Environ = field(default_factory=dict)
    ranks: int = 1
    nodes: int = 1
    root: Path = Path("/")

    def text(self, path: str) -> str:
        """What a file holds, without the space around it. Raises OSError where it cannot be read."""
        return (self.root / path).read_text(errors="replace").strip()

    def maybe(self, path: str) -> str:
        """As `text`; empty where there is no such file."""
        try:
            return self.text(path)
        except (FileNotFoundError, NotADirectoryError):
            return ""


class Check(NamedTuple):
    """Two functions: one reads facts, and may raise any error; the other, which is pure, judges them."""

    name: str
    read: Callable[[Here], Any]
    judge: Callable[[Any], list[Finding]]

    def made(self, here: Here) -> list[Finding]:
        """What it finds; where it cannot look, that."""
        try:
            facts = self.read(here)
        except Exception as error:  # whatever a file holds, all else is looked at
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            where = getattr(error, "filename", None)
            return note(
                self.name,
                f"could not look: {f'{where}: ' if where else ''}{why}",
                "nothing is known of it, good or bad",
                "look as a user who may, or where /proc and /sys are mounted",
            )
        return self.judge(facts)


def most(findings: Sequence[Finding]) -> Level:
    """The level of the worst."""
    return max((finding.level for finding in findings), default=Level.OK)


def size(count: float) -> str:
    """A number of bytes, in words: "64 MiB"."""
    power = min(int(math.log2(count)) // 10, 4) if count >= 1 else 0
    number = count / (1 << 10 * power)
    return f"{number:.{3 if number < 100 else 4}g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def plural(count: int, what: str) -> str:
    """A number of things: "1 core", "2 cores"."""
    return f"{count} {what}{'s' * (count != 1)}"
