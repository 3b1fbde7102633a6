"""A found plan as a file: a short algorithm, as users write them, which `FILE.py:found` names wherever one is taken."""

from __future__ import annotations

import re
import textwrap
from itertools import pairwise

from .search import Entry

WORDS = {
    "collectives": ("all_reduce", "between", "exchange", "pipelined", "reduce_scatter", "reduce_to_root", "spread_out"),
    "spreads": ("along", "dealt", "grid", "heap", "hops", "knomial", "named", "split", "steps"),
}
SHORT = 16  # letters
TEMPLATE = '''"""{about}

{title}
"""

{imports}


def found(n):
    """Proved over {size} ranks, with {rounds} rounds."""
    if n != {size}:
        raise ValueError(f"found is for {size} ranks, not for {{n}}")
    return {code}
'''


def text(entry: Entry, about: str) -> str:
    """The file of a found plan. `about` says in a sentence where it comes from."""
    used = set(re.findall(r"\b([a-z_]+)\(", entry.code))
    lines = [
        f"from hocket.search.{module} import {', '.join(sorted(used.intersection(names)))}"
        for module, names in WORDS.items()
        if used.intersection(names)
    ]
    if "onto" in used:
        lines.insert(0, "from hocket.plans.algorithms.combine import onto")
    return TEMPLATE.format(
        about=textwrap.fill(_quoted(about), 112),
        title=textwrap.fill(_quoted(entry.title), 112),
        imports="\n".join(lines),
        size=entry.plan.size,
        rounds=entry.took.rounds,
        code=laid_out(entry.code).replace("\n", "\n    "),
    )


def laid_out(code: str, width: int = 104) -> str:
    """A call or a list in several lines where it is longer than one: each part on its own, short ones side by side."""
    if len(code) <= width or code[-1] not in ")]":
        return code
    begin, parts = _parts(code)
    if max(map(len, parts)) < SHORT:
        inside = textwrap.fill(", ".join(parts) + ",", width - 4, break_long_words=False)
    else:
        inside = "\n".join(laid_out(part, width - 4) + "," for part in parts)
    return f"{code[: begin + 1]}\n{textwrap.indent(inside, '    ')}\n{code[-1]}"


def _parts(code: str) -> tuple[int, list[str]]:
    """Where the last bracket of all was opened, and what stands in it, between its commas."""
    depth, ends = 0, [len(code) - 1]
    for at in range(len(code) - 1, -1, -1):
        depth += (code[at] in ")]") - (code[at] in "([")
        if depth == 0:
            break
        if code[at] == "," and depth == 1:
            ends.insert(0, at)
    return at, [code[a + 1 : b].strip() for a, b in pairwise([at, *ends])]


def _quoted(words: str) -> str:
    return words.replace("\\", "/").replace('"', "'")
