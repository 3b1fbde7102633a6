"""docs/performance.md from what report.py measured. No figure on that page is typed by hand."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from kept import measured_at

from hocket.bench.figures import binary, duration, three
from hocket.bench.peers import LIBRARIES
from hocket.bench.plot import plot
from hocket.bench.show import names
from hocket.bench.sweep import ratio

Row = dict[str, Any]
REMARKS = Path(__file__).resolve().parent / "remarks.md"

# What is to be reached: best peer / hocket, for an all-reduce in place; and gloo / hocket everywhere.
GOALS = {
    2: {8: 1.3, 1 << 10: 1.3, 16 << 10: 1.4, 256 << 10: 1.4, 1 << 20: 1.8, 4 << 20: 1.7, 64 << 20: 2.2},
    4: {8: 1.8, 1 << 10: 2, 16 << 10: 2, 256 << 10: 1.4, 1 << 20: 1.6, 4 << 20: 1.5, 64 << 20: 1.8},
}
GLOO = 20
# Between hosts, others / hocket, by hosts and ranks of each. hocket may take 1.25 times as long as the two bare loops.
SMALL, AHEAD, TWICE = {"MPI": 1.0, "gloo": 10.0}, {"MPI": 1.0, "gloo": 1.0}, {"MPI": 2.0, "gloo": 2.0}
MIDDLE, LONG = {"MPI": 1.8, "lean": 0.8}, {"MPI": 1.6, "gloo": 1.6, "pump": 0.8}
BETWEEN = {
    (2, 1): {8: SMALL, 1 << 10: SMALL, 16 << 10: SMALL, 256 << 10: MIDDLE, 4 << 20: AHEAD, 64 << 20: LONG},
    (2, 2): {8: AHEAD, 1 << 10: AHEAD, 16 << 10: AHEAD, 256 << 10: AHEAD, 4 << 20: TWICE, 64 << 20: TWICE},
}
KEYS = {"MPI": ("openmpi", "mpich", "impi"), "gloo": ("gloo",), "lean": ("lean",), "pump": ("pump",)}
WIRE = 0.98  # of the pump's speed over links that are slow
THROUGH_TORCH = {"barrier": 20, "ddp": 5, "fsdp2": 1}  # gloo / hocket there; of the all-reduce see _torch_goal
TORCH_BETWEEN = {"ddp": 2, "fsdp2": 2}  # the same between hosts
BEYOND = 1.25  # times the least that two cores can do
LOOPS = {
    2: "*write-back* folds a slot where it lies, so that each line goes to the other core and back once; *interleaved* "
    "stages, folds and collects in turns of 512 bytes.",
    4: "Two ranks share a core, and who waits gives it away. All stage a chunk; in *one round* each folds all of them, "
    "in *two rounds* a block of them, and collects the others' sums.",
}
FUSED = {"arena": 1.3, "private": 1.6}
WAITING = 0.02
MEMORY = 64 << 20

HEAD = """\
# Performance

<!-- Written by benchmarks/report.py from its own measurements: `make bench`. Change that, not this. -->

