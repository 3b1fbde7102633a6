"""What `hocket status` finds on other hosts: it is asked there, by ssh, or by whatever else runs a command on them.

A group as JSON, which it writes for programs, too.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import HocketError
from .records import fields_of, parsed
from .status import Seen, Status, lines

PATIENCE = 40.0  # seconds for a host to answer
_NO_GROUP = 1  # the exit code


def fields(status: Status) -> dict[str, Any]:
    """A group for JSON."""
    ranks = []
    for seen in status.seen:
        more = {"pid": seen.pid, "calls_per_second": seen.rate, "doing": seen.record.whereabouts()[0]}
        ranks.append({**fields_of(seen.record), **more, **({"stack": seen.stack} if seen.stack else {})})
    return {
        "group": status.group,
        "size": status.size,
        "lines": [line._asdict() for line in lines(status)],
        "ranks": ranks,
        "gone": status.gone,
        "elsewhere": status.elsewhere,
    }


def ask(hosts: Sequence[str], by: str, *, stacks: bool) -> tuple[list[Seen], list[str]]:
    """The ranks there, and which hosts were not seen, in sentences. All at once; `by` runs Python on a `{host}`."""
    with ThreadPoolExecutor(max(len(hosts), 1)) as pool:
        answers = list(pool.map(lambda host: _seen(host, by, stacks=stacks), hosts))
    return [seen for ranks, _ in answers for seen in ranks], [note for _, note in answers if note]


def _seen(host: str, by: str, *, stacks: bool) -> tuple[list[Seen], str]:
    try:
        return _read(host, _printed(host, by, stacks=stacks)), ""
    except HocketError as error:
        return [], f"{host} was not seen: {error}"


def _printed(host: str, by: str, *, stacks: bool) -> bytes:
    try:
        words = [word.replace("{host}", host) for word in shlex.split(by)]
        words += ["-m", "hocket", "status", "--json", "-", *["--stacks"] * stacks]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise HocketError(f"no answer within {PATIENCE:g} s") from None
    except (OSError, ValueError) as error:
        raise HocketError(str(error)) from None
    if done.returncode not in (0, _NO_GROUP) or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise HocketError(f"exit code {done.returncode}{f': {said[-1]}' if said else ''}")
    return done.stdout


def _read(host: str, printed: bytes) -> list[Seen]:
    try:
        return [
            Seen(parsed(rank), int(rank["pid"]), float(rank["calls_per_second"]), host, str(rank.get("stack", "")))
            for group in json.loads(printed)
            for rank in group["ranks"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise HocketError("another version of hocket is there, or something else was printed, too") from None
