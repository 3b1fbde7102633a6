"""All checks of one host, what they found, and how it is told."""

from __future__ import annotations

import socket
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import kernel, limits, machine, network, secrets, settings, tcp, versions
from .findings import Check, Finding, Here, Level, most, plural

SUBJECTS: tuple[tuple[str, tuple[Check, ...]], ...] = (
    ("machine", machine.CHECKS),
    ("limits", limits.CHECKS),
    ("kernel", kernel.CHECKS),
    ("network", (*network.CHECKS, *tcp.CHECKS)),
    ("secrets", secrets.CHECKS),
    ("settings", settings.CHECKS),
    ("versions", versions.CHECKS),
)
_INDENT = 9


class Told(NamedTuple):
    """A finding, and its subject."""

    subject: str
    finding: Finding


@dataclass(frozen=True)
class Report:
    """What was found on a host, for a job of `ranks` ranks on each of `nodes` hosts, and what is installed there."""

    host: str
    ranks: int
    nodes: int
    versions: dict[str, str]
    told: tuple[Told, ...]

    @staticmethod
    def of(here: Here) -> Report:
        """By all checks."""
        told = [Told(subject, found) for subject, checks in SUBJECTS for check in checks for found in check.made(here)]
        return Report(socket.gethostname(), here.ranks, here.nodes, versions.facts(here), tuple(told))

    @property
    def worst(self) -> Level:
        """The level of its worst finding."""
        return most([finding for _, finding in self.told])

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        document = {"host": self.host, "ranks": self.ranks, "nodes": self.nodes, "versions": self.versions}
        return {**document, "findings": fields(self.told)}

    @staticmethod
    def parsed(document: Any) -> Report:
        """One from JSON. Raises KeyError, TypeError, ValueError or AttributeError for what is none."""
        told = tuple(
            Told(str(each["subject"]), Finding(Level[each["level"].upper()], *(str(each[name]) for name in _WORDS)))
            for each in document["findings"]
        )
        installed = {str(name): str(text) for name, text in document["versions"].items()}
        return Report(str(document["host"]), int(document["ranks"]), int(document["nodes"]), installed, told)


_WORDS = Finding._fields[1:]


def fields(told: Sequence[Told]) -> list[dict[str, str]]:
    """Findings for JSON, the worst first."""
    ordered = sorted(told, key=lambda each: -each.finding.level)
    return [{"subject": name, **found._asdict(), "level": found.level.name.lower()} for name, found in ordered]


def merged(reports: Mapping[str, Report]) -> list[Told]:
    """What hosts are to be told of that is not well: once what several have in common, with the names of those."""
    who: dict[Told, list[str]] = {}
    for host, report in reports.items():
        for each in report.told:
            if each.finding.level > Level.OK:
                who.setdefault(each, []).append(host)
    return [
        Told(f"{told.subject}, on {'all hosts' if len(hosts) == len(reports) else ', '.join(hosts)}", told.finding)
        for told, hosts in who.items()
    ]


class Line(NamedTuple):
    """One to be shown: what stands at its beginning, with the level that colours it, and the rest."""

    level: Level | None
    head: str
    text: str


def lines(told: Sequence[Told], width: int, *, verbose: bool = False) -> Iterator[Line]:
    """The worst come first, each with why and what to do; what is well is a line for each subject, unless `verbose`."""
    for subject, found in sorted(told, key=lambda each: -each.finding.level):
        if found.level > Level.OK:
            yield from _wrapped(found.level, f"{subject}: {found.found}", width)
            yield from _wrapped(None, f"why: {found.why}", width)
            yield from _wrapped(None, f"do: {found.remedy}", width)
    for subject in dict.fromkeys(subject for subject, _ in told):
        shown = (Level.NONE, Level.OK) if verbose else (Level.OK,)
        well = [found.found for name, found in told if name == subject and found.level in shown]
        for text in well if verbose or not well else [", ".join(well)]:
            yield from _wrapped(Level.OK, f"{subject}: {text}", width)


def _wrapped(level: Level | None, text: str, width: int) -> Iterator[Line]:
    head = "" if level is None else level.name.lower()
    plain = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)  # of a terminal, or no text
    pieces = textwrap.wrap(plain, max(width - _INDENT, 40), break_long_words=False, break_on_hyphens=False)
    for number, piece in enumerate(pieces):
        first = number == 0
        yield Line(level if first else None, f"{head if first else '':<{_INDENT}}", piece)


def headline(report: Report, name: str = "") -> str:
    """One line about a host, under another name perhaps."""
    where = f" on each of {report.nodes} hosts" if report.nodes > 1 else ""
    job = f"{plural(report.ranks, 'rank')}{where}"
    return f"{name or report.host}: hocket {report.versions.get('hocket', '?')}, {job}: {tally(report.told)}"


def tally(told: Sequence[Told]) -> str:
    """How many there are of each level."""
    counts = {level: sum(found.level is level for _, found in told) for level in reversed(Level)}
    words = [plural(count, level.name.lower()) for level, count in counts.items() if count and level > Level.OK]
    return ", ".join(words) or "all is well"
