"""What `hocket status` finds on other hosts: it is asked there, by ssh, or by whatever else runs a command on them.

A group as JSON, which it writes for programs, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import HocketError
from .records import fields_of, parsed
from .status import Seen, Status, lines
from .there import printed

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
        words = ["-m", "hocket", "status", "--json", "-", *["--stacks"] * stacks]
        return _read(host, printed(host, by, words, fine=(0, _NO_GROUP))), ""
    except HocketError as error:
        return [], f"{host} was not seen: {error}"


def _read(host: str, printed: bytes) -> list[Seen]:
    try:
        return [
            Seen(parsed(rank), int(rank["pid"]), float(rank["calls_per_second"]), host, str(rank.get("stack", "")))
            for group in json.loads(printed)
            for rank in group["ranks"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise HocketError("another version of hocket is there, or something else was printed, too") from None
