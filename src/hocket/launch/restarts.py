"""What becomes of a job in which a rank fails: `hocket run --max-restarts K --min-ranks N`.

```
a rank fails
├─ others have met, and run ─┬─ restarts are left ─▶ AGAIN     it is started again, and joins them
│                            ├─ N are left ────────▶ WITHOUT   they go on without it
│                            └─ else ──────────────▶ OVER      all are ended
└─ there is nobody to join ──┬─ N have ended well ─▶ WITHOUT   the job has done its work
                             ├─ restarts are left ─▶ ALL       all are ended, and meet anew
                             └─ else ──────────────▶ OVER
```

No processes here, and no clocks: it is told who has ended, and how, and answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from ..rendezvous.store import MET, joined

_SHORTEST, _LONGEST = 0.5, 30.0  # seconds before the second restart of a rank, and before any
Has: TypeAlias = Callable[[str], bool]  # whether the ranks' store has a note


class Fate(Enum):
    """What is to be done."""

    AGAIN = auto()
    WITHOUT = auto()
    ALL = auto()
    OVER = auto()


class Answer(NamedTuple):
    """What is to be done after `delay` seconds, and the end of the sentence "rank 2 failed: exit code 1"."""

    fate: Fate
    words: str
    delay: float = 0.0


class Restarts:
    """The ledger of one job: `most` restarts for all of its `ranks` together, of which `needed` are enough to go on."""

    def __init__(self, ranks: Sequence[int], most: int = 0, needed: int | None = None) -> None:
        self._ranks, self._most = ranks, most
        self._needed = len(ranks) if needed is None else needed
        self._used = 0
        self._starts: Counter[int] = Counter()  # again, of each rank in the whole job
        # Since all ranks were started last:
        self._lives: Counter[int] = Counter()  # how often each was started again
        self._done: set[int] = set()  # who ended well
        self._lost: set[int] = set()  # who was given up
        self._late: set[int] = set()  # who wanted to join when nobody was left to join

    @property
    def is_strict(self) -> bool:
        """Whether the first failure ends the job, as it does where nothing else was asked for."""
        return self._most == 0 and self._needed == len(self._ranks)

    def of(self, rank: int) -> int:
        """How often a rank was started again, to join the others."""
        return self._lives[rank]

    def ended(self, rank: int) -> None:
        """It ended well."""
        self._done.add(rank)

    def came_late(self, ranks: Iterable[int]) -> None:
        """These, and nobody else, still run, and wait to join: nobody can join them."""
        self._late.update(ranks)

    def failed(self, rank: int, has: Has | None) -> Answer:
        """It ended otherwise. `has` knows the notes that ranks have written; None where nobody here does, as on several
        hosts: there somebody is taken to be left whom it can join."""
        met = has is None or has(MET)
        gone = self._done | self._lost | self._late | {rank}
        others = [r for r in self._ranks if r not in gone]  # who run, or will, and can be joined
        came = [r for r in others if has is None or self._lives[r] == 0 or has(joined(r, self._lives[r]))]
        if has is None or (met and came):
            if self._used < self._most:
                return self._again(rank)
        elif not met or len(self._done) < self._needed:
            in_vain = others if met else []  # they were to join those of whom nobody is left
            if self._used - len(in_vain) < self._most:
                return self._all_again(in_vain, "; nobody is left to join" if met else ", before the ranks had met")
        self._lost.add(rank)
        left = len(self._ranks) - len(self._lost)
        if met and left >= self._needed:
            go_on = "go on" if others else "have ended well"
            return Answer(Fate.WITHOUT, f"; the others {go_on} ({_ranks(left)}, {self._least})")
        used = ["", "; the restart is used", f"; all {self._most} restarts are used"][min(self._most, 2)]
        why = f"; too few are left ({_ranks(left)}, {self._least})" if met else ", before the ranks had met"
        return Answer(Fate.OVER, used + why if met else why + used)

    def _again(self, rank: int) -> Answer:
        self._used += 1
        self._lives[rank] += 1
        self._starts[rank] += 1
        return self._answer(Fate.AGAIN, "; started again", self._starts[rank])

    def _all_again(self, in_vain: Sequence[int], why: str) -> Answer:
        """It counts as one restart, together with those that came to nothing."""
        self._used += 1 - len(in_vain)
        for ledger in (self._lives, self._done, self._lost, self._late):
            ledger.clear()
        self._starts.subtract(in_vain)
        self._starts.update(self._ranks)
        words = f"{why}; all are started again" if len(self._ranks) > 1 else "; started again"
        return self._answer(Fate.ALL, words, max(self._starts.values()))

    def _answer(self, fate: Fate, words: str, times: int) -> Answer:
        """Who fails at once each time is started ever later."""
        delay = min(_SHORTEST * 2.0 ** min(times - 2, 9), _LONGEST) if times > 1 else 0.0
        later = f" in {delay:g} s" if delay else ""
        return Answer(fate, f"{words}{later} ({self._used} of {self._most})", delay)

    @property
    def _least(self) -> str:
        return f"at least {self._needed} {'is' if self._needed == 1 else 'are'} needed"


def _ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"
