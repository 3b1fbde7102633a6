"""docs/torch.md says what the tests say."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_what_its_generator_makes() -> None:
    page = runpy.run_path(str(DOCS / "generate_torch.py"))["page"]()
    assert page == (DOCS / "torch.md").read_text(), "run: python docs/generate_torch.py"
