"""One error, one screen: what ranks wrote as they ended, where equal tracebacks are shown once."""

from __future__ import annotations

import re

from ..words import named

WHOLE = 3  # tracebacks that are shown in full; of others the last line


class LastWords:
    """Those of a job of `size` ranks that were not shown yet."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._words: dict[int, tuple[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._words)

    def add(self, rank: int, name: str, text: str) -> None:
        """Of a rank, which messages call by that name."""
        self._words[rank] = (name, text)

    def alike(self, rank: int) -> list[int]:
        """The ranks whose words are the same as that one's; none where it has none."""
        return next((ranks for _, ranks in self._folded() if rank in ranks), [])

    def take(self, besides: int | None = None) -> str:
        """To be shown now: all, or those that are other than what rank `besides` wrote. Of several ranks each text says
        whose it is."""
        folded = [(text, ranks) for text, ranks in self._folded() if besides not in ranks]
        for _, ranks in folded:
            for rank in ranks:
                del self._words[rank]
        if self._size == 1:
            return "".join(text for text, _ in folded)
        whole = "".join(f"{named(ranks)}:\n{_ended(text)}" for text, ranks in folded[:WHOLE])
        return whole + "".join(f"{named(ranks)}: {_verdict(text)}\n" for text, ranks in folded[WHOLE:])

    def _folded(self) -> list[tuple[str, list[int]]]:
        """Each text, and the ranks that wrote it: the same but for how each is called, and how long it had waited."""
        texts: dict[str, tuple[str, list[int]]] = {}
        for rank, (name, text) in sorted(self._words.items()):
            key = re.sub(r", for [\d.]+( to [\d.]+)? s$", "", text.replace(name, "*"), flags=re.MULTILINE)
            texts.setdefault(key, (text, []))[1].append(rank)
        return list(texts.values())


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _verdict(text: str) -> str:
    """The last line that is not indented: the error itself."""
    return next((line for line in reversed(text.splitlines()) if line and not line[0].isspace()), "")