How long hocket's calls take, beside Open MPI, MPICH, Intel MPI and gloo on the same machine in the same minute. `make
bench` installs them, measures everything again and writes this page.

| | |
|---|---|
{facts}

## How it is measured

- Every library has processes of its own, started once. They take turns, size by size, round by round, and each round
  begins with another one; whose turn it is not sleeps in `recv`. All run the same loop
  (`src/hocket/bench/peers/loop.py`).
- One sample: every rank rewrites its whole input, so that no warm cache flatters anyone; all meet in the library's own
  barrier; each times its own call; all meet again, which figures from before 27 November 2026 are without; the slowest
  rank counts. Up to 4 KiB a sample is 32 calls in a row, for all alike.
- Some 220 calls come first that do not count, with each root, or as many as fit into twice as long as is measured: in
  up to 148 hocket chooses how long messages go, and in up to 72 more how results are written. It chooses anew later,
  now and then, and what such calls take is measured with the others. Figures from before 717e28c had fewer, or none.
- The roots of rooted collectives take turns, as in the Intel MPI Benchmarks: a fixed root would run ahead.
- Times are medians over rounds of each round's median. p99 is that of all samples. The *ratio* is the best peer's time
  divided by hocket's: above 1, hocket is ahead. It is the median over rounds, too, of what the two took in one round:
  the machine may be half as fast from one moment to the next, so that it is not always the quotient of two times.
- A size is that of the whole vector: what an all-reduce takes, an all-gather yields, a reduce-scatter takes apart and
  one rank gives in an all-to-all; rounded up to whole elements and equal parts. algbw and busbw (GB/s, 10⁹) are those
  of nccl-tests: busbw is algbw times 2(n-1)/n for an all-reduce, (n-1)/n where each rank has a part, else 1.
- MPI is called through mpi4py's buffers, gloo through torch.distributed. "-" is what a library does not have. A mean is
  a sum and a division there, as their users write it. A ping-pong's time is half of there and back, for pairs of ranks.
- With more ranks than cores, Open MPI runs with `--oversubscribe --bind-to none --mca mpi_yield_when_idle 1`, and MPICH
  with `MPIR_CVAR_POLLS_BEFORE_YIELD=1`; Intel MPI with `I_MPI_FABRICS=shm` on one host; otherwise all with their
  defaults. OMP_NUM_THREADS is 1.
- Results are compared with NumPy's, element by element, before anything is timed{wrong}.
"""


def write(found: dict[str, Any], folder: Path, beside: Sequence[str] = ()) -> None:
    """performance.md and performance.png; `beside` is what there is to say of other machines."""
    plotted = [row for key, rows in found.items() if key.startswith("all_reduce ") for row in rows]
    if plotted:
        plot(plotted, folder / "performance.png", "float32 all-reduce in place")
    parts = [head(found)]
    calls, conditions = (
        (others, forms, scans, objects),
        (arena, protected, dtypes, crowds, waiting, memory),
    )
    parts += [*goals(found), *limits(found), *beside]
    for section in (*calls, torch, between, overlap, *conditions):
        parts += section(found)
    if REMARKS.exists():
        parts.append(REMARKS.read_text())
    (folder / "performance.md").write_text("\n".join(part.strip() + "\n" for part in parts))


def head(found: dict[str, Any]) -> str:
    machine = found["machine"]
    rows = all_rows(found)
    libraries = dict.fromkeys(row["library"] for row in rows if row["library"])
    date, commit = measured_at(found)
    facts = {
        "date": date,
        "commit": commit,
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['kernel']}",
        "load before": f"{machine['load']:.2f}",
        "libraries": ", ".join(libraries),
        "Python": machine["python"],
    }
    lines = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    count = sum(row["wrong"] for row in rows)
    wrong = f"; **{count} elements were wrong**" if count else "; none was wrong"
    return HEAD.format(facts=lines, wrong=wrong)


def all_rows(found: dict[str, Any]) -> list[Row]:
    return [row for value in found.values() if isinstance(value, list) for row in value if isinstance(row, dict)]


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---:" if i else ":---" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *lines))


def command(arguments: str) -> str:
    return f"```sh\n{arguments}\n```"


def sizes_of(found: dict[str, Any]) -> str:
    """As an option takes them: 8,1K,64M."""
    return listed(found["sizes"])


def listed(sizes: Iterable[int]) -> str:
    return ",".join(binary(size).replace(" ", "").removesuffix("B").removesuffix("i") for size in sizes)


def met(value: float, goal: float, better: Callable[[float, float], bool] = lambda a, b: a >= b) -> str:
    if math.isnan(value):
        return "-"
    return "met" if better(value, goal) else "**missed**"


def time(row: Row | None) -> str:
    if row is None or not row["samples"]:
        return "failed" if row and row["error"] else "-"
    return f"**{row['wrong']} wrong**" if row["wrong"] else duration(row["p50_us"] / 1e6)


def groups(rows: Sequence[Row], *keys: str) -> list[list[Row]]:
    return [list(group) for _, group in groupby(rows, key=lambda row: [row[key] for key in keys])]


def goals(found: dict[str, Any]) -> list[str]:
    parts = []
    for ranks, goal in GOALS.items():
        rows: list[Row] = found.get(f"all_reduce {ranks}", [])
        if not rows:
            continue
        lines = []
        for group in groups(rows, "bytes"):
            own, faster = group[0], ratio(group)
            least = goal.get(own["bytes"], 1.0)
            gloo = ratio(group, lambda key: key == "gloo")
            times = [time(row) for row in group]
            p99 = duration(own["p99_us"] / 1e6)
            speeds = [three(own["busbw"]), own["algorithm"]]
            verdicts = [three(faster), three(least), met(faster, least), three(gloo), met(gloo, GLOO)]
            lines.append([binary(own["bytes"]), times[0], p99, *speeds, *times[1:], *verdicts])
        columns = ["size", "hocket p50", "p99", "busbw", "algorithm", *[*names(rows).values()][1:]]
        columns += ["ratio", "goal", "", "gloo / hocket", f"goal {GLOO}"]
        parts += [
            f"### {ranks} ranks",
            command(
                f"hocket bench all_reduce --ranks {ranks} --sizes {listed(sorted({r['bytes'] for r in rows}))} --vs all"
            ),
            table(columns, lines),
        ]
    title = "## float32 all-reduce, in place, private buffers"
    return [title, "![time over size](performance.png)", *parts] if parts else []


def limits(found: dict[str, Any]) -> list[str]:
    def show(ranks: int, rows: list[Row]) -> tuple[str, str]:
        has_goal, lines = ranks == 2, []
        for group in groups(rows, "bytes"):
            nbytes, beyond = group[0]["bytes"], 1 / ratio(group, lambda key: key != "hocket")
            goal = [three(BEYOND), met(beyond, BEYOND, lambda a, b: a <= b)] if nbytes >= 256 << 10 else ["", ""]
            lines.append([binary(nbytes), *map(time, group), three(beyond), *(goal if has_goal else [])])
        columns = ["size", *names(rows).values(), "hocket / best", *(["goal", ""] if has_goal else [])]
        return paragraph(LOOPS[ranks]), table(columns, lines)

    text = paragraph(
        "The same all-reduce by bare loops that sum float32 over shared memory and can do nothing else "
        "(`src/hocket/bench/peers/bare.cpp`). What hocket takes, divided by the best of them, is how far it is from "
        "what these two cores can do."
    )
    return by_ranks(found, "limits", f"## What two cores can do\n\n{text}\n\n{command(only('limits'))}", show)


def compared(rows: Sequence[Row], label: Callable[[Row], str], goal: float = 1.0, column: str = "ahead") -> str:
    """Libraries side by side, one line per label and size; `goal` is the least ratio, which stands in `column`."""
    libraries = names(rows)
    lines = []
    for group in groups(rows, "label", "bytes") if "label" in rows[0] else groups(rows, "collective", "bytes"):
        by_key, faster = {row["key"]: row for row in group}, ratio(group)
        cells = [time(by_key.get(key)) for key in libraries]
        lines.append([label(group[0]), binary(group[0]["bytes"]), *cells, three(faster), met(faster, goal)])
    return table(["", "size", *libraries.values(), "ratio", column], lines)


def by_ranks(found: dict[str, Any], key: str, title: str, show: Callable[[int, list[Row]], Sequence[str]]) -> list[str]:
    """A section: a title, which may have a text, and for each number of ranks that was measured what `show` tells."""
    measured = [(ranks, found[f"{key} {ranks}"]) for ranks in GOALS if found.get(f"{key} {ranks}")]
    parts = [part for ranks, rows in measured for part in (f"### {ranks} ranks", *show(ranks, rows))]
    return [title, *parts] if parts else []


def others(found: dict[str, Any]) -> list[str]:
    def show(ranks: int, rows: list[Row]) -> tuple[str, str]:
        run = command(f"hocket bench all --ranks {ranks} --sizes {sizes_of(found)} --vs all")
        return run, compared(rows, lambda row: f"{row['collective']}{', in place' if row['in_place'] else ''}")

    return by_ranks(found, "others", "## The other collectives", show)


def forms(found: dict[str, Any]) -> list[str]:
    def show(ranks: int, rows: list[Row]) -> tuple[str, str]:
        sizes = f"--ranks {ranks} --sizes {sizes_of(found)} --vs all"
        options = ("--op mean", "--op fmax", "--form async", "--form persistent")
        run = command("\n".join(f"hocket bench all_reduce {option} {sizes}" for option in options))
        return run, compared(rows, lambda row: row["label"])

    text = paragraph(
        "The same all-reduce with other operators, and in other forms. *async* is the call and its `wait()`, with "
        "nothing in between; *persistent* is `all_reduce_init` once and its calls. Of a custom ufunc the engine calls "
        "NumPy's own loop."
    )
    return by_ranks(found, "forms", f"## Mean, custom operators, async and persistent calls\n\n{text}", show)


def scans(found: dict[str, Any]) -> list[str]:
    def show(_: int, rows: list[Row]) -> tuple[str, str]:
        return command(only("scans")), compared(rows, lambda row: row["label"])

    return by_ranks(found, "scans", "## Scans, and persistent forms of other collectives", show)


def objects(found: dict[str, Any]) -> list[str]:
    def show(_: int, rows: list[Row]) -> tuple[str, str]:
        return command(only("objects")), compared(rows, lambda row: row["collective"], 1 / 3, "goal 0.33")

    text = "Objects of 1 KiB, pickled; in the MPIs by mpi4py's methods in lower case."
    return by_ranks(found, "objects", f"## Objects\n\n{text}", show)


def torch(found: dict[str, Any]) -> list[str]:
    parts = []
    for key in (key for key in found if key.startswith("torch ")):
        rows: list[Row] = found[key]
        layout = key.split()[1]
        apart = "x" in layout
        names_of = " ".join(dict.fromkeys(row["collective"] for row in rows))
        sizes = listed(sorted({row["bytes"] for row in rows if row["collective"] == "all_reduce"}))
        lines = [_torch_line(group, apart) for group in groups(rows, "collective", "bytes")]
        run, where = ("sudo hocket", f"--hosts {layout}") if apart else ("hocket", f"--ranks {layout}")
        parts += [
            f"### {layout.replace('x', ' hosts x ')}" if apart else f"### {layout} ranks",
            command(f"{run} bench {names_of} --api torch {where} --sizes {sizes} --vs gloo"),
            table(["", "size", *names(rows).values(), "ratio", "goal", ""], lines),
        ]
    text = paragraph(
        "Both are called in the same way, from the same Python and torch, such as `dist.all_reduce(x)` after "
        "`init_process_group(...)`; an all-reduce is in place, as torch has it. The *DDP overhead* is what "
        "DistributedDataParallel adds to a step of a network of 20 small layers: a sample is eight steps with it, less "
        "eight of the bare module that the same ranks made right before; the *FSDP2 overhead* is likewise what "
        "fully_shard adds to a step of a small transformer. The ratio is gloo's time divided by hocket's. Hosts "
        "are as below."
    )
    return ["## torch.distributed: hocket beside gloo", text, *parts] if parts else []


def between(found: dict[str, Any]) -> list[str]:
    parts = []
    for (hosts, each), goals in BETWEEN.items():
        rows: list[Row] = found.get(f"hosts {hosts}x{each}", [])
        if not rows:
            continue
        beside = ("MPI", "gloo", "lean", "pump") if hosts * each == 2 else ("MPI", "gloo", "pump")
        lines = [_between_line(group, beside, goals.get(group[0]["bytes"], {})) for group in groups(rows, "bytes")]
        shown = [name for key, name in names(rows).items() if key != "lean" or "lean" in beside]
        parts += [
            f"### {hosts} hosts x {each}",
            command(f"sudo hocket bench --hosts {hosts}x{each} --vs all --sizes {sizes_of(found)}"),
            table(["size", "algorithm", *shown, *(f"{one} / hocket" for one in beside), "goals", ""], lines),
        ]
    text = paragraph(
        "Hosts are network namespaces of this one machine, joined by veth; they share its cores, and all sockets use "
        "cubic. Open MPI runs with `--mca pml ob1 --mca btl tcp,sm,self --bind-to none --mca mpi_yield_when_idle 1`, "
        "MPICH with `UCX_TLS=tcp,self`, Intel MPI with `FI_PROVIDER=tcp`, all with shared memory within a host. "
        "*MPI* is the best of the three. "
        "The *lean loop* is the all-reduce of two ranks in the least loop over a socket that there is, without frames, "
        "deadlines or Python, and the *raw pump* only moves the bytes that have to be moved. These two are no peers: "
        "their time / hocket's says how much of what there is hocket reaches. Above one they are no bound."
    )
    return ["## Between hosts", text, *parts, *_shaped(found)] if parts else []


def _between_line(group: Sequence[Row], beside: Sequence[str], goals: dict[str, float]) -> list[str]:
    """One size: times, the others' times / hocket's, the goals for these, and those that are missed."""
    faster = {one: ratio(group, lambda key, one=one: key in KEYS[one]) for one in beside}
    shown = [row for row in group if row["key"] != "lean" or "lean" in beside]
    wanted = ", ".join(f"{one} {least:g}" for one, least in goals.items())
    missed = ", ".join(one for one, least in goals.items() if not faster[one] >= least)
    verdict = "" if not goals else f"**missed**: {missed}" if missed else "met"
    own = [binary(group[0]["bytes"]), group[0]["algorithm"]]
    return [*own, *map(time, shown), *(three(value) for value in faster.values()), wanted, verdict]


def _shaped(found: dict[str, Any]) -> list[str]:
    parts = []
    for rows in (rows for name, rows in found.items() if name.startswith("shaped ")):
        rate, lines = rows[0]["rate"], []
        for group in groups(rows, "hosts", "bytes"):
            part = ratio(group, lambda key: key == "pump")
            cells = [str(group[0]["hosts"]), binary(group[0]["bytes"]), *map(time, group), f"{part:.1%}"]
            lines.append([*cells, met(part, WIRE)])
        layouts = ",".join(f"{hosts}x1" for hosts in dict.fromkeys(row["hosts"] for row in rows))
        sizes = listed(dict.fromkeys(row["bytes"] for row in rows))
        columns = ["hosts", "size", *names(rows).values(), "of the pump's speed", f"goal {WIRE:.0%}"]
        run = f"sudo hocket bench --hosts {layouts} --shape {rate} --vs gloo,pump --sizes {sizes}"
        parts += [f"### Links of {rate}, one rank on each host", command(run), table(columns, lines)]
    return parts


def _torch_line(group: Sequence[Row], apart: bool) -> list[str]:
    own, faster = group[0], ratio(group)
    label = {"ddp": "DDP overhead", "fsdp2": "FSDP2 overhead"}.get(own["collective"], own["collective"])
    cells = [label, binary(own["bytes"]) if own["bytes"] else "", *map(time, group), three(faster)]
    goal = _torch_goal(own, apart)
    if goal is None:
        return [*cells, "", ""]
    least, most = goal
    in_time = "" if math.isinf(most) else f", at most {most:g} µs"
    return [*cells, f"{least:g}{in_time}", met(faster, least, lambda a, b: a >= b and own["p50_us"] <= most)]


def _torch_goal(own: Row, apart: bool) -> tuple[float, float] | None:
    """The least of gloo / hocket, and the most µs of hocket's; None where there is no goal. `apart`: on hosts."""
    name, nbytes, ranks = own["collective"], own["bytes"], own["ranks"]
    if apart:
        return (TORCH_BETWEEN[name], math.inf) if name in TORCH_BETWEEN else None
    if name == "all_reduce":
        return 10 if nbytes < 64 << 10 else 5, 4 if (nbytes, ranks) == (4, 2) else math.inf
    return (THROUGH_TORCH[name], math.inf) if name in THROUGH_TORCH else None


def arena(found: dict[str, Any]) -> list[str]:
    rows: list[Row] = found.get("arena", [])
    if not rows:
        return []
    lines = []
    for group in groups(rows, "bytes"):
        limit = group[0]["p50_us"]
        for row in group:
            goal = FUSED.get(row["label"]) if row["bytes"] == 64 << 20 else None
            slower = row["p50_us"] / limit
            verdict = [f"at most {goal}", met(slower, goal, lambda a, b: a <= b)] if goal else ["", ""]
            lines.append([row["label"], binary(row["bytes"]), time(row), three(row["busbw"]), three(slower), *verdict])
    text = paragraph(
        "Two ranks, in place. The *fused kernel* is the limit: both vectors lie in memory that both ranks map, and "
        "each rank folds its half of both straight into both, in one pass, without a call or a wait. *arena* is an "
        "all_reduce of arrays from `group.empty`, *private* one of any other arrays. Where a rank can read its own "
        "vector only, halves must go through shared memory, there and back: *staged by hand* is that and no more, "
        "three bare loops (copy, fold, copy) one after the other, a MiB at a time, where *private* overlaps them."
    )
    columns = ["", "size", "time", "busbw", "time / fused", "goal", ""]
    return ["## Arena and private buffers, beside the limit", text, command(only("arena")), table(columns, lines)]


def overlap(found: dict[str, Any]) -> list[str]:
    printed = found.get("overlap")
    text = paragraph(
        "16 MiB of float32, all-reduced by the engine's thread while the caller's multiplies matrices as long. "
        "Ranks of one host communicate with their processors, so all of it can be hidden only with two cores per rank."
    )
    run = command("hocket run -n 2 examples/overlap.py")
    return ["## Computing while an all-reduce runs", text, run, f"```text\n{printed}```"] if printed else []


def paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def only(section: str) -> str:
    return f"python benchmarks/report.py --only {section}"


def protected(found: dict[str, Any]) -> list[str]:
    rows: list[Row] = found.get("protected", [])
    lines = []
    for plain, safe in groups(rows, "bytes"):
        slower = safe["p50_us"] / plain["p50_us"]
        lines.append([binary(plain["bytes"]), time(plain), time(safe), three(slower)])
    text = paragraph(
        "What `protect=True` costs: the call is made in memory of its own, and its result is copied into the array "
        "when it has succeeded. Two ranks, in place, private buffers."
    )
    run = command("python benchmarks/report.py --only protected")
    columns = ["size", "in place", "protected", "protected / in place"]
    return ["## Protected calls", text, run, table(columns, lines)] if rows else []


def dtypes(found: dict[str, Any]) -> list[str]:
    lines = []
    for ranks in GOALS:
        rows: list[Row] = found.get(f"dtypes {ranks}", [])
        for row in rows:
            faster = rows[0]["p50_us"] / row["p50_us"]
            verdict = met(faster, 1.0) if row["label"] == "bfloat16" else ""
            lines.append([row["label"], str(ranks), time(row), three(row["busbw"]), three(faster), verdict])
    text = "One MiB, in place, private buffers. bfloat16 is to be no slower per byte than float32."
    columns = ["dtype", "ranks", "time", "busbw", "speed / float32", "goal 1"]
    return ["## Element types", text, command(only("dtypes")), table(columns, lines)] if lines else []


def crowds(found: dict[str, Any]) -> list[str]:
    parts = []
    for name in (name for name in found if name.startswith("crowd ")):
        rows: list[Row] = found[name]
        libraries, lines = names(rows), []
        for group in groups(rows, "bytes"):
            cells = [x for row in group for x in (time(row), duration(row["p99_us"] / 1e6) if row["samples"] else "-")]
            lines.append([binary(group[0]["bytes"]), *cells, three(ratio(group))])
        columns = ["size", *(f"{library} {p}" for library in libraries.values() for p in ("p50", "p99")), "ratio"]
        parts += [f"### {name.split()[1]} ranks", table(columns, lines)]
    text = "float32 all-reduce, in place, with far more ranks than there are cores."
    return ["## More ranks than cores", text, command(only("crowds")), *parts] if parts else []


def waiting(found: dict[str, Any]) -> list[str]:
    lines = []
    for ranks in GOALS:
        for library, busy in found.get(f"waiting {ranks}", {}).items():
            verdict = met(busy, WAITING, lambda a, b: a < b) if library.startswith(LIBRARIES["hocket"].name) else ""
            lines.append([library, str(ranks), f"{busy:.2%}", verdict])
    text = paragraph(
        "Processor time of a rank that waits three seconds in a barrier for rank 0, as a share of the time it waits; "
        f"the most of all ranks. hocket is to stay below {WAITING:.0%}."
    )
    columns = ["library", "ranks", "busy", "goal"]
    return ["## Waiting for a slow rank", text, command(only("waiting")), table(columns, lines)] if lines else []


def memory(found: dict[str, Any]) -> list[str]:
    measured = found.get("memory")
    if not measured:
        return []
    first = measured["before init"]
    lines = []
    for when, values in measured.items():
        share = values["Pss_Anon"] + values["Pss_Shmem"]
        more = share - first["Pss_Anon"] - first["Pss_Shmem"]
        cells = [*(f"{values[name] / 2**20:.1f}" for name in ("Pss_Anon", "Pss_Shmem", "Rss")), f"{more / 2**20:.1f}"]
        lines.append([when, *cells, "" if values is first else met(more, MEMORY, lambda a, b: a < b)])
    text = paragraph(
        "MiB, summed over the four ranks of a group, without the arrays of its calls. Anonymous and shared memory are "
        "proportional shares (PSS), so that a page which several ranks map counts once; resident memory (RSS) counts "
        "it in each, and the code of Python and NumPy too. The group is to cost less than 64 MiB."
    )
    columns = ["", "anonymous", "shared", "resident", "beyond the start", "goal"]
    return ["## Memory of a group", text, command(only("memory")), table(columns, lines)]
