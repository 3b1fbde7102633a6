"""docs/algorithms.md and its pictures say what the plans say."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_what_its_generator_makes() -> None:
    page = runpy.run_path(str(DOCS / "generate_algorithms.py"))["page"]()
    assert page == (DOCS / "algorithms.md").read_text(), "run: python docs/generate_algorithms.py"


def test_the_pictures_are_what_their_generator_makes() -> None:
    made = runpy.run_path(str(DOCS / "generate_algorithms.py"))["pictures"]()
    there = {path.name: path.read_text() for path in (DOCS / "pictures").iterdir()}
    assert there == made, "run: python docs/generate_algorithms.py"
    assert sum(map(len, there.values())) < 600_000
