"""What a storm has found, kept: a file for each finding, written as it is found, whatever becomes of the storm."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from scenario import Trial

FOLDER = Path(__file__).resolve().parents[2] / "build" / "torture"


def keep(
    folder: Path, name: str, again: str, trial: Trial, findings: Sequence[tuple[str, str]], story: Sequence[str]
) -> Path:
    """Write all that is known of a trial that went wrong into a new file of the folder, whose name begins with `name`:
    the trial, how to play it `again`, its findings, and its `story`, a line for what each rank reported."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"trial {trial.number}: {trial}", repr(trial), f"again: {again}", time.strftime("%F %T %z"), ""]
    lines += [f"{kind}  {text}" for kind, text in findings] + ["", *story, ""]
    for number in itertools.count(1):
        path = folder / f"{name}-{trial.number}-{number}.txt"
        try:
            with path.open("x") as file:  # another storm may write there, too
                file.write("\n".join(lines))
            return path
        except FileExistsError:
            continue
    raise AssertionError
