"""Programs of which a page shows only a part: the part runs, with what the page leaves out around it.

All other programs of pages run whole, in test_docs.py; or are what docs/generate_*.py made.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from test_docs import BLOCK, NAMES, ROOT

WHOLE = {*NAMES, "api.md", "errors.md", "notebooks.md"}
FRAGMENTS = [
    (page.name, text)
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page.name not in WHOLE
    for language, text in BLOCK.findall(page.read_text())
    if language == "python"
]

GOING_ON = """
import os, numpy as np, hocket
group, state = hocket.init(), {"step": 0}
first = group

def train(group, state):
    if group is first and group.rank == 2:
        os._exit(3)
    state["step"] += int(group.all_reduce(1))

{fragment}
print(group.size, state["step"])
"""
ELASTIC = """
import numpy as np, hocket
weights = np.ones(3)
{fragment}
print("done")
"""


def fragment(page: str, part: str) -> str:
    (text,) = (text for name, text in FRAGMENTS if name == page and part in text)
    return text


def run(program: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "whole.py").write_text(program)
    line = [sys.executable, "-m", "hocket", "run", *options, "whole.py"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def test_going_on_by_hand(tmp_path: Path) -> None:
    text = fragment("failures.md", "group.recover()")
    done = run(GOING_ON.replace("{fragment}", text), tmp_path, "-n", "3", "--min-ranks", "2")
    assert sorted(done.stdout.splitlines()) == ["2 2"] * 2 + ["lost (2,), after call 0"] * 2, done.stderr


def test_a_function_that_goes_on_by_itself(tmp_path: Path) -> None:
    text = fragment("failures.md", "hocket.elastic(").replace("gradient = ...", 'gradient = state["weights"]')
    done = run(ELASTIC.replace("{fragment}", text), tmp_path, "-n", "2")
    assert (done.returncode, done.stdout) == (0, "done\n" * 2), done.stderr
