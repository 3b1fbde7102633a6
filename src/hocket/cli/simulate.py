"""`hocket simulate`: what algorithms would take on a cluster that one describes."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..bench.figures import binary, duration, parse_size, three
from ..plans.algorithms import names, plan
from ..plans.bounds import least_bytes, least_rounds
from ..plans.check import check
from ..plans.collectives import find
from ..plans.plan import MOST_STEPS, Plan
from .plan.sizes import algorithm_of, the_root, told

if TYPE_CHECKING:
    from ..tuning.cluster import Cluster
    from ..tuning.simulate import Simulated

PROVED = 64  # ranks, up to which an algorithm of the user's is proved before
SHOWN = 3  # messages of the critical path, at either end
WHOLE = 2 * SHOWN + 2


class Row(NamedTuple):
    """What an algorithm takes, and the least that any does: rounds, and bytes sent by the rank that sends most."""

    algorithm: str
    took: Simulated
    least_rounds: int
    least_bytes: float


def simulate(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce.")],
    ranks: Annotated[int | None, typer.Option("--ranks", "-n", min=1, help="Of a topology such as flat:x8.")] = None,
    nbytes: Annotated[str, typer.Option("--bytes", "-b", metavar="SIZE", help="Of the vector: 8, 64K, 1GiB.")] = "1MiB",
    topology: Annotated[
        str,
        typer.Option(
            "--topology", "-t", metavar="SPEC", help="4x8, fat-tree:64x8, torus:4x4x4, ..., or a .toml or .json file."
        ),
    ] = "",
    algorithms: Annotated[
        str,
        typer.Option("--algorithms", "-a", metavar="NAME,...", help="Names, or mine.py:ring. [default: all there are]"),
    ] = "",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    segments: Annotated[
        int, typer.Option("--segments", min=1, max=MOST_STEPS, help="Pieces that go one behind the other.")
    ] = 1,
    slow: Annotated[
        list[str] | None, typer.Option(metavar="WHO=N:TIMES", help="rank=7:3x, or the NIC of host=2:3x; repeatable.")
    ] = None,
    cut: Annotated[
        list[str] | None, typer.Option(metavar="LINK", help="nic=3, link=3-4 of a torus, site=0-1; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures, for programs.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Also draw what the times are made of.")] = None,
) -> None:
    """Predict how long algorithms take on a cluster that you describe, and say why. Nothing is measured.

    alpha is the latency of messages, beta the time of bytes on links, cpu what processors take for each message, and
    gamma the time of folding: their shares of the longest chain of messages, which is the time. docs/simulate.md has
    the model, and all that a cluster may be.

    Examples:

        hocket simulate all_reduce --topology 4x8 --bytes 64MiB

        hocket simulate all_reduce -n 16384 -b 1GiB -t fat-tree:x8,oversubscription=2 -a ring,double_binary_tree

        hocket simulate broadcast -t torus:4x4x4 --slow rank=7:3x --cut link=0-1

        hocket simulate all_reduce -t cluster.toml -a mine.py:ring,ring
    """
    if plot is not None and find_spec("matplotlib") is None:
        raise typer.BadParameter("a plot needs matplotlib: pip install 'hocket[plot]'", param_hint="--plot")
    with told(""):
        spec, size = find(collective), parse_size(nbytes) if collective != "barrier" else 0
        where = cluster_of(topology, ranks, slow or [], cut or [])
    the_root(collective, root, where.ranks)
    asked = [name.strip() for name in algorithms.split(",")] if algorithms else names(spec.name)
    rows, left_out = list[Row](), dict[str, str]()
    for name in asked:
        row = row_of(collective, name, where, size, root, segments)
        if isinstance(row, Row):
            rows.append(row)
        else:
            left_out[name] = row
    if not rows:
        raise typer.BadParameter("; ".join(f"{name} would have {why}" for name, why in left_out.items()))
    rows.sort(key=lambda row: row.took.seconds)
    said = f"{collective} of {binary(size)} over {where.ranks} ranks: {topology or 'one host'}"
    if plot is not None:
        from ..bench.plot import stacked

        with told(""):
            stacked([(row.algorithm, _parts(row.took)) for row in rows], plot, said)
    if as_json:
        typer.echo(json.dumps(_document(said, where, size, rows, left_out), indent=2))
    else:
        _show(said, rows, left_out)


def cluster_of(topology: str, ranks: int | None, slow: list[str], cut: list[str]) -> Cluster:
    """The cluster of a command's options. Raises ValueError."""
    from ..tuning.spec import cluster

    if not topology and ranks is None:
        raise ValueError("over what? Say --topology 4x8, or --ranks 8 for one host")
    made = cluster(topology or f"1x{ranks}", ranks)
    for text in slow:
        made = made.slowed(text)
    for text in cut:
        made = made.without(text)
    return made


