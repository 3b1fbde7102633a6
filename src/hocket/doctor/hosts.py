"""Other hosts: what `hocket doctor` finds there, whether they fit together, and whether each reaches all others."""

from __future__ import annotations

import json
import select
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ..errors import HocketError
from ..observe.there import PATIENCE, command, printed
from .findings import Finding, none, note, ok, plural, problem, warning
from .report import Report

_DOOR = ("-m", "hocket.doctor.door")
_FAREWELL = 1.0  # seconds in which a door finds that nobody reads what it prints
_FOUND = (0, 1)  # exit codes of `hocket doctor`


class Way(NamedTuple):
    """From one host to another: at which URL, and why nothing came through, empty where all did."""

    caller: str
    host: str
    url: str
    error: str


def ask(hosts: Sequence[str], by: str, ranks: int | None) -> tuple[list[Report], list[Finding]]:
    """What is found there, all at once, each under the name by which it was asked; and who gave no answer."""

    def asked(host: str) -> Report | HocketError:
        words = ["-m", "hocket", "doctor", "--json", "--nnodes", str(len(hosts))]
        words += [] if ranks is None else ["-n", str(ranks)]
        try:
            return _parsed(host, printed(host, by, words, fine=_FOUND))
        except HocketError as error:
            return error

    with ThreadPoolExecutor(max(len(hosts), 1)) as pool:
        answers = list(pool.map(asked, hosts))
    missed = {host: str(answer) for host, answer in zip(hosts, answers, strict=True) if isinstance(answer, HocketError)}
    return [answer for answer in answers if isinstance(answer, Report)], judge_answers(missed)


