"""Where figures are kept: one file in benchmarks/figures for each kind of machine, named by its processor and cores.

    {"machine": {...}, "date": ..., "taken": {"all_reduce 2": ["2026-11-23T22:46+00:00", "6343055"], ...},
     "all_reduce 2": [
    {"collective": "all_reduce", "library": "hocket 0.1.0", "key": "hocket", "ranks": 2, "bytes": 8, ...},
    ...

A row has a line of its own, without what is as in USUAL, so that a difference can be read. `taken` says when a section
was measured, and at which commit. What was measured by other programs has `remarks`, which say how.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

Found = dict[str, Any]
FOLDER = Path(__file__).resolve().parent / "figures"
USUAL: Found = {
    **{"hosts": 1, "rate": "", "dtype": "float32", "op": "sum", "in_place": False, "memory": "private"},
    **{"form": "call", "batch": 1, "algorithm": "", "samples": 0, "p50_us": math.nan, "p99_us": math.nan},
    **{"algbw": math.nan, "busbw": math.nan, "wrong": 0, "lacks": False, "error": ""},
}
DIGITS = 7  # of a figure: so that none that is shown depends on it


def place(machine: Found, folder: Path = FOLDER) -> Path:
    """The file of machines like that one: "AMD EPYC (1 MiB L2)" with 2 cores is amd-epyc-1-mib-l2-2-cores.json."""
    words = re.sub(r"\((r|tm)\)", " ", f"{machine['processor']} {machine['cores']} cores".lower())
    return folder / f"{'-'.join(re.findall(r'[a-z0-9.]+', words))}.json"


def read(path: Path) -> Found:
    """What was found there, every row with all that it has."""
    found: Found = json.loads(path.read_text())
    return {key: [USUAL | row for row in value] if is_rows(value) else value for key, value in found.items()}


def elsewhere(own: Path) -> list[Found]:
    """What was found on machines of other kinds, by the names of their files."""
    return [read(path) for path in sorted(own.parent.glob("*.json")) if path.name != own.name]


def keep(found: Found, path: Path) -> None:
    """Write it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {_text(value)}" for key, value in found.items()) + "\n}\n")


def commit() -> str:
    """Of this checkout, with a plus where hocket's sources were changed since; empty where there is no git."""
    try:
        head = _git("rev-parse", "--short=7", "HEAD")
        return head.stdout.strip() + "+" * _git("diff", "--quiet", "HEAD", "--", "src", "csrc", check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return ""


def measured_at(found: Found) -> tuple[str, str]:
    """When these figures were taken, from the first to the last, and at which commits."""
    taken = found.get("taken", {}).values()
    dates = sorted({date for date, _ in taken}) or [found["date"]]
    commits = dict.fromkeys(commit for _, commit in taken if commit)
    return " to ".join(dict.fromkeys([dates[0], dates[-1]])), ", ".join(commits) or "not known"


def _git(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=FOLDER.parents[1], capture_output=True, text=True, check=check)


def is_rows(value: Any) -> bool:
    """Whether it is rows of a table."""
    return isinstance(value, list) and any(isinstance(row, dict) for row in value)


def _text(value: Any) -> str:
    if not is_rows(value):
        return json.dumps(value, ensure_ascii=False)
    return "[\n" + ",\n".join(json.dumps(_short(row), ensure_ascii=False) for row in value) + "\n]"


def _short(row: Found) -> Found:
    cut = {key: _rounded(value) for key, value in row.items()}
    return {key: value for key, value in cut.items() if key not in USUAL or not _same(value, USUAL[key])}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
