"""docs/tcl.md says what the commands say, and its programs print what it says, both ways."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from tclsh import Way

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROGRAM = re.compile(r"^```tcl\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```$", re.MULTILINE)


def test_the_table_is_what_its_generator_makes() -> None:
    page = runpy.run_path(str(DOCS / "generate_tcl.py"))["page"]()
    assert page == (DOCS / "tcl.md").read_text(), "run: python docs/generate_tcl.py"


def test_its_programs_print_what_it_says(way: Way, tmp_path: Path) -> None:
    """All of them as one, each in a namespace of its own."""
    programs = PROGRAM.findall((DOCS / "tcl.md").read_text())
    assert len(programs) == 3
    script = "".join(f"namespace eval program{n} {{{text}}}\n" for n, (text, _) in enumerate(programs))
    code, out, err = way.run(script, tmp_path)
    assert (code, err) == (0, "")
    assert out == "".join(expected for _, expected in programs)
