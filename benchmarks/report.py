"""Measures everything that docs/performance.md says, and writes it, with its plot: `make bench`.

    python benchmarks/report.py [--only all_reduce others ...] [--quick] [--output FOLDER] [--page-only [FILE]]

All figures of one comparison are taken in the same minute, the libraries taking turns. They are kept in
benchmarks/figures, in a file for each kind of machine (kept.py); `--page-only` writes the page anew from there, as that
of the machine at hand, or of the one whose file is named.
`--quick` is for trying this program out: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cpus import cpus
from kept import commit, elsewhere, keep, place, read
from page import all_rows, write
from rich.console import Console

from hocket.bench.hosts import hosts, reason
from hocket.bench.peers import FLOORS, LIBRARIES, LIMITS, ROUNDS, TORCH_LIBRARIES, Peer
from hocket.bench.peers.data import OBJECTS, SCANS, TRAINING, Task
from hocket.bench.session import LibraryFailed, Session
from hocket.bench.show import machine
from hocket.bench.sweep import Effort, Entry, Field, take_turns, task_for

ROOT = Path(__file__).resolve().parent.parent
SIZES = [8, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20]
WORLDS = (2, 4)
CROWDS = (8, 16)
LAYOUTS = ((2, 1), (2, 2))  # hosts, and the ranks of each
TORCH_LAYOUT = (2, 2)
PROTECTED = (8, 256 << 10, 16 << 20)
SHAPED, RATE = (2, 3, 4), "1gbit"
# Where the peers have a call in place, it is that one which is compared: MPI and gloo have no other broadcast.
IN_PLACE = {"reduce_scatter": False, "all_gather": False, "broadcast": True, "reduce": True, "scatter": False}
IN_PLACE |= {"gather": False, "all_to_all": False, "barrier": False, "send_recv": False}
FORMS: dict[str, dict[str, str]] = {
    "mean": {"op": "mean"},
    "custom ufunc (fmax)": {"op": "fmax"},
    "async": {"form": "async"},
    "persistent": {"form": "persistent"},
}
FEW_SIZES = (8, 256 << 10)
CAREFUL = Effort(rounds=7, again=5, times=30, seconds=0.6)
BRIEF = Effort(rounds=5, again=5, times=20, warmup=4, seconds=0.3)
Result = dict[str, Any]
Rows = list[Result]


def all_reduce(field: Field, sizes: list[int], quick: bool) -> Result:
    """The goals: float32, sum, in place, private buffers."""
    effort = least(CAREFUL, quick)
    rows = [
        row
        for size in finer(sizes, quick)
        for row in field.compare(task_for("all_reduce", size, field.ranks, effort, in_place=True), effort)
    ]
    return {f"all_reduce {field.ranks}": rows}


def finer(sizes: list[int], quick: bool) -> list[int]:
    """With one between the long ones, where it ends to matter whether a vector fits into the second-level cache; not to
    try this program out."""
    return sizes if quick else sorted({*sizes, 1 << 20})


def others(field: Field, sizes: list[int], quick: bool) -> Result:
    """All other collectives, at the same sizes."""
    effort, rows = least(BRIEF, quick), []
    for name, in_place in IN_PLACE.items():
        for size in finer(sizes, quick) if name != "barrier" else [0]:
            rows += field.compare(task_for(name, size, field.ranks, effort, in_place=in_place), effort)
    return {f"others {field.ranks}": rows}


def forms(field: Field, sizes: list[int], quick: bool) -> Result:
    """The all-reduce with other operators and in other forms."""
    effort, rows = least(BRIEF, quick), []
    for name, options in FORMS.items():
        for size in sizes:
            task = task_for("all_reduce", size, field.ranks, effort, in_place=True, **options)
            rows += [{**row, "label": name} for row in field.compare(task, effort)]
    return {f"forms {field.ranks}": rows}


def scans(field: Field, sizes: list[int], quick: bool) -> Result:
    """Scans, and the persistent forms of other collectives, out of place and in place."""
    effort, rows = least(CAREFUL, quick), []
    cases = [(name, "call") for name in SCANS]
    cases += [(name, "persistent") for name in ("scan", "reduce_scatter", "all_gather", "broadcast")]
    for name, form in cases:
        for in_place in (False, True) if name != "broadcast" else (True,):
            for size in FEW_SIZES[: 1 if quick else 2]:
                task = task_for(name, size, field.ranks, effort, in_place=in_place, form=form)
                label = f"{name}{', persistent' * (form != 'call')}{', in place' * in_place}"
                rows += [{**row, "label": label} for row in field.compare(task, effort)]
    return {f"scans {field.ranks}": rows}


def objects(field: Field, sizes: list[int], quick: bool) -> Result:
    """Pickled objects of 1 KiB."""
    effort = least(CAREFUL, quick)
    return {
        f"objects {field.ranks}": [
            row for name in OBJECTS for row in field.compare(task_for(name, 1 << 10, field.ranks, effort), effort)
        ]
    }


def arena(field: Field, sizes: list[int], quick: bool) -> Result:
    """Private and arena buffers beside the fused kernel, which takes two ranks."""
    if field.ranks != 2:
        return {}
    effort, rows = least(CAREFUL, quick), []
    for size in sizes[-2:]:
        plain = task_for("all_reduce", size, 2, effort, in_place=True)
        tasks = {
            "fused kernel": replace(plain, memory="shared", form="fused", check=0, batch=1),
            "arena": replace(plain, memory="arena", batch=1),
            "staged by hand": replace(plain, form="staged", check=0, batch=1),
            "private": replace(plain, batch=1),
        }
        rows += together(field, tasks, effort)
    return {"arena": rows}


def protected(field: Field, sizes: list[int], quick: bool) -> Result:
    """What it costs that a call that fails leaves its array as it was, with two ranks."""
    if field.ranks != 2:
        return {}
    effort = least(CAREFUL, quick)
    spans = PROTECTED[:2] if quick else PROTECTED
    tasks = [task_for("all_reduce", size, 2, effort, in_place=True) for size in spans]
    pairs = [{"in place": task, "protected": replace(task, form="protect")} for task in tasks]
    return {"protected": [row for pair in pairs for row in together(field, pair, effort)]}


def dtypes(field: Field, sizes: list[int], quick: bool) -> Result:
    """bfloat16 beside float32, and beside the other small dtypes, at 1 MiB."""
    effort = least(CAREFUL, quick)
    kinds = ("float32", "bfloat16", "float16", "float64", "int8")
    size = 1 << (12 if quick else 20)
    tasks = {name: task_for("all_reduce", size, field.ranks, effort, in_place=True, dtype=name) for name in kinds}
    return {f"dtypes {field.ranks}": together(field, tasks, effort)}


def together(field: Field, tasks: dict[str, Task], effort: Effort) -> list[Result]:
    """Several tasks of hocket's that take turns in the same processes."""
    entries = [Entry(label, field.sessions["hocket"], task) for label, task in tasks.items()]
    take_turns(entries, effort)
    return [{**entry.row(), "label": entry.key} for entry in entries]


