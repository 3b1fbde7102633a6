"""Pictures of plans: what is drawn is read back, and compared with the moves."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from hocket.errors import PlanError
from hocket.plans import copy, inp, out, tmp
from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.collectives import COLLECTIVES
from hocket.plans.draw.scene import Message, scene
from hocket.plans.draw.summary import summary
from hocket.plans.draw.svg import svg, told
from hocket.plans.draw.terminal import diagram
from hocket.plans.plan import REDUCE, Plan

SIZES = (1, 2, 3, 5, 8)
NAMES = [*ALGORITHMS]

SVG = "{http://www.w3.org/2000/svg}"


def followed(made: Plan) -> list[list[Message]]:
    """The messages of each step, said once more, chunk by chunk in plain Python."""
    steps, was = [], dict[tuple[int, int, int], int]()
    for front in made.fronts():
        moves = [
            (verb, (db, dr, dc + i), (sb, sr, sc + i))
            for verb, db, dr, dc, sb, sr, sc, k in np.stack(front.columns(), axis=1).tolist()
            for i in range(k)
        ]
        folded = {dst for verb, dst, _ in moves if verb == REDUCE}
        carried = [(dst, src, was.get(src, src[2] % made.chunks)) for _, dst, src in moves]
        found = dict[tuple[int, int, bool], set[int]]()
        for dst, src, chunk in carried:
            was[dst] = chunk
            if dst[1] != src[1]:
                found.setdefault((src[1], dst[1], dst in folded), set()).add(chunk)
        steps.append([Message(*key, tuple(sorted(chunks))) for key, chunks in sorted(found.items())])
    return steps


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_the_messages_of_a_scene(name: tuple[str, str]) -> None:
    for size in SIZES:
        for root in {0, size - 1} if COLLECTIVES[name[0]].rooted else {0}:
            made = plan(*name, size, root)
            assert [[*step] for step in scene(made).steps] == followed(made)


def test_a_chunk_keeps_its_number_wherever_it_waits() -> None:
    """In tmp, too: a block of bruck's is called by the rank that it goes to, on all of its way."""
    for step in scene(plan("all_to_all", "bruck", 8)).steps:
        for message in step:
            assert all((chunk - message.source) % 8 for chunk in message.chunks)  # nobody sends away what is its own


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_the_diagram_can_be_read_back(name: tuple[str, str]) -> None:
    for size in SIZES[1:]:
        made = scene(plan(*name, size))
        lines = diagram(made.plan, 80).splitlines()
        column = lines[0].index("r1") - lines[0].index("r0")
        steps: list[set[tuple[int, int, bool, str]]] = []
        for line in lines[1 : lines.index("")]:
            assert len(line) <= 80
            if line[:6].strip():
                assert int(line[:6]) == len(steps)
                steps.append(set())
            steps[-1] |= read(line[6:], column)
        for step, drawn in zip(made.steps, steps, strict=True):
            assert len(step) == len(drawn)
            for message in step:
                said = made.said(message.chunks).replace(" ", "")
                said = said if len(said) <= column - 2 else f"×{len(message.chunks)}"
                assert (message.source, message.target, message.folds, said) in drawn


