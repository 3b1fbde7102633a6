"""The examples do what they say, alone and in several processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
HOCKET_RUN = ["-m", "hocket", "run", "-n"]


@pytest.mark.parametrize("launch", [[], [*HOCKET_RUN, "2"], [*HOCKET_RUN, "4"]], ids=["alone", "n=2", "n=4"])
def test_train_digits(launch: list[str]) -> None:
    pytest.importorskip("sklearn", reason="the data of the example comes with scikit-learn: pip install hocket[demo]")
    command = [sys.executable, *launch, str(EXAMPLES / "train_digits.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    ranks = int(launch[-1]) if launch else 1

    accuracy = re.search(r"test accuracy +([\d.]+)%", done.stdout)
    assert accuracy, done.stdout
    assert float(accuracy[1]) >= 95
    assert re.search(rf"bit-identical: blake2 [0-9a-f]{{16}} on {ranks} of {ranks}\n", done.stdout), done.stdout
    # In float64 the mean over ranks rounds differently from one sum, and by no more than that.
    difference = re.search(r"more than ([\d.e+-]+)\n", done.stdout)
    assert difference, done.stdout
    assert float(difference[1]) < 1e-10
    assert re.search(r"spent communicating +\d+% of the time", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("ranks", "program"), [(1, ["tclsh"]), (4, ["tclsh"]), (4, ["hocket", "tclsh"])], ids=["alone", "n=4", "n=4 inside"]
)
def test_train_tcl(ranks: int, program: list[str]) -> None:
    if shutil.which("tclsh") is None:
        pytest.skip("there is no tclsh here: apt install tcl")
    command = [sys.executable, *HOCKET_RUN, str(ranks), *program, str(EXAMPLES / "train.tcl")]
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{ranks} ranks, 200 steps: y = 3.000000 x + -1.000000, on all ranks the same\n"