def waiting(field: Field, sizes: list[int], quick: bool) -> Result:
    """Processor time of ranks that wait in a barrier for one that comes late."""
    found = {}
    for session in field.sessions.values():
        with suppress(LibraryFailed):  # which the tables before this one tell
            answers = session.ask("wait", seconds=0.2 if quick else 3.0)[1:]
            found[session.name] = max(answer["busy"] / answer["wall"] for answer in answers)
    return {f"waiting {field.ranks}": found}


def through_torch(sizes: list[int], quick: bool) -> Result:
    """hocket and gloo called through torch.distributed, where it is installed: collectives, and steps of training."""
    effort, found = least(CAREFUL, quick), {}
    cases = [("all_reduce", size, True) for size in [4, *sizes[1:]]]
    cases += [(name, size, False) for name in ("all_gather", "reduce_scatter") for size in sizes[1::2]]
    cases += [(name, 0, False) for name in ("barrier", *TRAINING)]
    layouts = [(1, ranks) for ranks in WORLDS] + ([TORCH_LAYOUT] if not reason() else [])
    for count, each in layouts if find_spec("torch") else ():
        made, ranks = hosts(count if count > 1 else 0, congestion="cubic"), count * each
        with made as apart, Field(TORCH_LIBRARIES, ranks, apart) as field:
            rows = found[f"torch {ranks}" if count == 1 else f"torch {count}x{each}"] = []
            for name, size, in_place in cases:
                field.revive()
                rows += field.compare(task_for(name, size, ranks, effort, in_place=in_place), effort)
    return found