def read(line: str, column: int) -> set[tuple[int, int, bool, str]]:
    """The messages in one line of a diagram: source, target, whether it folds, which chunks."""
    found = set()
    for star in re.finditer(r"[●⊕○][^ │]*", line):
        marks = [
            ((star.start() + m.start()) // column, *m.groups()) for m in re.finditer("([●⊕○])([^─┼●⊕○]*)", star[0])
        ]
        senders = [mark for mark in marks if mark[1] == "●"]
        takers = [mark for mark in marks if mark[1] != "●"]
        assert min(len(senders), len(takers)) == 1
        for source, _, sent in senders:
            found |= {(source, target, mark == "⊕", sent or got) for target, mark, got in takers}
    return found


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_an_svg_has_an_arrow_for_each_message(name: tuple[str, str]) -> None:
    for size in SIZES:
        made = scene(plan(*name, size))
        drawn = ElementTree.fromstring(svg(made.plan))
        steps = [node for node in drawn.iter(f"{SVG}g") if node.get("class", "").startswith("step")]
        for step, node in zip(made.steps, steps, strict=True):
            arrows = {
                path[0].text: (group.get("class"), [float(at) for at in re.findall(r"[\d.]+", path.get("d", ""))])
                for group in node
                for path in group
                if group.tag == f"{SVG}g"
            }
            assert len(arrows) == len(step)
            for message in step:
                kind, (x, _, x2, _) = arrows[told(message, made)]
                assert (kind == "fold", x < x2) == (message.folds, message.source < message.target)


def test_an_svg_stays_within_its_frame() -> None:
    for name in NAMES:
        for size in (1, 8):
            drawn = ElementTree.fromstring(svg(plan(*name, size)))
            width, height = int(drawn.get("width", "")), int(drawn.get("height", ""))
            for node in drawn.iter(f"{SVG}text"):
                assert 0 < float(node.get("x", "")) < width
                assert 0 < float(node.get("y", "")) < height


@pytest.mark.parametrize(
    ("name", "size", "lines"),
    [
        (("all_reduce", "ring"), 100, ["0-98 100 r → r+1 1, folded", "99-197 100 r → r+1 1, copied"]),
        (("all_reduce", "one_shot"), 20, ["0 380 all → all 1, folded"]),
        (("gather", "direct"), 33, ["0 32 32 ranks → r0 1, copied"]),
        (("broadcast", "binomial_tree"), 17, [
            "0 1 r0 → r16 1, copied",
            "1 1 r0 → r8 1, copied",
            "2 2 r → r+4 of 2 ranks 1, copied",
            "3 4 r → r+2 of 4 ranks 1, copied",
            "4 8 r → r+1 of 8 ranks 1, copied",
        ]),
        (("all_reduce", "naive"), 16, [
            "0 15 15 ranks → r0 1, copied",
            "1 0 each rank within itself",
            "2 15 r0 → 15 ranks 1, copied",
        ]),
        (("reduce_scatter", "recursive_halving"), 16, [
            f"{k} 16 r ↔ r xor {1 << k} {8 >> k}, folded" for k in range(4)
        ]),
    ],
)  # fmt: skip
def test_more_ranks_than_a_diagram_holds_are_told_in_words(name: tuple[str, str], size: int, lines: list[str]) -> None:
    said = [" ".join(line.split()) for line in diagram(plan(*name, size)).splitlines()[1:]]
    assert said == lines


def test_what_no_picture_holds() -> None:
    assert diagram(plan("all_reduce", "ring", 1)) == "No rank sends anything to another."
    with pytest.raises(ValueError, match=r"room for 64 ranks, not 65; .* -n 8"):
        svg(plan("all_reduce", "ring", 65))
    with pytest.raises(ValueError, match="more than the 4096 messages"):
        scene(plan("all_to_all", "direct", 65))
    beyond = plan("broadcast", lambda n: [copy(out(n), out(0))], 3)
    for picture in (svg, diagram, summary):
        with pytest.raises(PlanError, match="none of the ranks 0 to 2"):
            picture(beyond)


def test_a_step_reads_before_it_writes() -> None:
    def rotate(n: int) -> list[object]:
        c = np.arange(n)
        return [copy(tmp((c + 1) % n, 0), inp(c, c))] + [copy(tmp((c + 1) % n, 0), tmp(c, 0))] * 2

    carried = [[message.chunks for message in step] for step in scene(plan("all_reduce", rotate, 3)).steps]
    assert carried == [[(0,), (1,), (2,)], [(2,), (0,), (1,)], [(1,), (2,), (0,)]]


def test_steps_in_which_nothing_is_sent_are_there() -> None:
    made = plan("all_reduce", "naive", 3)
    assert [len(step) for step in scene(made).steps] == [2, 0, 2]
    assert "1     │" in diagram(made)
