"""A plan as a space-time diagram of characters: ranks from left to right, steps from top to bottom.

>>> print(diagram(plan("all_reduce", "ring", 3), width=40))
step  r0       r1       r2
0     ●────────⊕0       │
      │        ●────────⊕1
      ⊕2───────┼────────●
1     ●────────⊕2       │
      │        ●────────⊕0
      ⊕1───────┼────────●
2     ●────────○1       │
      │        ●────────○2
      ○0───────┼────────●
3     ●────────○0       │
      │        ●────────○1
      ○2───────┼────────●
<BLANKLINE>
● sends   ⊕ folds it into what is there   ○ takes a copy
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from ..plan import Plan
from .scene import Message, Scene, scene
from .summary import summary

LEFT, NARROW, WIDE = 6, 5, 9  # characters: of the numbers of steps, and of one rank
SENT, FOLDED, COPIED = "●⊕○"
LEGEND = f"{SENT} sends   {FOLDED} folds it into what is there   {COPIED} takes a copy"
COUNTED = "   ×3 three chunks"


def diagram(plan: Plan, width: int = 80) -> str:
    """The plan's messages, each with the chunks that it carries, where all ranks fit into `width` characters; else what
    each step does, in words. Raises as `scene`."""
    column = min(WIDE, (width - LEFT) // plan.size)
    if column < NARROW:
        return summary(plan)
    made = scene(plan)
    if not made.messages:
        return "No rank sends anything to another."
    lines = ["step".ljust(LEFT) + "".join(f"r{rank}".ljust(column) for rank in range(plan.size))]
    for number, step in enumerate(made.steps):
        drawn = [_line(row, made, column) for row in _rows(step)] or [_line([], made, column)]
        lines += [f"{name:<{LEFT}}{line}" for name, line in zip([str(number), *[""] * len(drawn)], drawn, strict=False)]
    counted = COUNTED if any("×" in line for line in lines) else ""
    return "\n".join([*(line.rstrip() for line in lines), "", LEGEND + counted])


class _Star(NamedTuple):
    """Messages from one rank, or to one, that are all folded or all copied: one line with a mark for each rank."""

    hub: int
    sends: bool
    messages: tuple[Message, ...]

    def leaf(self, message: Message) -> int:
        """The other end of a message."""
        return message.target if self.sends else message.source

    def ends(self) -> tuple[int, int]:
        """The first and the last rank of the line."""
        ranks = [self.hub, *map(self.leaf, self.messages)]
        return min(ranks), max(ranks)


def _stars(step: tuple[Message, ...], sends: bool) -> list[_Star]:
    def hub(message: Message) -> tuple[int, bool]:
        return message.source if sends else message.target, message.folds

    return [_Star(key[0], sends, tuple(those)) for key, those in groupby(sorted(step, key=hub), hub)]


def _rows(step: tuple[Message, ...]) -> list[list[_Star]]:
    """The step in as few lines as are found, and in each line stars that do not touch."""
    rows: list[list[_Star]] = []
    for star in min(_stars(step, True), _stars(step, False), key=len):
        first, last = star.ends()
        for row in rows:
            if all(last < other.ends()[0] or other.ends()[1] < first for other in row):
                row.append(star)
                break
        else:
            rows.append([star])
    return rows


def _line(row: list[_Star], made: Scene, column: int) -> str:
    cells = list(("│" + " " * (column - 1)) * made.plan.size)

    def put(rank: int, text: str) -> None:
        cells[rank * column : rank * column + len(text)] = text

    for star in row:
        first, last = star.ends()
        put(first, ("┼" + "─" * (column - 1)) * (last - first))
        put(star.hub, SENT if star.sends else _taken(star.messages[0]))
        for message in star.messages:
            label = made.said(message.chunks).replace(" ", "")
            label = label if len(label) <= column - 2 else f"×{len(message.chunks)}"
            put(star.leaf(message), (_taken(message) if star.sends else SENT) + label[: column - 2])
    return "".join(cells)


def _taken(message: Message) -> str:
    return FOLDED if message.folds else COPIED