def memory(sizes: list[int], quick: bool) -> Result:
    """What a group of four occupies, after calls of every size, when their arrays are gone again."""
    effort = Effort(rounds=1, times=2, seconds=0.01)
    with Session(LIBRARIES["hocket"], 4) as session:
        idle = session.ask("memory")
        for size in sizes:
            for name in ("all_reduce", "all_gather", "all_to_all"):
                take_turns([Entry("hocket", session, task_for(name, size, 4, effort))], effort)
        used = session.ask("memory")

    def total(answers: list[Result], when: str, name: str) -> int:
        return sum(int(answer[when][name]) for answer in answers)

    names = ("Pss_Anon", "Pss_Shmem", "Rss")
    table = {
        "before init": {name: total(idle, "before", name) for name in names},
        "after init": {name: total(idle, "after", name) for name in names},
        "after calls of every size": {name: total(used, "after", name) for name in names},
    }
    return {"memory": table}


def crowds(sizes: list[int], quick: bool) -> Result:
    """Far more ranks than cores. Without gloo, whose start alone would take most of the time."""
    effort, found = least(Effort(rounds=3, times=20, warmup=1, seconds=0.3), quick), {}
    libraries = {name: peer for name, peer in LIBRARIES.items() if name != "gloo"}
    for ranks in CROWDS:
        with Field(libraries, ranks) as field:
            found[f"crowd {ranks}"] = [
                row
                for size in sizes[:1] + sizes[2:3] + sizes[4:5]
                for row in field.compare(task_for("all_reduce", size, ranks, effort, in_place=True), effort)
            ]
    return found


def limits(sizes: list[int], quick: bool) -> Result:
    """The all-reduce beside the least that can be done, with a core for each rank and without."""
    effort, found = least(CAREFUL, quick), {}
    for ranks, loops in zip(WORLDS, (LIMITS, ROUNDS), strict=True):
        with Field({"hocket": LIBRARIES["hocket"]} | loops, ranks) as field:
            found[f"limits {ranks}"] = [
                row
                for size in finer(sizes, quick)
                for row in field.compare(task_for("all_reduce", size, ranks, effort, in_place=True), effort)
            ]
    return found


def overlap(sizes: list[int], quick: bool) -> Result:
    """What the example prints."""
    command = [sys.executable, "-m", "hocket", "run", "-n", "2", str(ROOT / "examples" / "overlap.py")]
    return {"overlap": subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout}


def between(sizes: list[int], quick: bool) -> Result:
    """The all-reduce between hosts, beside everything; and over slow links, where the wire is all that counts."""
    if why := reason():
        Console(stderr=True).print(f"no figures between hosts: {why}", highlight=False, markup=False)
        return {}
    effort, found = least(CAREFUL, quick), {}
    for count, each in LAYOUTS:
        found[f"hosts {count}x{each}"] = over(LIBRARIES | FLOORS, count, each, sizes, effort)
    few = {name: (LIBRARIES | FLOORS)[name] for name in ("hocket", "gloo", "pump")}
    effort = least(Effort(rounds=3, times=3, warmup=1), quick)
    found[f"shaped {RATE}"] = [row for count in SHAPED for row in over(few, count, 1, sizes[-2:], effort, rate=RATE)]
    return found


