"""Writes docs/algorithms.md and docs/pictures. Every number and every arrow is a plan's: `python
docs/generate_algorithms.py`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from hocket.plans.algorithms import ALGORITHMS, names, plan
from hocket.plans.check import check
from hocket.plans.collectives import COLLECTIVES
from hocket.plans.count import count
from hocket.plans.draw import player
from hocket.plans.draw.svg import svg

PAGE = Path(__file__).parent / "algorithms.md"
FOLDER = Path(__file__).parent / "pictures"
SIZES = (2, 3, 4, 8, 16)
DRAWN = 8  # ranks in a picture

HEAD = """\
# Algorithms

<!-- Written by docs/generate_algorithms.py from the plans themselves. Change that, not this. -->

An algorithm is a function of the number of ranks, and what it returns can be counted. No number in a table here is
typed by hand. `hocket plan show all_reduce ring -n 8` prints the same for one plan, with every step,
`hocket plan list` for all of them, and `hocket plan draw` draws and plays them.

- A **message** is all that one rank sends to one other in one step.
- **Rounds** are the longest chain of messages each of which waits for the one before: because it carries on what that
  one brought, or because the same rank sent or received that one in an earlier step. It is what latency is paid for.
- **Bytes** are multiples of S, the bytes of the whole vector: the input of an all-reduce, the output of an all-gather,
  what one rank gives in an all-to-all. The tokens of a barrier have no bytes; their S is 0.
- *per rank* means by the rank that sends most.

## How many messages is an all-reduce?

2(n-1), many books say; n(n-1), say others. Both are right, of different algorithms, and of different things counted:

{confusion}

"2(n-1) messages" of the naive algorithm is the *whole job*: n-1 ranks send to the root, and the root answers each.
"2(n-1) messages" of a ring is *each rank*: the whole job takes 2n(n-1), n times as many, each of them n times smaller.
"n(n-1)" is the whole job of the one-shot algorithm, in which everyone sends everything to everyone. The two-shot
algorithm has the messages and the bytes of a ring, and 2 rounds where a ring has 2(n-1).

What tells them apart is rounds (2, 2(n-1), 1, 2) and bytes sent by the busiest rank (n-1, 2(n-1)/n, n-1, 2(n-1)/n times
S): few rounds for short vectors, few bytes for long ones.
"""

TABLES = """\
## The tables

Numbers are for n = {sizes} ranks, in this order. The facts are what `check` proves: *in place*, it is
right also where the output is the memory of the input; *same everywhere*, all ranks get the same bits, or in a scan
those of the rank before with one operand more; *any size*, the bits of an element do not depend on how long the
vector is; *rank order*, operands are folded in the order of the ranks, so that the operator need not commute; these
three where something is folded. *Any blocks*: in an all-to-all, what ranks send to each other may differ in size.

The hierarchical ones are told where the ranks lie: here on two hosts, the first half on one. H is the number of
hosts. `hocket plan show all_reduce hierarchical --hosts 4,4,2` shows another arrangement.
"""

PICTURES = """\
## The pictures

What each page of `hocket/plans/algorithms` begins with, and the messages of its algorithms over {drawn} ranks: step by
step from top to bottom; whole lines end in a fold, dashed ones in a copy, and the numbers are chunks. The same, over as
many ranks as you like, with `hocket plan draw all_reduce ring -n {drawn} --svg FILE`; and

```console
$ hocket plan draw all_reduce ring,two_shot,recursive_halving -n {drawn} --html FILE
```

makes a page that plays them side by side, with numbers that are summed.
"""

WORDS = {
    "in_place": "in place",
    "same_everywhere": "same everywhere",
    "size_invariant": "any size",
    "rank_order": "rank order",
    "uneven": "any blocks",
}


def page() -> str:
    """The whole page."""
    parts = [HEAD.format(confusion=confusion()), TABLES.format(sizes=", ".join(map(str, SIZES)))]
    parts += [f"### {name}\n\n{collective(name)}" for name in COLLECTIVES]
    return "\n".join([*parts, PICTURES.format(drawn=DRAWN), *heads()])


def confusion() -> str:
    """Messages of four all-reduces, in total and per rank."""
    rows: list[list[object]] = []
    for algorithm in ("naive", "ring", "one_shot", "two_shot"):
        counts = [count(plan("all_reduce", algorithm, n)) for n in SIZES]
        sent = ["/".join(str(m) for m in sorted(set(c.messages_sent), reverse=True)) for c in counts]
        rows += [[f"{algorithm}, in total", *(c.messages for c in counts)], [f"{algorithm}, per rank", *sent]]
    return table(["messages, n =", *SIZES], rows) + "\n(3/1 means that the root sends 3 and every other rank 1.)"


def collective(name: str) -> str:
    """A collective's algorithms: the formulas, and what is counted of the plans."""
    spec = COLLECTIVES[name]
    reduces = spec.reduces
    asked = ["in_place", *["same_everywhere", "size_invariant", "rank_order"] * reduces, *["uneven"] * spec.transposed]
    said, rows = [], []
    for algorithm in names(name):
        said.append(f"- **{algorithm}**: {(inspect.getdoc(ALGORITHMS[name, algorithm]) or '').splitlines()[0]}\n")
        counts = [count(plan(name, algorithm, n)) for n in SIZES]
        row = [(c.rounds, c.messages, c.messages_per_rank, c.bytes_per_rank, c.reduced_per_rank) for c in counts]
        cells = [", ".join(f"{float(x):.3g}" for x in column) for column in zip(*row, strict=True)]
        facts = [check(plan(name, algorithm, n)) for n in SIZES]
        known = [WORDS[fact] for fact in asked if all(getattr(f, fact) for f in facts)]
        rows.append([algorithm, *cells[: 4 + reduces], ", ".join(known)])
    head = ["algorithm", "rounds", "messages in total", "messages per rank", "bytes sent per rank, × S"]
    said.append(
        f"\nOn the site [all of them are played side by side]({FOLDER.name}/{name}.html), over {DRAWN} ranks.\n"
    )
    return "".join(said) + "\n" + table([*head, *["bytes folded per rank, × S"] * reduces, "facts"], rows)


def heads() -> list[str]:
    """The head of every page, once, and the pictures of its algorithms."""
    pages: dict[str, list[tuple[str, str]]] = {}
    for name, function in ALGORITHMS.items():
        pages.setdefault(function.__module__, []).append(name)
    parts = []
    for module, drawn in pages.items():
        images = "\n".join(f"![{' '.join(name)} over {DRAWN} ranks]({FOLDER.name}/{file(*name)})" for name in drawn)
        head = inspect.getdoc(sys.modules[module])
        parts.append(f"### {module.rpartition('.')[2]}\n\n```text\n{head}\n```\n\n{images}\n")
    return parts


def pictures() -> dict[str, str]:
    """The files of the folder of pictures, and what is in them."""
    return {file(*name): svg(plan(*name, DRAWN)) for name in ALGORITHMS}


def played() -> dict[str, str]:
    """What lies beside them on the site alone: pages that play all algorithms of a collective."""
    return {f"{name}.html": player.page([plan(name, each, DRAWN) for each in names(name)]) for name in COLLECTIVES}


def file(collective: str, algorithm: str) -> str:
    """What the picture of an algorithm is called."""
    return f"{collective}-{algorithm}.svg"


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.svg"):
        path.unlink()
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)
