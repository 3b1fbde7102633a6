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


def test_elastic_digits_through_a_storm() -> None:
    """One is killed, one raises, one is stopped: the weights are those of a quiet run, up to the order of a sum."""
    pytest.importorskip("sklearn", reason="the data of the example comes with scikit-learn: pip install hocket[demo]")
    options = ["4", "--max-restarts", "9", str(EXAMPLES / "elastic_digits.py"), "--storm"]
    command = [sys.executable, *HOCKET_RUN, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert re.search(r"rank 1 \(pid \d+\) failed: killed by SIGKILL; started again \(1 of 9\)", done.stderr), (
        done.stderr
    )
    assert re.search(r"rank 0 \(pid \d+\) failed: exit code 1; started again \(2 of 9\)", done.stderr), done.stderr
    for first in (60, 140, 220):  # the step that somebody was lost in is done once more, by fewer
        assert f"goes on from step {first}\n" in done.stdout, done.stdout
    accuracy = re.search(r"test accuracy +([\d.]+)%", done.stdout)
    alone = re.search(r"of a single process +([\d.]+)%; no weight differs by more than ([\d.e+-]+)\n", done.stdout)
    assert accuracy, done.stdout
    assert alone, done.stdout
    assert float(accuracy[1]) == float(alone[1]) >= 95
    assert float(alone[2]) < 1e-10


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


def test_elastic_ddp() -> None:
    pytest.importorskip("torch", reason="torch's training: make .venv/torch")
    pytest.importorskip("sklearn", reason="the data of the example comes with scikit-learn: pip install hocket[demo]")

    def trained(*command: str) -> tuple[str, str, float]:
        whole = [sys.executable, *command]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        accuracy = re.search(r"test accuracy +([\d.]+)%", done.stdout)
        assert accuracy, done.stdout
        return done.stdout, done.stderr, float(accuracy[1])

    program = str(EXAMPLES / "elastic_ddp.py")
    _, _, undisturbed = trained(program)
    assert undisturbed >= 95
    output, errors, accuracy = trained(*HOCKET_RUN, "3", "--min-ranks", "1", program, "--lose", "40")
    assert "killed by SIGKILL; the others go on (2 ranks, at least 1 is needed)" in errors
    assert re.search(r"^step 40: lost rank 2 \(pid \d+ on .*\); ranks: 2\n", output), output
    assert "bit-identical, ranks: 2" in output
    assert abs(accuracy - undisturbed) < 1  # it learnt from the same images, up to rounding

    output, errors, accuracy = trained(*HOCKET_RUN, "3", "--max-restarts", "3", program, "--lose", "40", "--all")
    assert "killed by SIGKILL; started again (1 of 3)" in errors
    assert re.search(r"^step \d+: others have come; ranks: 3\n", output, re.MULTILINE), output
    assert "bit-identical, ranks: 3" in output
    assert abs(accuracy - undisturbed) < 1
