"""What is told of a plan in figures and facts, in all tables alike."""

from __future__ import annotations

from typing import Any, TypeAlias

from ...plans.algorithms.lanes import Places
from ...plans.collectives import find
from ...plans.count import bytes_per_host, count
from ...plans.plan import Plan

Row: TypeAlias = "dict[str, Any]"

WORDS = {
    "in_place": "right in place",
    "same_everywhere": "same bits on every rank",
    "size_invariant": "same bits for every size of the vector",
    "rank_order": "folded in rank order",
    "uneven": "right for blocks of any sizes",
}
MARKS = dict(zip(WORDS, zip("pbsou", WORDS.values(), strict=True), strict=True))  # a letter for each


def facts_of(collective: str) -> list[str]:
    """The facts that say something of that collective."""
    spec = find(collective)
    says = {"in_place": True, "uneven": spec.transposed}
    return [name for name in WORDS if says.get(name, spec.reduces)]


def figures(made: Plan, places: Places = None) -> Row:
    """What a plan costs, for programs. Bytes are multiples of those of the vector."""
    c = count(made)
    across = {"bytes_per_host": float(bytes_per_host(made, places))} if places else {}
    return {
        "ranks": made.size,
        "chunks": made.chunks,
        "rounds": c.rounds,
        "steps": c.steps,
        "messages": c.messages,
        "messages_per_rank": c.messages_per_rank,
        "bytes_per_rank": float(c.bytes_per_rank),
        **across,
        "folded_per_rank": float(c.reduced_per_rank),
    }


def shown(row: Row) -> dict[str, str]:
    """The same figures, for people."""
    names = {name: name.replace("_per_", "/") for name in row}
    return {
        names[name]: f"{value:.3g} S" if isinstance(value, float) else str(value)
        for name, value in row.items()
        if isinstance(value, int | float)
    }
