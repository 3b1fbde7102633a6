"""Plans in the formats of others: MSCCL's XML, hocket's own JSON, and GOAL for simulators.

msccl.py         the XML as values: gpus, threadblocks, steps; every attribute checked
msccl_read.py    what the threadblocks do, as the fronts of a plan
msccl_write.py   a plan as threadblocks, with the dependencies between them
goal.py          the messages of a plan as a schedule for LogGOPSim and its kin
goal_read.py     a schedule as a plan: who hears of whom
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ...errors import PlanError
from ..plan import Plan
from .goal_read import schedule
from .msccl import parse
from .msccl_read import interpreted

ENDINGS = (".xml", ".json", ".goal")  # of a file that holds one plan


def read_plan(file: str | PathLike[str], root: int | None = None) -> Plan:
    """The plan in a file: MSCCL's XML, the JSON that `Plan.to_json` and `hocket plan export` write, or, where the file
    ends in .goal, a schedule in GOAL: a barrier, since it says nothing of the data.

    `root` is for an XML that does not tell the root of its collective; by default it is 0. A schedule that has one is a
    broadcast. The plan is not proved yet:
    `hocket.check` does that, and so does each call that is told to use it.

    Raises OSError where the file cannot be read, and PlanError, with the place, where it is no plan.
    """
    text = Path(file).read_bytes().decode("utf-8", "replace")
    try:
        if text.lstrip().startswith("<"):
            return interpreted(parse(text, root))
        if Path(file).suffix == ".goal":
            return schedule(text, root)
        return Plan.from_json(text)
    except PlanError as error:
        raise PlanError(f"{Path(file).name}: {error}") from error
