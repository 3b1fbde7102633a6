"""How ranks are named in messages."""

from __future__ import annotations

from collections.abc import Iterable


def named(ranks: Iterable[int]) -> str:
    """In words: "rank 3", "ranks 0-2, 5", "none"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    if not runs:
        return "none"
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'' if len(runs) == len(runs[0]) == 1 else 's'} {', '.join(parts)}"
