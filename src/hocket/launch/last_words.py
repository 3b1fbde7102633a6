"""One error, one screen: what ranks wrote as they ended, where what several of them wrote is shown once."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ..errors import untouched
from ..words import named

WHOLE = 3  # tracebacks that are shown; of others the error alone
_TRACEBACK = "Traceback (most recent call last):\n"


class Words(NamedTuple):
    """Of one rank: where it was, and the error, which may be the same where others were elsewhere."""

    trace: str
    error: str
    key: str  # the same error, whatever the rank calls itself in it, however long it had waited, and touched what


class LastWords:
    """Those of a job of `size` ranks that were not shown yet."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._words: dict[int, Words] = {}

    def __bool__(self) -> bool:
        return bool(self._words)

    def __contains__(self, rank: int) -> bool:
        return rank in self._words

    def add(self, rank: int, name: str, text: str) -> None:
        """Of a rank, which messages call by that name."""
        begin = text.rfind(_TRACEBACK)
        found = re.compile(r"^\S", re.MULTILINE).search(text, begin + len(_TRACEBACK) if begin >= 0 else 0)
        at = found.start() if found else len(text)
        error = text[at:] if text.endswith("\n") else text[at:] + "\n"
        key = re.sub(r", for [\d.]+( to [\d.]+)? s$", "", untouched(error.replace(name, "*")), flags=re.MULTILINE)
        self._words[rank] = Words(text[:at], error, key)

    def alike(self, rank: int) -> list[int]:
        """The ranks with the same error as that one; none where it has none."""
        return [
            r for r, words in sorted(self._words.items()) if rank in self._words and words.key == self._words[rank].key
        ]

    def take(self, besides: int | None = None, of: Collection[int] | None = None) -> str:
        """To be shown now: all, or what is other than the error of rank `besides`, or those `of` some ranks. Of several
        ranks each traceback says whose it is."""
        kept = [] if besides is None else self.alike(besides)
        asked = self._words.keys() - kept if of is None else self._words.keys() & of
        taken = {rank: self._words.pop(rank) for rank in sorted(asked)}
        errors: dict[str, dict[str, list[int]]] = {}
        for rank, words in taken.items():
            errors.setdefault(words.key, {}).setdefault(words.trace, []).append(rank)
        parts, room = [], WHOLE
        for traces in errors.values():
            shown = [self._headed(ranks, trace) for trace, ranks in list(traces.items())[:room]]
            room -= len(shown)
            rest = [rank for trace, ranks in list(traces.items())[len(shown) :] for rank in ranks]
            parts += [*shown, *([f"{named(rest)}:\n"] if rest else []), taken[next(iter(traces.values()))[0]].error]
        return "".join(parts)

    def _headed(self, ranks: list[int], trace: str) -> str:
        return trace if self._size == 1 else f"{named(ranks)}:\n{trace}"
