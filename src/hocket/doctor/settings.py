"""The variables that are set here: whether they make sense, one by one and together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from ..config import TLS, Config, names
from ..errors import RendezvousError
from ..launchers import LAUNCHERS, Environ, Launcher
from .findings import Check, Finding, Here, none, note, ok, plural, problem, warning

_FOLDERS = ("HOCKET_TRACE", "HOCKET_FLIGHT")
_OURS = "HOCKET_"
_UNSET = "one is left from another job: unset it"


def ranks_here(variables: Environ) -> int:
    """How many a launcher has started on this host; as many as cores where there is none, or it does not say."""
    launcher = Launcher.of(variables)
    with suppress(RendezvousError):
        if launcher is not None:
            return launcher.place(variables, anywhere=True)[3]
    return len(os.sched_getaffinity(0))


def read_place(here: Here) -> tuple[str, str]:
    """The rank that the variables make of this process, in words; else why none."""
    try:
        config = Config.from_env(here.variables)
    except RendezvousError as error:
        return "", str(error)
    return f"rank {config.rank} of {config.size}, started by: {config.launcher}", ""


def judge_place(facts: tuple[str, str]) -> list[Finding]:
    """None."""
    place, error = facts
    if not error:
        return ok("place", place)
    return problem("place", error, "init raises this very error", "set what it asks for, or unset the rest")


class Launched(NamedTuple):
    """One launcher whose variables are set, and the rank and size that they tell; None where they are half set."""

    name: str
    place: tuple[int, int] | None


def read_launchers(here: Here) -> list[Launched]:
    """In the order in which hocket looks for them."""
    found = []
    for launcher in LAUNCHERS:
        if any(name in here.variables for name in launcher.triggers):
            try:
                place = launcher.place(here.variables, anywhere=True)[:2]
            except RendezvousError:
                place = None
            found.append(Launched(launcher.name, place))
    return found


def judge_launchers(facts: list[Launched]) -> list[Finding]:
    """Two that contradict each other."""
    if len({each.place for each in facts}) < 2:
        return ok("launcher", facts[0].name) if facts else none("launcher", "no launcher")
    told = "; ".join(
        f"{name}: {f'rank {place[0]} of {place[1]}' if place else 'half a place'}" for name, place in facts
    )
    why = f"hocket takes the first, {facts[0].name}: ranks may wait for others that nobody has started"
    return warning("launcher", f"the variables of several launchers are set, and differ ({told})", why, _UNSET)


def read_unknown(here: Here) -> tuple[str, ...]:
    """The variables that are named as if they were hocket's."""
    return tuple(sorted(name for name in here.variables if name.startswith(_OURS) and name not in names()))


def judge_unknown(facts: tuple[str, ...]) -> list[Finding]:
    """Those that nobody reads."""
    if not facts:
        return none("names", "no unknown variable")
    findings = []
    for name in facts:
        ours = [each.removeprefix(_OURS) for each in names() if each.startswith(_OURS)]
        near = get_close_matches(name.removeprefix(_OURS), ours, 1)
        remedy = f"did you mean {_OURS}{near[0]}?" if near else "docs/hosts.md lists what can be set; unset this one"
        findings += warning(
            "names", f"{name} is set", "no such variable is read: what it was to do is not done", remedy
        )
    return findings


class Settings(NamedTuple):
    """The variables; how many ranks there are on each host, and cores for them; and which of the folders that they name
    cannot be written."""

    variables: Environ
    ranks: int
    cores: int
    shut: tuple[str, ...]


def read_settings(here: Here) -> Settings:
    """A folder that is not there yet is made where it can be."""
    shut = [name for name in _FOLDERS if (path := here.variables.get(name)) and not _can_be_written(Path(path))]
    return Settings(here.variables, here.ranks, len(os.sched_getaffinity(0)), tuple(shut))


def _can_be_written(path: Path) -> bool:
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


def judge_settings(facts: Settings) -> list[Finding]:
    """Those that contradict each other, or this machine."""
    return [*_contradictions(facts)] or none("settings", "no contradiction among settings")


def _contradictions(facts: Settings) -> Iterator[Finding]:
    environ = facts.variables
    ways = environ.get("HOCKET_TRANSPORT", "")
    if "ucx" in ways and any(environ.get(name) for name in TLS):
        made = warning if "tcp" in ways else problem
        what = f"HOCKET_TRANSPORT={ways} and {TLS[0]} are set"
        why = "what goes through UCX is not encrypted: where TLS is asked for, hocket refuses it"
        yield from made("UCX and TLS", what, why, "leave ucx out of HOCKET_TRANSPORT, or TLS away")
    if ways == "ucx" and environ.get("HOCKET_TCP_STREAMS", "1") != "1":
        what, why = "HOCKET_TCP_STREAMS is set, and only UCX is asked for", "a link that may go through UCX has one"
        yield from note("streams", what, why, "unset it, or HOCKET_TRANSPORT=shm,tcp")
    if environ.get("HOCKET_INTEGRITY") == "1" and all(environ.get(name) for name in TLS):
        what, why = "HOCKET_INTEGRITY=1 beside TLS", "TLS finds whatever a checksum does: bytes are looked at twice"
        yield from note("integrity", what, why, "unset HOCKET_INTEGRITY")
    if "HOCKET_ADDRESS" in environ and "HOCKET_RENDEZVOUS" in environ:
        what = "HOCKET_ADDRESS, which hocket run sets on one host, and HOCKET_RENDEZVOUS are both set"
        yield from warning("meeting point", what, "hocket takes the second, and ranks may look for each other", _UNSET)
    least, size = environ.get("HOCKET_MIN_RANKS", ""), environ.get("WORLD_SIZE", "")
    if least.isdigit() and size.isdigit() and int(least) > int(size):
        what = f"HOCKET_MIN_RANKS is {least}, and there are {size} ranks"
        yield from problem("fewest ranks", what, "so many are never there to go on", f"HOCKET_MIN_RANKS={size} at most")
    for name in facts.shut:
        what = f"{name} is {environ[name]}, where this user can make no file"
        yield from warning("folders", what, "what each rank is to write there is lost", "a folder that can be written")
    threads = environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if threads.isdigit() and int(threads) > 1 and int(threads) * facts.ranks > facts.cores:
        cores = plural(facts.cores, "core")
        what = f"OMP_NUM_THREADS={threads} for each of {plural(facts.ranks, 'rank')}, on {cores}"
        why = "threads that compute keep ranks from the cores in which they would answer the others"
        yield from warning("threads", what, why, f"OMP_NUM_THREADS={max(1, facts.cores // facts.ranks)}")


CHECKS = (
    Check("place", read_place, judge_place),
    Check("launcher", read_launchers, judge_launchers),
    Check("names", read_unknown, judge_unknown),
    Check("settings", read_settings, judge_settings),
)
