"""Where each rank is, in the words of errors.

A rank tells it once a wait lasts (csrc/python/in_call.h), and whoever makes an error asks all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..words import SHORT, lasting, named

LINES = 8  # of ranks that are in different places; of more only the number is told


class Whereabouts(NamedTuple):
    """What is known of one rank: what it waits in and for how many seconds, if it has told; the last call that it
    entered, and what that is; whether it left, or is gone without a word; whether it does not wait now."""

    doing: str
    seconds: float
    call: int
    title: str
    left: bool
    gone: bool
    silent: bool


def describe(ranks: Sequence[Whereabouts], rank: int, doing: str) -> str:
    """Lines for an error of `rank`, which is in `doing`: "rank 1 is in recv(src=0, tag=9) at train.py:40, for 2.0 s".
    Ranks in the same place share a line. Each line begins with a newline and two blanks."""
    call = ranks[rank].call if f"(call {ranks[rank].call})" in doing else 0
    places: dict[str, list[int]] = {}
    for r, where in enumerate(ranks):
        places.setdefault(f"in {doing}" if r == rank else _words(where, call), []).append(r)
    lines = [
        f"{named(members)} {'is' if len(members) == 1 else 'are'} {words}{_lasting([ranks[r] for r in members])}"
        for words, members in places.items()
    ]
    if len(lines) > LINES:
        lines[LINES - 1 :] = [f"and ranks in {len(lines) - LINES + 1} other places"]
    return "".join(f"\n  {line}" for line in lines)


def _words(where: Whereabouts, call: int) -> str:
    """Of another rank, as a rank sees it that has entered `call`, or none (0)."""
    last = f"{where.title} (call {where.call})"
    busy = ", busy there or stopped" if where.silent else ""
    if where.left:
        return "gone, having left the group"
    if where.gone:
        return f"dead or out of reach{f', after {last}' if where.call else ''}"
    if where.doing:
        return f"in {where.doing}{busy}"
    if call and where.call >= call:
        return f"in {last}{busy}"
    return f"in no call of this group{f', after {last}' if where.call else ' yet'}"


def _lasting(ranks: Sequence[Whereabouts]) -> str:
    return lasting([where.seconds for where in ranks if where.seconds >= SHORT and not where.left and not where.gone])
