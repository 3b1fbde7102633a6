"""Figures are kept by kind of machine, come back as they were, and stand side by side on the page."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
MACHINE = {"processor": "Intel(R) Xeon(R) 6 CPU @ 2.10GHz", "cores": 2, "kernel": "Linux 7"}


def row(key: str, nbytes: int, p50: float, **more: Any) -> dict[str, Any]:
    from kept import USUAL

    own = {"collective": "all_reduce", "library": f"{key} 1", "key": key, "ranks": 2, "bytes": nbytes}
    return USUAL | own | {"count": nbytes // 4, "samples": 9, "p50_us": p50} | more


def test_a_file_is_named_by_processor_and_cores(tmp_path: Path) -> None:
    from kept import place

    assert place(MACHINE, tmp_path) == tmp_path / "intel-xeon-6-cpu-2.10ghz-2-cores.json"
    assert place(MACHINE | {"cores": 96}, tmp_path) != place(MACHINE, tmp_path)


def test_processors_of_one_name_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kept import place

    from hocket.bench import show

    def named(family: str, l2: int) -> str:
        facts = {"processor": "AMD EPYC", "family": family, "cores": 2, "l2": l2}
        monkeypatch.setattr(show.saved, "machine", lambda: facts)
        return place(show.machine() | {"cores": 2}, tmp_path).name

    assert named("25", 1 << 20) == "amd-epyc-family-25-1-mib-l2-2-cores.json"
    assert named("26", 1 << 20) == "amd-epyc-family-26-1-mib-l2-2-cores.json"
    assert named("25", 1 << 19) == "amd-epyc-family-25-512-kib-l2-2-cores.json"
    assert named("", 1 << 20) == "amd-epyc-1-mib-l2-2-cores.json"


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    from kept import elsewhere, keep, read

    rows = [row("hocket", 8, 0.123456789, in_place=True, batch=32), row("gloo", 8, math.nan, error='it "broke"\n')]
    found = {"machine": MACHINE, "all_reduce 2": rows, "none": [], "waiting 2": {"gloo 1": 0.25}, "overlap": "µ\n"}
    keep(found, here := tmp_path / "new" / "a.json")
    again = read(here)
    assert list(again) == list(found)
    assert [again[key] for key in found if key != "all_reduce 2"] == [
        found[key] for key in found if key != "all_reduce 2"
    ]
    for got, want in zip(again["all_reduce 2"], rows, strict=True):
        assert got.keys() == want.keys()
        for key, value in want.items():
            assert got[key] == (pytest.approx(value, rel=1e-6, nan_ok=True) if isinstance(value, float) else value), key
    assert elsewhere(here) == []
    keep({"machine": MACHINE | {"cores": 4}}, tmp_path / "new" / "b.json")
    assert [found["machine"]["cores"] for found in elsewhere(here)] == [4]


def test_machines_stand_side_by_side() -> None:
    from cpus import cpus

    here = {
        "machine": {**MACHINE, "processor": "A"},
        "taken": {"all_reduce 2": ["2026-02-01", "abc"], "limits 2": ["2026-01-01", "abc"]},
        "all_reduce 2": [row("hocket", 8, 1.0), row("mpich", 8, 3.0), row("impi", 8, 2.0), row("write_back", 8, 0.5)],
    }
    there = {
        "machine": {**MACHINE, "processor": "B"},
        "date": "long ago",
        "remarks": "By hand.",
        "all_reduce 2": [
            row("hocket", 8, 4.0, samples=0),  # as of times that were written down by hand
            row("gloo", 8, 2.0, samples=0),
            row("hocket", 1024, 5.0),
            row("gloo", 1024, math.nan),
        ],
    }
    page = "\n".join(cpus(here, [there]))
    for line in (
        "| A | 2 | Linux 7 | 2026-01-01 to 2026-02-01 | abc |",
        "| B | 2 | Linux 7 | long ago | not known |",
        "| 8 B | 1.00 µs | 2.00 µs (Intel MPI) | 2.00 | 4.00 µs | 2.00 µs (gloo) | 0.500 |",
        "| 1 KiB | - | - | - | 5.00 µs | - | - |",
        "**B.** By hand.",
    ):
        assert line in page.splitlines(), page
    assert "4 ranks" not in page
    assert cpus(here, []) == []


@pytest.mark.parametrize("named", [[], ["figures/of-another-2-cores.json"]])
def test_a_page_needs_figures(tmp_path: Path, named: list[str]) -> None:
    for path in BENCHMARKS.glob("*.py"):
        shutil.copy(path, tmp_path)
    command = [sys.executable, tmp_path / "report.py", "--page-only", *named, "--output", tmp_path / "docs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "make bench" in done.stderr
    assert all(name in done.stderr for name in named)
    assert not (tmp_path / "docs").exists()
