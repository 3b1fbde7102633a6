"""The lessons print what NumPy, or a closed formula, says without them: over 2, 3 and 4 ranks.

Most are run in processes that are there already: `main` on every rank. What rank 0 prints is compared, and other ranks
print nothing. Times are not looked at. The lessons with torch print the same as those with NumPy and are put to the
same tests: what follows `== name` is that lesson's.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

import hocket
from hocket.plans.algorithms import ALGORITHMS
from worlds import Worlds

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "examples" / "lessons"
WITH_TORCH = LESSONS / "with_torch"
NAMES = sorted(path.stem for path in LESSONS.glob("*.py") if path.stem != "by_hand")
NAMES_WITH_TORCH = sorted(path.stem for path in WITH_TORCH.glob("*.py") if path.stem != "start")
# Several lessons with torch are one program.
TOGETHER = {
    **dict.fromkeys(("distributed_mean", "distributed_softmax", "distributed_argmax", "voting"), "reductions"),
    **dict.fromkeys(("kmeans", "histogram", "sample_sort"), "spread_data"),
}
RANKS = pytest.mark.parametrize("n", [2, 3, 4])


@pytest.fixture(scope="module")
def world() -> Iterator[Worlds]:
    """Of one transport, which is enough: what calls do is proved elsewhere."""
    worlds = Worlds("shm")
    yield worlds
    worlds.close()


Lesson: TypeAlias = Callable[[int, str], list[str]]


@pytest.fixture(params=["numpy", "torch"])
def lesson(request: pytest.FixtureRequest, world: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    """`lesson(n, name)`: the lines that it prints over n ranks, with NumPy and with torch."""
    if request.param == "numpy":
        return partial(lines_of, world)
    pytest.importorskip("torch.distributed")
    return partial(lines_with_torch, world, tmp_path_factory.getbasetemp())


def lines_of(world: Worlds, n: int, name: str) -> list[str]:
    return the_first_ranks(world(n).run(printed_by, name))


def lines_with_torch(world: Worlds, folder: Path, n: int, name: str) -> list[str]:
    program = TOGETHER.get(name, name)
    lines = the_first_ranks(world(n).run(printed_with_torch, program, str(folder / f"store of {n}")))
    if program == name:
        return lines
    begin = lines.index(f"== {name}") + 1
    ends = [i for i, line in enumerate(lines) if i > begin and line.startswith("== ")]
    return lines[begin : ends[0] - 1 if ends else None]


def the_first_ranks(texts: list[str]) -> list[str]:
    text, *others = texts
    assert not any(others), others
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines), max(lines, key=len)
    return lines


def printed_by(group: hocket.Group, name: str) -> str:
    return printed(LESSONS, name, group)


def printed_with_torch(group: hocket.Group, name: str, store: str) -> str:
    """In a group of torch's, which is made by the first of these."""
    import torch
    import torch.distributed as dist

    import hocket.torch

    if not dist.is_initialized():
        assert hocket.torch.ProcessGroup
        torch.set_num_threads(1)
        dist.init_process_group("hocket", init_method=f"file://{store}", rank=group.rank, world_size=group.size)
    return printed(WITH_TORCH, name)


def printed(folder: Path, name: str, *args: object) -> str:
    sys.path.insert(0, str(folder))
    try:
        main = runpy.run_path(str(folder / f"{name}.py"), run_name="lesson")["main"]
    finally:
        sys.path.remove(str(folder))
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        main(*args)
    return stream.getvalue()


def after(lines: list[str], beginning: str, most: int = 1) -> list[str]:
    """What follows that beginning of a line, in the first lines that have it."""
    found = [line[len(beginning) :] for line in lines if line.startswith(beginning)]
    assert len(found) >= most, (beginning, lines)
    return found[:most]


def numbers(text: str) -> list[float]:
    """All that stand in it, by themselves."""
    return [float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)", text)]


