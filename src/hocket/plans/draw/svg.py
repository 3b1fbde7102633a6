"""A plan as a space-time diagram in SVG: ranks from left to right, steps from top to bottom, an arrow for each message.

    │       ╱│        solid, into ⊕     folded into what the rank has there
    │    ╱   │        dashed, a head    copied
    │╱       │        beside an arrow   which chunks it carries; the thicker, the more of them
    ⊕        │

Each arrow has a title for who points at it. Colours are those of a light or a dark page, whichever is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

import numpy as np

from ..count import count
from ..plan import Plan
from .scene import Message, Scene, scene

MOST_RANKS = 64
LEFT, TOP, RIGHT, FOOT = 56, 86, 28, 52  # pixels around the diagram
LEAST = 560
GAP, RING = 30, 6.5  # between two steps; the radius of ⊕

STYLE = """\
svg{color-scheme:light dark;font:12px ui-sans-serif,system-ui,"Segoe UI",Helvetica,Arial,sans-serif}
.page{fill:#fff}.band{fill:#f6f7f9}.life{stroke:#d3d8e0}.text{fill:#1c2430}.dim{fill:#667085}
.head{font-size:15px;font-weight:600}.c{text-anchor:middle}.e{text-anchor:end}
.fold,.copy{fill:none}.fold{stroke:#c2410c}.copy{stroke:#0b6bb8;stroke-dasharray:5 3}.copy path{marker-end:url(#tip)}
.tip{fill:#0b6bb8}.dot{stroke:#475467;stroke-width:5;stroke-linecap:round}.plus{fill:#fff;stroke:#c2410c;stroke-width:1.6}
.label{fill:#1c2430;font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.odd .label{stroke:#f6f7f9}
@media(prefers-color-scheme:dark){.page{fill:#11161d}.band{fill:#171e27}.life{stroke:#343e4b}.text,.label{fill:#e6eaf0}
.dim{fill:#96a1b0}.fold,.plus{stroke:#fb923c}.copy{stroke:#5cb8ff}.tip{fill:#5cb8ff}.dot{stroke:#b4bdc9}.plus{fill:#11161d}
.label{stroke:#11161d}.odd .label{stroke:#171e27}}
"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
    'markerUnits="userSpaceOnUse"><path class="tip" d="M0 .8 7.6 4 0 7.2z"/></marker>'
)
PLUS = f'<g id="plus" class="plus"><circle r="{RING}"/><path d="M-4.3 0h8.6M0-4.3v8.6"/></g>'


def svg(plan: Plan) -> str:
    """The picture, as the text of a file. Raises as `scene`, and ValueError beyond 64 ranks."""
    if plan.size > MOST_RANKS:
        raise ValueError(
            f"a picture has room for {MOST_RANKS} ranks, not {plan.size}; draw the algorithm over fewer, such as -n 8, "
            f"or without --svg, which says in words what each step does"
        )
    return _Picture(scene(plan)).text()


class _Picture:
    def __init__(self, made: Scene) -> None:
        self.scene, self.plan = made, made.plan
        self.column = max(36, min(120, 600 // self.plan.size))
        self.width = max(LEFT + RIGHT + self.column * self.plan.size, LEAST)
        self.heights = [_height(step) for step in made.steps]
        self.bottom = TOP + sum(self.heights) + GAP * len(self.heights)

    def text(self) -> str:
        """The whole file."""
        name = escape(f"{self.plan.collective} {self.plan.algorithm} over {self.plan.size} ranks")
        height = self.bottom + FOOT
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height}" '
                f'viewBox="0 0 {self.width} {height}" role="img" aria-label="{name}">',
                f"<title>{name}</title><style>{STYLE}</style>",
                f"<defs>{TIP}{PLUS}</defs>",
                f'<rect class="page" width="{self.width}" height="{height}" rx="8"/>',
                *self._head(),
                *self._steps(),
                *self._legend(),
                "</svg>\n",
            ]
        )

    def x(self, rank: int) -> float:
        """Where a rank's line is."""
        return LEFT + self.column * (rank + 0.5)

    def _head(self) -> Iterator[str]:
        plan, c = self.plan, count(self.plan)
        root = f", root {plan.root}" if plan.root else ""
        ranks, chunks = _many(plan.size, "rank"), _many(plan.chunks, "chunk")
        costs = f"{_many(c.rounds, 'round')} · {_many(c.messages, 'message')} · "
        costs += f"{float(c.bytes_per_rank):.3g} S sent by the busiest rank"
        yield _text(20, 28, f"{plan.collective} {plan.algorithm}", "text head")
        yield _text(20, 48, f"{ranks}{root}, {chunks} · {costs}", "dim")
        for rank in range(plan.size):
            yield _text(self.x(rank), TOP - 10, str(rank) if plan.size > 10 else f"r{rank}", "text c")

    def _steps(self) -> Iterator[str]:
        top = TOP
        for number, (step, height) in enumerate(zip(self.scene.steps, self.heights, strict=True)):
            odd = " odd" * (number % 2)
            if odd:
                yield f'<rect class="band" y="{top}" width="{self.width}" height="{height + GAP}"/>'
            lines = "".join(f"M{self.x(rank):g} {top}v{height + GAP}" for rank in range(self.plan.size))
            yield f'<path class="life" d="{lines}"/>'
            yield _text(20, top + (height + GAP) / 2 + 4, str(number), "dim")
            yield f'<g class="step{odd}">'
            yield from self._step(step, top + GAP * 0.45, top + GAP * 0.45 + height)
            yield "</g>"
            top += height + GAP

    def _step(self, step: tuple[Message, ...], y: float, y2: float) -> Iterator[str]:
        def look(message: Message) -> tuple[bool, int]:
            return message.folds, len(message.chunks)

        for (folds, chunks), those in groupby(sorted(step, key=look), look):
            thick = 1.1 + 1.5 * chunks / self.plan.chunks
            arrows = "".join(self._arrow(message, y, y2) for message in those)
            yield f'<g class="{"fold" if folds else "copy"}" stroke-width="{thick:.2g}">{arrows}</g>'
        dots = "".join(f"M{self.x(rank):g} {y:g}h0" for rank in sorted({message.source for message in step}))
        yield f'<path class="dot" d="{dots}"/>'
        folding = sorted({message.target for message in step if message.folds})
        yield "".join(f'<use href="#plus" x="{self.x(rank):g}" y="{y2:g}"/>' for rank in folding)
        yield from self._labels(step, y, y2)

    def _arrow(self, message: Message, y: float, y2: float) -> str:
        x, x2 = self.x(message.source), self.x(message.target)
        short = (RING if message.folds else 2) / np.hypot(x2 - x, y2 - y)
        end = f"{x2 - short * (x2 - x):.0f} {y2 - short * (y2 - y):.0f}"
        return f'<path d="M{x:g} {y:g}L{end}"><title>{told(message, self.scene)}</title></path>'

    def _labels(self, step: tuple[Message, ...], y: float, y2: float) -> Iterator[str]:
        """Which chunks: once for a rank, where each rank that sends, or each that gets, does so with one and the same;
        else beside each arrow, where these are not too many."""
        if self.plan.chunks == 1:
            return
        sent, got = _by("source", step), _by("target", step)
        alone = all(len(those) == 1 for those in (*sent.values(), *got.values()))
        if not alone and _alike(sent):
            for rank, those in sent.items():  # to the right, as what the step before left there is to the left
                yield _text(self.x(rank) + 7, y - 5, self._said(those[0]), "label")
        elif not alone and _alike(got):
            for rank, those in got.items():
                yield _text(self.x(rank) - 9, y2 + 15, self._said(those[0]), "label e")
        elif len(step) <= 3 * self.plan.size:
            for message in step:
                x, x2 = self.x(message.source), self.x(message.target)
                far = abs(message.target - message.source)
                near = (0.68 if far == 1 else 0.34) / far  # so many columns from the end with fewer arrows
                at = 1 - near if len(sent[message.source]) > len(got[message.target]) else near
                yield _text(x + at * (x2 - x), y + at * (y2 - y) + 4, self._said(message), "label c")

    def _said(self, message: Message) -> str:
        return self.scene.said(message.chunks).replace(" ", "")

    def _legend(self) -> Iterator[str]:
        y = self.bottom + 30
        yield f'<g class="fold" stroke-width="1.6"><path d="M20 {y}H{56 - RING}"/></g>'
        yield f'<use href="#plus" x="56" y="{y}"/>'
        yield _text(70, y + 4, "folded into what is there", "dim")
        yield f'<g class="copy" stroke-width="1.6"><path d="M240 {y}H276"/></g>'
        yield _text(286, y + 4, "copied", "dim")
        if self.plan.chunks > 1:
            yield _text(360, y + 4, "numbers: which chunks", "dim")


def _by(end: str, step: tuple[Message, ...]) -> dict[int, list[Message]]:
    """The messages by the rank at one of their ends."""
    found: dict[int, list[Message]] = {}
    for message in step:
        found.setdefault(getattr(message, end), []).append(message)
    return found


def _alike(ends: dict[int, list[Message]]) -> bool:
    """Whether all arrows at each of these ends carry the same chunks."""
    return all(len({message.chunks for message in those}) == 1 for those in ends.values())


def _height(step: tuple[Message, ...]) -> int:
    """Pixels for a step: more where many arrows leave one rank, or meet in one, and where they go far."""
    fan = max(map(len, (*_by("source", step).values(), *_by("target", step).values())), default=1)
    far = max((abs(message.target - message.source) for message in step), default=1)
    return 34 + 14 * min(fan - 1, 7) + 3 * min(far, 8)


def told(message: Message, made: Scene) -> str:
    """A message in words: `r0 → r1: 2 folded`."""
    return (
        f"r{message.source} → r{message.target}: {made.said(message.chunks)} {'folded' if message.folds else 'copied'}"
    )


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>'
