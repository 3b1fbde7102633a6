"""Plans as text. The drawings in golden/ are there to be looked at whenever one changes."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import hocket.plans.draw
import hocket.plans.draw.summary
import hocket.plans.draw.terminal
from hocket.plans.algorithms import ALGORITHMS, plan
from hocket.plans.draw import draw, picture

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    collective, algorithm, size, root = path.stem.split("-")
    assert draw(plan(collective, algorithm, int(size), int(root))) + "\n" == path.read_text()


@pytest.mark.parametrize("module", [hocket.plans.draw, hocket.plans.draw.terminal, hocket.plans.draw.summary])
def test_the_example_in_the_docstring(module: object) -> None:
    done = doctest.testmod(module, extraglobs={"plan": plan})
    assert (done.attempted, done.failed) == (1, 0)


def test_everything_can_be_drawn() -> None:
    for name in ALGORITHMS:
        for size in (1, 2, 3, 17):
            made = plan(*name, size)
            text = draw(made, most=3)
            assert text.startswith(f"{name[0]} {name[1]}: size {size}")
            assert (picture(made) == "") == (size in (1, 17))


def test_long_steps_and_long_folds_are_cut() -> None:
    text = draw(plan("all_reduce", "one_shot", 40), most=2)
    assert text.endswith(
        "0  r0.out[0] <- r0.inp[0] + r1.inp[0] + … 38 more   r1.out[0] <- r0.inp[0] + r1.inp[0] + … 38 more   … 38 more"
    )
