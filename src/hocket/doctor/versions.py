"""What is installed: hocket and its core, Python, and what hocket works with. Nothing is imported for it but UCX."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import NamedTuple

from .._core import VERSION
from ..config import job_sockets
from ..errors import RendezvousError
from ..rendezvous.ucx import found
from .findings import Check, Finding, Here, none, note, ok, problem, warning
from .limits import asks_for_ucx

_EXTRAS = ("torch", "mpi", "ray", "metrics")
_BESIDE = ("numpy", "torch", "mpi4py", "ray")
_MPIS = {
    "Open MPI": r"\(Open MPI\) ([\w.]+)",
    "Intel MPI": r"Intel\(R\) MPI Library.*?, Version ([\w.]+)",
    "MPICH": r"HYDRA build details:\s+Version:\s+([\w.]+)",
}


class Own(NamedTuple):
    """The version of the compiled core, that of the package, empty where it is not installed, and that of Python."""

    core: str
    package: str
    python: str


def read_own(here: Here) -> Own:
    """As they say themselves."""
    return Own(VERSION, _version("hocket"), platform.python_version())


def judge_own(facts: Own) -> list[Finding]:
    """Two of them."""
    if facts.package in ("", facts.core):
        return ok("hocket", f"hocket {facts.core}, Python {facts.python}")
    return problem(
        "hocket",
        f"the core is that of hocket {facts.core}, and the rest of hocket {facts.package}",
        "they are made for each other; a checkout was updated, or two are on the path",
        "pip install --force-reinstall hocket, or make in the checkout",
    )


class Beside(NamedTuple):
    """The versions of packages, by name, as far as they are installed; the least that hocket wants of each; and which
    MPI's the mpirun is that is found first, empty where there is none."""

    installed: Mapping[str, str]
    wanted: Mapping[str, str]
    mpi: str


def read_beside(here: Here) -> Beside:
    """As their metadata tells, and hocket's."""
    try:
        words = metadata.requires("hocket") or []
    except metadata.PackageNotFoundError:
        words = []
    wants = [re.match(r"([\w.-]+?)\s*>=\s*([\d.]+)", word) for word in words if _matters(word)]
    wanted = {want[1].replace("_", "-"): want[2] for want in wants if want}
    installed = {name: _version(name) for name in [*_BESIDE, *wanted]}
    return Beside({name: text for name, text in installed.items() if text}, wanted, _mpi())


def _mpi() -> str:
    """`Open MPI 5.0.11`, as mpirun says itself; only where it is, if it does not."""
    if not (program := shutil.which("mpirun")):
        return ""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, errors="replace", timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return program
    return mpi_of(done.stdout) or program


def mpi_of(said: str) -> str:
    """The name and the version in what an mpirun says of itself; empty where nothing is known."""
    for name, words in _MPIS.items():
        if found := re.search(words, said):
            return f"{name} {found[1]}"
    return ""


def _matters(word: str) -> bool:
    """Whether a requirement is hocket's own, or of an extra that a job uses."""
    extra = re.search(r"extra == ['\"](\w+)", word)
    return extra is None or extra[1] in _EXTRAS


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:3])


def judge_beside(facts: Beside) -> list[Finding]:
    """One that is older than what hocket is tested with."""
    findings = []
    for name, least in facts.wanted.items():
        if name in facts.installed and _numbers(facts.installed[name]) < _numbers(least):
            findings += warning(
                name,
                f"{name} {facts.installed[name]} is installed, and hocket wants {least} or newer",
                "with an older one it was not tried, or is known not to work",
                f"pip install '{name}>={least}'",
            )
    shown = [f"{name} {facts.installed[name]}" for name in _BESIDE if name in facts.installed]
    return findings or ok("packages", ", ".join([*shown, *([facts.mpi] if facts.mpi else [])]))


class UCX(NamedTuple):
    """Which there is, or why none; whether HOCKET_TRANSPORT asks for it, and allows TCP beside it; and whether
    HOCKET_UCX names one."""

    version: str
    lacks: str
    is_asked: bool
    falls_back: bool
    is_named: bool


def read_ucx(here: Here) -> UCX:
    """By loading it, where somebody asks for it."""
    asked, named = asks_for_ucx(here), bool(here.variables.get("HOCKET_UCX"))
    falls_back = "tcp" in here.variables.get("HOCKET_TRANSPORT", "tcp")
    return UCX(*(ucx(here.variables) if asked or named else ("", "")), asked, falls_back, named)


def ucx(environ: Mapping[str, str]) -> tuple[str, str]:
    """Which UCX ranks can use, and what of it; or else why they cannot."""
    try:
        options = job_sockets(environ)
    except RendezvousError as error:
        return "", str(error)
    context, lacks = found(options._replace(ways=("ucx",)))
    return ("", lacks) if context is None else (f"{context.version} ({context.path}), {options.ucx_transports}", "")


def judge_ucx(facts: UCX) -> list[Finding]:
    """Asked for, and not there; or named, and not asked for."""
    if facts.is_asked and facts.lacks:
        made = warning if facts.falls_back else problem
        why = (
            "ranks of different hosts fall back to TCP" if facts.falls_back else "no rank reaches those of other hosts"
        )
        remedy = "install a UCX with verbs (libucx0, HPC-X), or name it: HOCKET_UCX=/path/to/libucp.so.0"
        return made("UCX", f"UCX is asked for, and cannot be used: {facts.lacks}", why, remedy)
    if facts.is_named and not facts.is_asked:
        what, why = "HOCKET_UCX is set, but UCX is not asked for", "ranks of different hosts talk over TCP"
        return note("UCX", what, why, "HOCKET_TRANSPORT=shm,ucx,tcp on all hosts")
    return ok("UCX", f"UCX {facts.version}") if facts.version else none("UCX", "UCX is not asked for")


CHECKS = (
    Check("hocket", read_own, judge_own),
    Check("packages", read_beside, judge_beside),
    Check("UCX", read_ucx, judge_ucx),
)


def facts(here: Here) -> dict[str, str]:
    """What hosts are compared by."""
    own, beside = read_own(here), read_beside(here)
    context = read_ucx(here).version.partition(" ")[0]
    machine = {"kernel": os.uname().release, "cores": str(len(os.sched_getaffinity(0)))}
    return {
        "hocket": own.core,
        "python": own.python,
        **beside.installed,
        **({"ucx": context} if context else {}),
        **({"MPI": beside.mpi} if beside.mpi else {}),
    } | machine
