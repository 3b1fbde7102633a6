"""docs/errors.md shows what is printed: each program of it is run again."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
GENERATOR = runpy.run_path(str(DOCS / "generate_errors.py"))
TRIES = 5  # a rank may be late, on a busy machine, and is somewhere else then


@pytest.mark.parametrize("case", GENERATOR["CASES"], ids=lambda case: case.file)
def test_a_mistake_looks_like_that(case: object, tmp_path: Path) -> None:
    page = (DOCS / "errors.md").read_text()
    texts = []
    for _ in range(TRIES):
        texts.append(GENERATOR["section"](case, tmp_path))
        if texts[-1] in page:
            return
    pytest.fail(f"run: python docs/generate_errors.py\n{texts[-1]}")


def test_the_page_has_nothing_else() -> None:
    page = (DOCS / "errors.md").read_text()
    assert page.startswith(GENERATOR["HEAD"])
    assert page.count("\n## ") == len(GENERATOR["CASES"])