def _parsed(host: str, text: bytes) -> Report:
    try:
        found = Report.parsed(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise HocketError("another version of hocket is there, or something else was printed, too") from None
    return Report(host, found.ranks, found.nodes, found.versions, found.told)


def judge_answers(missed: Mapping[str, str]) -> list[Finding]:
    """Hosts that gave none, and why."""
    findings = []
    for host, why in missed.items():
        what, matters = f"{host} was not seen: {why}", "nothing is known of it; a job may fail there"
        findings += problem("answers", what, matters, "ssh without a password, or --by; the same hocket on all hosts")
    return findings


def judge_versions(installed: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Hosts that differ in what is installed."""
    findings = []

    def differ(name: str, parts: int = 3) -> str:
        """Who has which; empty where all have one."""
        has: dict[str, list[str]] = defaultdict(list)
        for host, found in installed.items():
            if name in found:
                has[".".join(found[name].split(".")[:parts])].append(host)
        return "" if len(has) < 2 else "; ".join(f"{text} on {', '.join(who)}" for text, who in sorted(has.items()))

    if said := differ("hocket", 9):
        why = "all ranks need the same version: init raises a RendezvousError"
        findings += problem("hocket", f"hocket is {said}", why, "pip install one version on all hosts")
    if said := differ("ucx"):
        why = "of different versions of UCX a rank was seen to crash"
        findings += warning(
            "UCX", f"UCX is {said}", why, "HOCKET_UCX=/path/to/libucp.so.0, of one version, on all hosts"
        )
    if said := differ("python", 2):
        why = "objects that one rank pickles another may not be able to read"
        findings += warning("Python", f"Python is {said}", why, "one version on all hosts: --by names it")
    for name in ("numpy", "torch"):
        if said := differ(name, 2):
            why = "what ranks compute by themselves, and pickle, may differ; what hocket does with it does not"
            findings += note(name, f"{name} is {said}", why, "pip install one version on all hosts")
    if said := differ("MPI"):
        why = "started by mpirun, ranks of two MPIs do not find each other"
        findings += warning("MPI", f"MPI is {said}", why, "one version on all hosts, first on the PATH")
    return findings or ok("versions", f"the same versions on {', '.join(installed)}")


def ways(hosts: Sequence[str], by: str) -> tuple[list[Way], dict[str, str]]:
    """Every host knocks at a door of every other one, all at once; and which hosts could not be asked, and why."""
    with _doors(hosts, by) as (doors, missed):

        def tried(caller: str) -> list[Way] | HocketError:
            others = [host for host in doors if host != caller]
            words = [*_DOOR, "knock", *(word for host in others for word in doors[host])]
            try:
                errors = _strings(printed(caller, by, words), len(others))
            except HocketError as error:
                return error
            return [Way(caller, host, doors[host][0], error) for host, error in zip(others, errors, strict=True)]

        callers = [host for host in hosts if len(doors) > (host in doors)]
        with ThreadPoolExecutor(max(len(callers), 1)) as pool:
            answers = list(pool.map(tried, callers))
    missed |= {host: str(each) for host, each in zip(callers, answers, strict=True) if isinstance(each, HocketError)}
    return [way for each in answers if not isinstance(each, HocketError) for way in each], missed


def _strings(text: bytes, count: int) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != count:
        raise HocketError("something else was printed, too")
    return [str(each) for each in found]


@contextmanager
def _doors(hosts: Sequence[str], by: str) -> Iterator[tuple[dict[str, tuple[str, str]], dict[str, str]]]:
    """The URL and the secret of a door on each host; and why there is none. They are shut as this ends."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        with ThreadPoolExecutor(max(len(hosts), 1)) as pool:
            answers = dict(zip(hosts, pool.map(lambda host: _door(host, by, started), hosts), strict=True))
        missed = {host: str(each) for host, each in answers.items() if isinstance(each, HocketError)}
        yield {host: each for host, each in answers.items() if not isinstance(each, HocketError)}, missed
    finally:
        _shut(started)


def _door(host: str, by: str, started: list[subprocess.Popen[bytes]]) -> tuple[str, str] | HocketError:
    """One, whose process is added to those that were started."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        words = command(host, by, [*_DOOR, "open", f"{PATIENCE:g}"])
        process = subprocess.Popen(words, stdin=null, stdout=pipe, stderr=null)
        started.append(process)
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            return HocketError(f"no door within {PATIENCE:g} s")
        told = json.loads(process.stdout.readline())
        return str(told["url"]), str(told["secret"])
    except (OSError, HocketError) as error:
        return HocketError(str(error))
    except (ValueError, KeyError, TypeError):
        return HocketError("no door could be opened there")


def _shut(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """A door itself may be no child of this process, and on another host: it finds that nobody reads any more."""
    for process in started:
        if process.stdout is not None:
            process.stdout.close()
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_FAREWELL)
        process.kill()
        process.wait()


def judge_ways(found: Sequence[Way], missed: Mapping[str, str]) -> list[Finding]:
    """Those by which nothing came through, by who was to be reached; and hosts that could not try."""
    findings = []
    for host, why in missed.items():
        what, matters = f"{host} could not try: {why}", "whether its ranks reach the others is not known"
        findings += warning("ways", what, matters, f"try by hand: python {' '.join(_DOOR)} open 60, there")
    shut: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for way in found:
        if way.error:
            shut[way.host, way.url, way.error].append(way.caller)
    for (host, url, error), callers in shut.items():
        remedy = "let TCP through between the hosts, at all ports (sysctl net.ipv4.ip_local_port_range), on the way"
        if error.startswith("long"):
            remedy = "one MTU on all hosts, and let ICMP through (ip link set DEV mtu 1500; ping -M do -s 1472)"
        findings += problem(
            "ways",
            f"{', '.join(callers)} cannot reach {host} at {url}: {error}",
            "each rank dials the lower ones, at ports that the kernel chooses, and all dial rank 0",
            f"{remedy}, or choose another interface there (HOCKET_SOCKET_IFNAME)",
        )
    tried = f"{plural(len(found), 'way')} tried, none of them shut"
    return findings or (ok("ways", tried) if found else none("ways", "no ways between hosts"))
