"""How ranks are named in messages, and how long something has lasted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHORT = 0.1  # seconds that are not worth telling


def named(ranks: Iterable[int]) -> str:
    """In words: "rank 3", "ranks 0-2, 5", "none"."""
    numbers = list(ranks)
    return f"rank{'' if len(numbers) == 1 else 's'} {spans(numbers)}" if numbers else "none"


def spans(numbers: Iterable[int]) -> str:
    """Those that follow one another together: "0-2, 5"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def lasting(seconds: Sequence[float]) -> str:
    """For how long some have been somewhere: ", for 2.0 s", ", for 1.2 to 2.0 s"; "" of nobody."""
    if not seconds:
        return ""
    low, high = min(seconds), max(seconds)
    return f", for {high:.1f} s" if high - low < SHORT else f", for {low:.1f} to {high:.1f} s"