def over(libraries: dict[str, Peer], count: int, each: int, sizes: list[int], effort: Effort, rate: str = "") -> Rows:
    """Rows of the all-reduce in place over so many hosts with so many ranks each."""
    ranks, rows = count * each, []
    with hosts(count, rate=rate, congestion="cubic") as made, Field(libraries, ranks, made) as field:
        for absent in field.absent.values():
            Console(stderr=True).print(absent, highlight=False, markup=False)
        for size in sizes:
            field.revive()
            rows += field.compare(task_for("all_reduce", size, ranks, effort, in_place=True), effort)
    return rows


SECTIONS: dict[str, Callable[[Field, list[int], bool], Result]] = {
    "all_reduce": all_reduce,
    "others": others,
    "forms": forms,
    "scans": scans,
    "objects": objects,
    "arena": arena,
    "protected": protected,
    "dtypes": dtypes,
    "waiting": waiting,
}
# Those that start processes of their own.
WHOLE: dict[str, Callable[[list[int], bool], Result]] = {
    "limits": limits,
    "memory": memory,
    "overlap": overlap,
    "crowds": crowds,
    "torch": through_torch,
    "hosts": between,
}


def least(effort: Effort, quick: bool) -> Effort:
    return replace(effort, rounds=2, times=3, warmup=1, seconds=0.01) if quick else effort


def measure(only: list[str], quick: bool) -> Result:
    console, start = Console(stderr=True), time.perf_counter()

    def say(text: str) -> None:
        console.print(f"[{time.perf_counter() - start:4.0f} s] {text}", highlight=False, markup=False)

    sizes = SIZES[:3] if quick else SIZES
    head = {"machine": machine(), "date": datetime.now(timezone.utc).isoformat(timespec="minutes")}
    found, at = Result(), commit()
    for ranks in WORLDS if set(only) & set(SECTIONS) else ():
        with Field(LIBRARIES, ranks) as field:
            for reason in field.absent.values():
                console.print(reason, markup=False, highlight=False)
            for name in (name for name in SECTIONS if name in only):
                say(f"{name}, {ranks} ranks")
                field.revive()
                found |= SECTIONS[name](field, sizes, quick)
    for name in (name for name in WHOLE if name in only):
        say(name)
        found |= WHOLE[name](sizes, quick)
    return {**head, "sizes": sizes, "taken": {key: [head["date"], at] for key in found}, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*SECTIONS, *WHOLE], default=[*SECTIONS, *WHOLE])
    parser.add_argument("--quick", action="store_true", help="small and short: to try this program out")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", help="where performance.md and .png are written")
    own = place(machine())
    parser.add_argument(
        "--page-only",
        nargs="?",
        const=own,
        type=Path,
        metavar="FILE",
        help="write the page from what was measured last, here or on the machine whose figures FILE has",
    )
    options = parser.parse_args()
    path = options.page_only or own
    before = read(path) if path.exists() else {}
    if options.page_only and not before:
        print(f"no figures are kept in {path}: make bench writes those of a machine like this one", file=sys.stderr)
        return 2
    found = before if options.page_only else measure(options.only, options.quick)
    if not options.page_only and not options.quick:
        if before and len(options.only) < len([*SECTIONS, *WHOLE]):
            found = before | found | {"taken": before["taken"] | found["taken"]}
        keep(found, path)
    rows = all_rows(found)
    options.output.mkdir(parents=True, exist_ok=True)
    write(found, options.output, cpus(found, elsewhere(path)))
    for error in dict.fromkeys(row["error"] for row in rows if row["error"]):
        print(error, file=sys.stderr)
    return 1 if any(row["wrong"] or row["error"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