def carried_out(group: hocket.Group, x: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    sys.path.insert(0, str(LESSONS))
    by_hand = importlib.import_module("by_hand")
    sys.path.remove(str(LESSONS))
    link = by_hand.Counted(group)
    plans = {name: hocket.plan(*name, group.size) for name in ALGORITHMS if name[0] != "barrier"}
    return {name: by_hand.carry_out(plan, link, x[group.rank]) for name, plan in plans.items()}


@RANKS
def test_every_plan_is_carried_out_by_hand(world: Worlds, n: int) -> None:
    x = np.random.default_rng(n).integers(0, 100, (n, 7 * n))
    results = world(n).run(carried_out, x)
    blocks = x.reshape(n, n, 7)
    own, total, everywhere, root = np.eye(n, dtype=bool), x.sum(axis=0), np.ones((n, n), bool), np.zeros((n, n), bool)
    root[0] = True
    joined = blocks[np.arange(n), np.arange(n)].ravel()
    sums = np.cumsum(x, axis=0)
    promises = {  # what a rank ends with, and which blocks of it
        "all_reduce": (np.tile(total, (n, 1)), everywhere),
        "scan": (sums, everywhere),
        "exscan": (sums - x, everywhere & ~root),
        "reduce": (np.tile(total, (n, 1)), root),
        "reduce_scatter": (np.tile(total, (n, 1)), own),
        "broadcast": (np.tile(x[0], (n, 1)), everywhere),
        "scatter": (np.tile(x[0], (n, 1)), own),
        "gather": (np.tile(joined, (n, 1)), root),
        "all_gather": (np.tile(joined, (n, 1)), everywhere),
        "all_to_all": (blocks.transpose(1, 0, 2).reshape(n, -1), everywhere),
    }
    assert len(results[0]) > 30
    for name in results[0]:
        expected, gets = promises[name[0]]
        got = np.array([result[name] for result in results])
        assert np.array_equal(got.reshape(n, n, 7)[gets], expected.reshape(n, n, 7)[gets]), name


# ---- 1. the cheatsheet ----


def pictures(n: int) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of the cheatsheet: who has what, a row for each rank."""
    x = (np.arange(n) + 1) * 10 ** np.arange(n)[:, None]  # row r: rank r's
    own, root, none = np.diag(np.diag(x)), x.copy(), np.zeros_like(x)
    root[1:] = 0
    total, first = x.sum(axis=0), np.arange(n)[:, None] == 0
    at_own = np.diag(np.diag(np.tile(total, (n, 1))))
    return {  # before, y, and x in place
        "broadcast": (root, np.tile(x[0], (n, 1)), np.tile(x[0], (n, 1))),
        "scatter": (root, np.diag(x[0]), np.where(first, root, np.diag(x[0]))),
        "gather": (own, np.where(first, np.diag(x), 0), np.where(first, np.diag(x), own)),
        "all_gather": (own, np.tile(np.diag(x), (n, 1)), np.tile(np.diag(x), (n, 1))),
        "reduce": (x, np.where(first, total, none), np.where(first, total, x)),
        "all_reduce": (x, np.tile(total, (n, 1)), np.tile(total, (n, 1))),
        "reduce_scatter": (x, at_own, np.where(np.eye(n, dtype=bool), total, x)),
        "all_to_all": (x, x.T, x.T),
    }


def cells(lines: list[str], call: str, n: int) -> np.ndarray:
    """Those of the picture below the line of that call."""
    at = next(i for i, line in enumerate(lines) if line.startswith(call))
    rows = [line.replace("·", "0").split() for line in lines[at + 2 : at + 2 + n]]
    assert [row[0] for row in rows] == [f"r{rank}" for rank in range(n)]
    return np.array([row[1:] for row in rows], int)


@RANKS
def test_cheatsheet(world: Worlds, n: int) -> None:
    lines = lines_of(world, n, "cheatsheet")
    for name, picture in pictures(n).items():
        assert np.array_equal(cells(lines, f"y = group.{name}(", n), np.hstack(picture)), name

    d = 3072 * n
    part = d * (n - 1) // n
    volumes = {
        "broadcast direct": (d * (n - 1), d),
        "broadcast binomial_tree": ({2: d, 3: 2 * d, 4: 2 * d}[n], d),
        "scatter direct": (part, d // n),
        "gather direct": (d // n, part),
        "all_gather direct": (part, part),
        "all_gather ring": (part, part),
        "reduce direct": (d, d * (n - 1)),
        "all_reduce naive": (d * (n - 1), d * (n - 1)),
        "all_reduce one_shot": (d * (n - 1), d * (n - 1)),
        "all_reduce two_shot": (2 * part, 2 * part),
        "all_reduce ring": (2 * part, 2 * part),
        "reduce_scatter direct": (part, part),
        "all_to_all direct": (part, part),
    }
    table = [line[2:].split() for line in lines if re.search(r"\d [=≠] ", line)]
    assert {f"{row[0]} {row[1]}": (int(row[2]), int(row[5])) for row in table} == volumes
    stars = {" ".join(line[2:].split()[:2]) for line in lines if re.match(r"\* .*\d [=≠] ", line)}
    assert {name for name in stars if "all_reduce" not in name} == {name for name in volumes if " direct" in name}
    assert len(stars & {"all_reduce one_shot", "all_reduce two_shot"}) == 1  # by the number of cores
    assert all(row[3] == row[6] == "=" for row in table)


@RANKS
def test_cheatsheet_with_torch(world: Worlds, n: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("torch.distributed")
    lines = lines_with_torch(world, tmp_path_factory.getbasetemp(), n, "cheatsheet")
    for name, (before, after, _) in pictures(n).items():
        assert np.array_equal(cells(lines, f"dist.{name}(", n), np.hstack([before, after])), name


# ---- 2. first programs ----


@RANKS
def test_distributed_mean(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "distributed_mean")
    everything = np.arange(n * n) ** 2.0
    parts = [everything[r**2 : (r + 1) ** 2] for r in range(n)]
    assert [numbers(line) for line in after(lines, "before  ", n)] == [[len(p), round(p.mean(), 4)] for p in parts]
    assert numbers(after(lines, "wrong")[0]) == [round(float(np.mean([p.mean() for p in parts])), 4)]
    mean, variance = everything.mean(), everything.var()
    total, count, *rest = numbers(after(lines, "after")[0].replace(":", ""))
    assert (total, count) == (everything.sum(), n * n)
    assert rest == pytest.approx([mean, variance], abs=1e-4)


@RANKS
def test_distributed_softmax(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "distributed_softmax")
    scores = np.sin(np.arange(4 * n))
    softmax = np.exp(scores) / np.exp(scores).sum()
    said = [numbers(line[14:]) for line in lines if line.startswith("softmax")]
    assert np.ravel(said) == pytest.approx(softmax, abs=1e-4)
    assert numbers(after(lines, "maximum")[0]) == pytest.approx([1000 + scores.max()], abs=1e-4)
    assert numbers(after(lines, "sum")[0]) == pytest.approx([np.exp(scores - scores.max()).sum()], abs=1e-4)
    assert after(lines, "careless  r0 ") == ["[nan nan nan nan]: inf / inf"]
    assert after(lines, "together") == ["  1.0000"]


@RANKS
def test_distributed_argmax(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "distributed_argmax")
    values = [numbers(row)[:5] for row in after(lines, "before  r", n) for row in [row.split("[")[1].replace("]", "")]]
    assert np.array_equal(np.ravel(values), (np.arange(5 * n) * 7 + 6) % 8)
    at = int(np.argmax(values))
    found = f"the largest is {np.max(values):.0f}, on r{at // 5} at {at % 5}: at {at} of all {5 * n}"
    assert after(lines, "after   ") == [found]
    assert n < 4 or (np.ravel(values) == np.max(values)).sum() > 1  # there is a tie to be broken


@RANKS
def test_voting(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "voting")
    votes = [sum((r * r + 1) % 3 == c for r in range(n)) for c in range(3)]
    versions = [10 + 3 * r % 4 for r in range(n)]
    won = ["stop", "go on", "save"][votes.index(max(votes))]
    assert after(lines, "sum   ") == [f"votes [{' '.join(map(str, votes))}]: {won!r} has the most"]
    assert after(lines, "land  ") == ["all are done: False"]
    assert after(lines, "lor   ") == ["any is done: True"]
    assert numbers(after(lines, "max   ")[0]) == [max(versions)]
    assert numbers(after(lines, "min   ")[0]) == [min(versions)]
    assert after(lines, "max and min agree: ") == ["False, so the ranks do not"]
    assert after(lines, "band  what all know: ") == ["1011"]
    assert after(lines, "bor   what any knows: ") == ["1111" if n > 2 else "1011"]


@RANKS
def test_kmeans(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "kmeans")
    random = np.random.default_rng(3)
    points = np.array([[0, 0], [6, 1], [2, 7]]).repeat(40, axis=0) + random.normal(size=(120, 2))
    centres = points[[0, n, 2 * n]]  # the first three that rank 0 has
    expected = [centres]
    while len(expected) < 2 or not np.allclose(expected[-1], expected[-2]):  # Lloyd's algorithm, in one process
        nearest = np.argmin([np.linalg.norm(points - centre, axis=1) for centre in expected[-1]], axis=0)
        expected.append(np.array([points[nearest == c].mean(axis=0) for c in range(3)]))
    said = [re.findall(r"\( *([-\d.]+), *([-\d.]+)\)", line) for line in lines if line.startswith(("before", "round"))]
    assert np.array(said, float) == pytest.approx(np.array(expected), abs=1e-3)
    cost = sum(((points[nearest == c] - expected[-1][c]) ** 2).sum() for c in range(3))
    assert float(lines[-2].split()[-1]) == pytest.approx(cost, abs=2e-3)
    assert numbers(after(lines, "points")[0]) == np.bincount(nearest).tolist()


@RANKS
def test_histogram(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "histogram")
    values = np.concatenate([np.random.default_rng(rank).normal(loc=rank, size=200) for rank in range(n)])
    counts, edges = np.histogram(values, bins=8)
    bars = [line.split() for line in lines if " to " in line and not line.startswith("before")]
    assert [int(bar[3]) for bar in bars] == counts.tolist()
    assert [[float(bar[0]), float(bar[2])] for bar in bars] == pytest.approx(
        np.column_stack([edges[:-1], edges[1:]]), abs=1e-4
    )
    assert [len(bar[4]) if len(bar) > 4 else 0 for bar in bars] == [round(100 * c / len(values)) for c in counts]


@RANKS
def test_sample_sort(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "sample_sort")
    numbers_of = [np.random.default_rng(rank).integers(0, 10**6, 1000) for rank in range(n)]
    everything = np.sort(np.concatenate(numbers_of))
    kept = [[int(x) for x in numbers(line.replace(",", ""))] for line in after(lines, "after   r", n)]
    end = 0
    for (_, *said), row in zip([[0, *k] if len(k) == 4 else k for k in kept], kept, strict=True):
        count, low, high, total = said
        part = everything[end : end + count]
        assert (low, high, total) == (part[0], part[-1], part.sum()), row
        assert 0.7 * 1000 < count < 1.3 * 1000  # what the samples are for
        end += count
    assert end == len(everything)
    sent = np.array([line.split(":")[1].split() for line in after(lines, "sends   r", n)], int)
    edges = np.searchsorted(everything, [k[-3] for k in kept[1:]])
    cuts = [0, *everything[edges], 10**6]
    assert sent.tolist() == [np.histogram(mine, bins=cuts)[0].tolist() for mine in numbers_of]


# ---- 3 to 5. algorithms, groups, bandwidth ----


@RANKS
def test_ring_by_hand(world: Worlds, n: int) -> None:
    lines = lines_of(world, n, "ring_by_hand")
    rows = {line[:30].strip(): line[30:].split() for line in lines[2 : lines.index("")]}
    assert sum(name.endswith("by hocket") for name in rows) == 4
    assert all(row[0] == "right" for name, row in rows.items() if "count" not in name)
    depth = math.ceil(math.log2(n))
    half = n // 2
    lanes = {2: 1.0, 3: 1.5, 4: 1.5}[n]  # of hierarchical: by the rank that is alone where there are 3
    for name, messages, busiest, volume in (
        ("ring", 2 * n * (n - 1), 2 * (n - 1), 2 * (n - 1) / n),
        ("naive", 2 * (n - 1), n - 1, n - 1),
        ("binomial_tree", 2 * (n - 1), depth, depth),
    ):
        by_hand = rows[f"{name}, a plan by hand"][1:4]
        assert [float(x) for x in by_hand] == pytest.approx([messages, busiest, volume], abs=1e-4)
    assert [float(x) for x in rows["ring, by hand"][1:4]] == pytest.approx(
        [2 * n * (n - 1), 2 * (n - 1), 2 * (n - 1) / n], abs=1e-4
    )
    assert float(rows["hierarchical, a plan by hand"][3]) == lanes
    for name in ("ring", "naive", "binomial_tree", "hierarchical"):
        assert rows[f"{name}, by hocket"][1] == rows[f"{name}, a plan by hand"][3]
    # What was counted from the plan is what went through send.
    said, counted = ([line for line in lines if part in line] for part in ("a plan by hand", "hocket.count(plan)"))
    assert [line.split()[-6:-2] for line in said] == [line.split()[-4:] for line in counted]

    table = [numbers(line) for line in lines if line.endswith(("in total", "busiest rank"))]
    sizes = [2, 4, 8, 16, 32]
    half = 2  # hosts: each rank speaks to all of its own host twice, and to its like on the other twice
    assert table == [
        [2 * m * (m - 1) for m in sizes],
        [2 * (m - 1) for m in sizes],
        [2 * (m - 1) for m in sizes],
        [m - 1 for m in sizes],
        [2 * (m - 1) for m in sizes],
        [math.log2(m) for m in sizes],
        [m * (2 * (m // half - 1) + 2) for m in sizes],
        [2 * (m // half - 1) + 2 for m in sizes],
    ]


@RANKS
def test_hierarchical_by_hand(world: Worlds, n: int) -> None:
    lines = lines_of(world, n, "hierarchical_by_hand")
    hosts = {2: [0, 1], 3: [0, 0, 1], 4: [0, 0, 1, 1]}[n]
    leaders = [rank for rank in range(n) if hosts.index(hosts[rank]) == rank]
    x = np.arange(4) + 1000 * np.arange(n)[:, None]
    total = x.sum(axis=0)
    local = [x[[h == hosts[rank] for h in hosts]].sum(axis=0) if rank in leaders else None for rank in range(n)]
    across = [total if rank in leaders else None for rank in range(n)]
    stages = {"before": x, "1 ": local, "2 ": across, "3 ": [total] * n, "the plan": [total] * n}
    for name, expected in stages.items():
        at = next(i for i, line in enumerate(lines) if line.startswith(name))
        said = [line[26:].strip() for line in lines[at : at + n]]
        assert said == ["nothing" if row is None else str(np.asarray(row)) for row in expected], name
    d = 8 * 12 * 1024
    said = after(lines, "by leaders")[0].split(" in ")[0].split()
    assert [int(sent) for sent in said] == [d if rank in leaders else 0 for rank in range(n)]
    said = after(lines, "by the plan")[0].split(" in ")[0].split()
    assert [int(sent) for sent in said] == [d // hosts.count(host) for host in hosts]  # each its lane, there and back


@RANKS
def test_bandwidth(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "bandwidth")
    rows = {line[:18].strip(): numbers(line[18:]) for line in lines[3:7]}
    last = ((8 << 20) // 4 - 1) % 97
    for name, calls in {"one call": 1, "chunks of 1 MiB": 8, "small tensors": 2048, "in buckets": 8}.items():
        said, first_sum, last_sum, ms, algbw, busbw = rows[name]
        assert (said, first_sum, last_sum) == (calls, sum(range(n)), n * last + sum(range(n))), name
        # By their definitions, as far as what is printed, with three places, tells.
        assert algbw == pytest.approx((8 << 20) / ms / 1e6, rel=0.02, abs=6e-4)
        assert busbw == pytest.approx(algbw * 2 * (n - 1) / n, abs=2e-3)
    assert not any("DIFFERS" in line for line in lines)


# ---- 6 and 7. programs, and what is underneath ----


@RANKS
def test_overlap(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "overlap")
    ranks = np.arange(n)
    came = {"all_reduce": np.full(n, (ranks + 1.0).sum()), "send, recv": (ranks - 1.0) % n + 1}
    said = [lines[lines.index(line) + 1] for name in came for line in lines if line.startswith(name)]
    assert said == [f"after        came: {row}, computed: {2 * 2 * 192}, whole: True" for row in came.values()]


@RANKS
def test_pipeline(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "pipeline")
    x = np.linspace(-1, 1, 16)
    weights = 1 + np.arange(n) / 4
    inputs, y = [], x
    for rank, weight in enumerate(weights):
        inputs.append(y)
        y = weight * y + rank
    for micros, line in zip((1, 2, 4, 8), lines[1:5], strict=True):
        said, slots, empty, formula, _, loss = numbers(line)
        assert (said, slots) == (micros, 2 * (micros + n - 1))
        assert empty == formula == pytest.approx((n - 1) / (micros + n - 1), abs=1e-4)
        assert loss == pytest.approx(y @ y, abs=1e-4)
    gradients = [2 * (y @ inputs[rank]) * weights[rank + 1 :].prod() for rank in range(n)]
    assert [float(line.split()[-1]) for line in lines[-n:]] == pytest.approx(gradients, abs=1e-4)
    for rank, line in enumerate(lines[-2 * n : -n]):
        wait, there = ["·"] * rank, [*"01234567"]
        assert line.split()[1:] == wait + there + ["·"] * (2 * (n - 1 - rank)) + there + wait


@RANKS
def test_data_parallel(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "data_parallel")
    weights, expected = np.zeros(3), {}
    for step in range(60):  # with whole batches, in one process
        random = np.random.default_rng(step)
        x = np.hstack([random.normal(size=(24, 2)), np.ones((24, 1))])
        y = 3 * x[:, 0] - 2 * x[:, 1] + 1 + random.normal(scale=0.1, size=24)
        weights = weights - 0.2 * (2 / 24) * ((x @ weights - y) @ x)
        expected[step + 1] = [*weights, ((x @ weights - y) ** 2).mean()]
    said = [numbers(line) for line in lines if line.startswith("step")]
    assert [row[0] for row in said] == [1, 2, 4, 10, 60]
    assert [row[1:] for row in said] == [pytest.approx(expected[int(row[0])], abs=1e-4) for row in said]
    assert [line.rsplit(" ", 1)[1] for line in lines[-2:]] == ["True", "True"]


@RANKS
def test_parameter_server(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "parameter_server")
    each = " ".join(["300"] * (n - 1))
    found = f"weights [ 3. -2.  1.] from {300 * (n - 1)} gradients, [{each}] of each worker"
    assert after(lines, "after    ") == [found]
    moved = 300 * 2 * 3 * 8
    said = after(lines, "bytes    moved by r0 r1 ...: ")[0]
    assert [int(x) for x in said.strip("[]").split()] == [moved * (n - 1)] + [moved] * (n - 1)


@RANKS
def test_halo_exchange(lesson: Lesson, n: int) -> None:
    lines = lesson(n, "halo_exchange")
    plate = np.zeros((14, 42))
    plate[0, 10:30] = plate[:, -1] = 1
    for _ in range(200):  # on one process
        old = plate.copy()
        for down, right in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            plate[1:-1, 1:-1] += np.roll(old, (down, right), (0, 1))[1:-1, 1:-1]
        plate[1:-1, 1:-1] = (plate[1:-1, 1:-1] - old[1:-1, 1:-1]) / 4
    said = numbers(after(lines, "after 200 steps")[0])
    assert said == pytest.approx([plate[1:-1].sum(), plate[1:-1].max()], abs=1e-4)
    shades = [[" .:-=+*#%@".index(cell) for cell in line[3:-1]] for line in lines[-13:-1]]
    differ = np.array(shades) - np.minimum(9, np.floor(10 * plate[1:-1, 1:-1]))
    assert np.abs(differ).max() <= 1  # a cell between two shades may be rounded into either
    assert (differ != 0).mean() < 0.01


@RANKS
def test_custom_op(world: Worlds, n: int) -> None:
    lines = lines_of(world, n, "custom_op")
    x = np.array([3.0, 4.0, 12.0, 84.0])[:n]
    assert numbers(after(lines, "hypot")[0])[0] == pytest.approx(np.sqrt((x**2).sum()), abs=1e-4)
    assert numbers(after(lines, "logaddexp")[0])[0] == pytest.approx(np.log(x.sum()), abs=1e-4)
    assert after(lines, "maxloc") == ["            5 on r1  1 on r1"]  # of 4 5 4 1, and of 0 1 0 1
    orders = {"in order": range(n), "backwards": reversed(range(n))}
    for name, order in orders.items():
        p, q = 1, 0
        for rank in order:
            p, q = p * (rank + 2), q * (rank + 2) + rank
        assert after(lines, name)[0].strip() == f"{p}x+{q}"
    (mixed,) = [i for i, line in enumerate(lines) if line.startswith("mixed")]
    told = " ".join(line.strip() for line in lines[mixed:])
    assert "MismatchError on all ranks: True" in told
    assert "custom(compose" in told
    assert "custom(backwards" in told


@RANKS
def test_topology(world: Worlds, n: int) -> None:
    lines = lines_of(world, n, "topology")
    names = [f"r{rank}" for rank in range(n)]
    at = [i for i, line in enumerate(lines) if line.split() == names]
    transports, near, times = ([line.split()[1:] for line in lines[i + 1 : i + 1 + n]] for i in at)
    assert transports == [["self" if a == b else "shm" for b in names] for a in names]
    assert near == np.array(near).T.tolist()
    assert {cell for row in near for cell in row} <= {"L1", "L2", "L3", "host"}
    assert all((float(cell) > 0) == (a != b) for a, row in enumerate(times) for b, cell in enumerate(row))
    assert f"host 0: {' '.join(names)}" in lines
    cores = [line.strip() for line in lines if line.strip().startswith("core ")]
    assert cores == [f"core {cpu}: {' '.join(names)}" for cpu in sorted(os.sched_getaffinity(0))]


def test_topology_knows_what_two_bound_ranks_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Eight cores, of which each two share a second-level cache and each four a third-level one."""
    monkeypatch.syspath_prepend(LESSONS)
    topology = importlib.import_module("topology")
    monkeypatch.setattr(topology, "CPUS", tmp_path)
    for cpu in range(8):
        for level, width in ((1, 1), (2, 2), (3, 4)):
            index = tmp_path / f"cpu{cpu}" / "cache" / f"index{level}"
            index.mkdir(parents=True)
            first = cpu // width * width
            span = str(cpu) if width == 1 else f"{first}-{first + width - 1}"
            for file, text in (("level", level), ("size", "1K"), ("shared_cpu_list", span), ("type", "Data")):
                (index / file).write_text(f"{text}\n")
    shared = {level: topology.shared_with({4, 5}, level).nonzero()[0].tolist() for level in (1, 2, 3)}
    assert shared == {1: [], 2: [4, 5], 3: [4, 5, 6, 7]}
    assert topology.shared_with({3, 4}, 3).sum() == 0


@RANKS
def test_retry(world: Worlds, n: int) -> None:
    """A mistake in step 3, and a rank that leaves in step 5: each is done again, and the sums stay whole."""
    done = [f"step {k}    the sum is {1830 * k}, by {n if k < 5 else n - 1} of us" for k in range(1, 7)]
    failed = ["step 3    MismatchError: lost is nobody", f"step 5    PeerLost: lost is {n - 1}"]
    history = f"history   lost: nobody; lost: {n - 1};"
    assert lines_of(world, n, "retry") == [*done[:2], failed[0], *done[2:4], failed[1], *done[4:], history]


@RANKS
def test_straggler(world: Worlds, n: int) -> None:
    said = lines_of(world, n, "straggler")
    waits = [numbers(line)[0] for line in said[:n]]
    assert int(np.argmin(waits)) == n - 1
    assert said[n].startswith(f"the straggler is r{n - 1},")


# ---- all of them ----


def run(name: str, n: int, *before: str, **environ: str) -> list[str]:
    """The lines that the program prints under `hocket run`."""
    command = [*before, sys.executable, "-m", "hocket", "run", "-n", str(n), str(LESSONS / f"{name}.py")]
    given = {**os.environ, **environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=given)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_as_a_program_it_prints_the_same(world: Worlds) -> None:
    assert run("cheatsheet", 4) == lines_of(world, 4, "cheatsheet")


def test_topology_of_ranks_on_one_core_and_what_nvidia_smi_says(tmp_path: Path) -> None:
    stand_in = tmp_path / "nvidia-smi"
    stand_in.write_text('#!/bin/sh\necho "        GPU0    GPU1"; echo "GPU0     X      NV18"; echo "$*"\n')
    stand_in.chmod(0o755)
    core = min(os.sched_getaffinity(0))
    said = run("topology", 2, "taskset", "-c", str(core), PATH=f"{tmp_path}:{os.environ['PATH']}")
    has_caches = Path(f"/sys/devices/system/cpu/cpu{core}/cache/index0").exists()
    at = next(i for i, line in enumerate(said) if line.startswith("the nearest"))
    assert [line.split()[1:] for line in said[at + 2 : at + 4]] == [["L1" if has_caches else "host"] * 2] * 2
    assert [line.strip() for line in said if line.strip().startswith("core ")] == [f"core {core}: r0 r1"]
    assert said[said.index("GPUs of host 0, by nvidia-smi topo -m:") + 1 :][:3] == [
        "        GPU0    GPU1",
        "GPU0     X      NV18",
        "topo -m",
    ]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["-m", "hocket", "run", "-n", "2"], []),
        (["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"], []),
        ([], ["2"]),
        ([], ["2", "--backend", "gloo"]),
    ],
    ids=["hocket run", "torchrun", "spawn", "gloo"],
)
def test_with_torch_it_is_started_in_every_way(
    world: Worlds, tmp_path_factory: pytest.TempPathFactory, command: list[str], options: list[str]
) -> None:
    pytest.importorskip("torch.distributed")
    whole = [sys.executable, *command, str(WITH_TORCH / "reductions.py"), *options]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("== ")
    for section in said[1:]:
        name, *lines = section.rstrip("\n").split("\n")
        assert lines == lines_with_torch(world, tmp_path_factory.getbasetemp(), 2, name)
    assert len(said) == 5


INDEX = (ROOT / "docs" / "lessons.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_it_says_how_it_is_run_and_is_in_the_index(name: str) -> None:
    text = (LESSONS / f"{name}.py").read_text()
    assert re.search(rf"^    hocket run -n [24] examples/lessons/{name}\.py$", text, re.MULTILINE)
    ending = 'if __name__ == "__main__":\n    with hocket.init() as group:\n        main(group'
    assert ending in text
    assert f"[{name}.py](../examples/lessons/{name}.py)" in INDEX


@pytest.mark.parametrize("name", NAMES_WITH_TORCH)
def test_with_torch_it_says_so_too(name: str) -> None:
    text = (WITH_TORCH / f"{name}.py").read_text()
    assert re.search(rf"^    python examples/lessons/with_torch/{name}\.py [24]$", text, re.MULTILINE)
    assert text.endswith('if __name__ == "__main__":\n    start(main)\n')
    assert f"[{name}.py](../examples/lessons/with_torch/{name}.py)" in INDEX
