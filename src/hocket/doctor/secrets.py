"""What is to be known to a job's ranks alone: the secret, the files of TLS, and the folder in which ranks meet."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

from ..addresses import shared_folder
from ..config import TLS
from ..errors import RendezvousError
from ..rendezvous.tls import credentials
from .findings import Check, Finding, Here, none, ok, problem, warning

_SHORT = 16  # characters, of which a drawn secret has 32
_SOON = 7  # days
_DAY = 86400
_LONGEST = 10.0  # seconds for openssl


class Secret(NamedTuple):
    """How many characters it has, None where there is none, and whether the job's ranks are to meet over the network
    or in a folder, where only that keeps strangers out."""

    length: int | None
    is_far: bool


def read_secret(here: Here) -> Secret:
    """HOCKET_SECRET."""
    secret = here.variables.get("HOCKET_SECRET")
    return Secret(None if secret is None else len(secret), "HOCKET_RENDEZVOUS" in here.variables)


def judge_secret(facts: Secret) -> list[Finding]:
    """None where one is needed, or one that can be guessed."""
    remedy = "export HOCKET_SECRET=$(openssl rand -hex 16), the same on all hosts"
    if not facts.length:
        if not facts.is_far:
            return none("secret", "no secret is set, nor needed on one host")
        why = "across hosts only the secret tells who belongs to the job: init refuses to do without"
        return problem("secret", "HOCKET_SECRET is not set here", why, remedy)
    if facts.length < _SHORT:
        why = "who overhears the ranks as they meet can try guesses by the million"
        return warning("secret", f"HOCKET_SECRET has {facts.length} characters", why, remedy)
    return ok("secret", "a secret")


class Certificates(NamedTuple):
    """The files of TLS, empty without it; why they are no good; the key's mode, and whether it is this user's; and of
    the two certificates that run out soon, or have, how; None where there is no openssl to ask."""

    files: tuple[str, ...]
    error: str
    mode: int
    is_own: bool
    ends: tuple[str, ...] | None


def read_certificates(here: Here) -> Certificates:
    """Those that HOCKET_TLS_CERT and so on name. One that is missing, `settings` tells."""
    files = tuple(here.variables.get(name, "") for name in TLS)
    if not all(files):
        return Certificates((), "", 0, True, ())
    try:
        credentials((files[0], files[1], files[2]))
    except RendezvousError as error:
        return Certificates(files, str(error), 0, True, ())
    found = Path(files[1]).stat()
    ends = None if shutil.which("openssl") is None else tuple(filter(None, map(_end, (files[0], files[2]))))
    return Certificates(files, "", stat.S_IMODE(found.st_mode), found.st_uid in (0, os.geteuid()), ends)


def _end(file: str) -> str:
    """How it runs out, if soon."""

    def holds(seconds: int) -> bool:
        words = ["openssl", "x509", "-noout", "-in", file, "-checkend", str(seconds)]
        return subprocess.run(words, capture_output=True, timeout=_LONGEST).returncode == 0

    if holds(_SOON * _DAY):
        return ""
    return f"{file} runs out within {_SOON} days" if holds(0) else f"{file} has run out"


def judge_certificates(facts: Certificates) -> list[Finding]:
    """No good, open to others, or too old."""
    if not facts.files:
        return none("TLS", "no TLS")
    found = []
    if facts.error:
        why = "every TCP connection of the job is TLS, and needs all three files"
        found += problem("TLS", facts.error, why, "openssl x509 -in FILE -text shows a certificate; docs/hosts.md, TLS")
    if facts.mode & 0o077 or not facts.is_own:
        key = facts.files[1]
        what = f"{key} can be read or written by others ({facts.mode:03o})"
        if not facts.mode & 0o077:
            what = f"{key} belongs to another user"
        why = "whoever has that key, and the secret, belongs to the job"
        found += warning("key", what, why, f"chmod 600 {key}, chown $USER {key}; where others had it, make a new one")
    for end in facts.ends or ():
        made = problem if end.endswith("has run out") else warning
        why = "the ranks of other hosts refuse it then"
        found += made("certificate", end, why, "sign a new one: docs/hosts.md, What protects them")
    unseen = "" if facts.ends is not None else "; no openssl here tells how long the certificates hold"
    return found or ok("TLS", f"TLS{unseen}")


class Folder(NamedTuple):
    """Where the ranks are to meet, if in a folder; why that is no good; its mode; and whether it can be written."""

    path: str
    error: str
    mode: int
    is_writable: bool


def read_folder(here: Here) -> Folder:
    """That of HOCKET_RENDEZVOUS, or the one in which it will be made."""
    path = shared_folder(here.variables.get("HOCKET_RENDEZVOUS", ""))
    if path is None:
        return Folder("", "", 0, True)
    at = path
    while not at.exists() and at != at.parent:
        at = at.parent
    try:
        mode = stat.S_IMODE(at.stat().st_mode)
    except OSError as error:
        return Folder(str(at), error.strerror or str(error), 0, False)
    return Folder(str(at), "" if at.is_dir() else "it is no folder", mode, os.access(at, os.W_OK))


def judge_folder(facts: Folder) -> list[Finding]:
    """No folder, one that this user cannot write, or one that all can."""
    why = "each rank leaves a card there by which the others find it"
    remedy = "HOCKET_RENDEZVOUS=file:///folder that all hosts see, and this user alone can write"
    if facts.error:
        return problem("folder", f"{facts.path}: {facts.error}", why, remedy)
    if not facts.is_writable:
        return problem("folder", f"{facts.path} cannot be written by this user", why, remedy)
    if facts.mode & stat.S_IWOTH and not facts.mode & stat.S_ISVTX:
        what = f"{facts.path} can be written by everybody ({facts.mode:04o})"
        return warning("folder", what, "who can write there can keep the ranks from meeting", f"{remedy}: chmod o-w")
    return ok("folder", f"they meet in {facts.path}") if facts.path else none("folder", "no folder to meet in")


CHECKS = (
    Check("secret", read_secret, judge_secret),
    Check("TLS", read_certificates, judge_certificates),
    Check("folder", read_folder, judge_folder),
)