def row_of(collective: str, name: str, where: Cluster, nbytes: int, root: int, segments: int) -> Row | str:
    """What an algorithm takes, or why its plan is too large."""
    from ..tuning.expected import too_large
    from ..tuning.simulate import simulate as simulated

    function = algorithm_of(name)
    with told(name):
        if not isinstance(function, Plan) and (why := too_large(collective, function, where)):
            return why
        made = plan(collective, function, where.ranks, root, where.places)
        if not isinstance(function, str) and where.ranks <= PROVED:
            check(made)
        took = simulated(made, nbytes, where, segments)
    least = float(least_bytes(collective, where.ranks)) * nbytes
    return Row(made.algorithm, took, least_rounds(where.ranks, took.ports), least)


# ---- words ----


def _show(said: str, rows: list[Row], left_out: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    shares = ("alpha", "beta", "cpu", "gamma")
    columns = ("time", "rounds", "bytes/rank", "of least", *shares)
    heads = (Column(name, no_wrap=True, justify="right") for name in columns)
    table = Table(Column("algorithm", no_wrap=True), *heads, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for row in rows:
        sent, least = row.took.bytes_per_rank, row.least_bytes
        table.add_row(
            row.algorithm,
            duration(row.took.seconds),
            str(row.took.rounds),
            amount(sent),
            f"{three(sent / least)} x" if least else "-",
            *(f"{share:.0%}" for share in _shares(row.took)),
        )
    console = Console(markup=False)
    console.print(f"{said}\n", markup=False, highlight=False)
    console.print(table)
    for line in (*_why(rows), *(f"{name} is left out: {why}." for name, why in left_out.items())):
        console.print(line, markup=False, highlight=False)


def _why(rows: list[Row]) -> list[str]:
    """Which is best, and what its critical path consists of."""
    best, took = rows[0].algorithm, rows[0].took
    if not took.seconds:
        return ["\nNothing moves, and nothing takes time."]
    beside = f", {three(rows[1].took.seconds / took.seconds)} times as fast as {rows[1].algorithm}" if rows[1:] else ""
    words = ("latency", "bytes on links", "processors", "folding")
    parts = sorted(zip(_shares(took), words, strict=True), reverse=True)
    lines = [
        f"\nbest: {best}{beside}. Rounds: {took.rounds}; with at most {_count(took.ports, 'message')} of a rank "
        f"in each, no algorithm has fewer than {rows[0].least_rounds}.",
        f"Its critical path: {_count(took.messages, 'message')}; "
        + ", ".join(f"{word} {share:.0%}" for share, word in parts if share)
        + ".",
    ]
    slowest = Counter(re.sub(r" \d+.*", "", re.sub(r", rank \d+", "", hop.link)) for hop in took.path)
    if len(took.path) < took.messages:
        lines.append(f"Only the last {len(took.path)} of them are known.")
    if slowest:
        lines.append(
            "What takes longest on their way: " + ", ".join(f"{k} {n} times" for k, n in slowest.most_common()) + "."
        )
    said = [f"  step {hop.step}: r{hop.src} to r{hop.dst} ({hop.link})" for hop in took.path]
    if len(said) > WHOLE:
        said[SHOWN:-SHOWN] = [f"  ... {len(said) - 2 * SHOWN} more"]
    return lines + said


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _shares(took: Simulated) -> list[float]:
    return [part / took.seconds if took.seconds else 0.0 for part in took.parts]


def _parts(took: Simulated) -> dict[str, float]:
    from ..tuning.simulate import PARTS

    return dict(zip(PARTS, took.parts, strict=True))


def amount(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{three(count)} {unit}"
        count /= 1024
    return f"{three(count)} GiB"


def _document(said: str, where: Cluster, nbytes: int, rows: list[Row], left_out: dict[str, str]) -> dict[str, Any]:
    each = [
        {
            "algorithm": row.algorithm,
            "seconds": row.took.seconds,
            "parts": _parts(row.took),
            "rounds": row.took.rounds,
            "least_rounds": row.least_rounds,
            "ports": row.took.ports,
            "bytes_per_rank": row.took.bytes_per_rank,
            "least_bytes_per_rank": row.least_bytes,
            "steps": row.took.steps,
            "last_rank": row.took.last,
            "critical_messages": row.took.messages,
            "critical_path": [hop._asdict() for hop in row.took.path],
        }
        for row in rows
    ]
    head = {"title": said, "ranks": where.ranks, "hosts": where.hosts, "bytes": nbytes, "best": rows[0].algorithm}
    return {**head, "algorithms": each, "left_out": left_out}
