"""`hocket plan search`: plans that suit a cluster better than those that are shipped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...bench.figures import binary, duration, parse_size, three
from ...plans.bounds import least_bytes, least_rounds
from .sizes import told
from .tables import WORDS, facts_of

if TYPE_CHECKING:
    from ...search.search import Entry, Report, Searched

SHOWN = 5
WORTH = 1.005  # times as fast as what is shipped: less is told as none


def search(
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, broadcast or reduce.")],
    ranks: Annotated[int | None, typer.Option("--ranks", "-n", min=1, help="Of a topology such as flat:x8.")] = None,
    topology: Annotated[
        str,
        typer.Option("--topology", "-t", metavar="SPEC", help="As of hocket simulate: 4x8, torus:4x4, ..."),
    ] = "",
    nbytes: Annotated[str, typer.Option("--bytes", "-b", metavar="SIZE", help="Of the vector: 8, 64K, 1GiB.")] = "1MiB",
    seconds: Annotated[float, typer.Option(min=0.1, help="After which the search ends.")] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Of what is tried at random.")] = 0,
    slow: Annotated[
        list[str] | None, typer.Option(metavar="WHO=N:TIMES", help="rank=7:3x, or the NIC of host=2:3x; repeatable.")
    ] = None,
    cut: Annotated[
        list[str] | None, typer.Option(metavar="LINK", help="nic=3, link=3-4 of a torus, site=0-1; repeatable.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.py", help="Write the best that was found as an algorithm, `found`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures, for programs.")] = False,
) -> None:
    """Search for plans that beat the shipped ones on a cluster that you describe. Nothing is measured.

    Every plan that is shown is proved. Times are those of hocket simulate. A root is rank 0.

    Examples:

        hocket plan search all_reduce -t torus:2x3 --bytes 1M

        hocket plan search all_reduce -t wan:2x2x2 -b 64K --save mine.py

        hocket bench all_reduce -r 8 -a mine.py:found,two_shot
    """
    from ...search.search import search as searched
    from ..simulate import cluster_of

    if save is not None and save.suffix != ".py":
        raise typer.BadParameter(f"a plan is saved in a file that ends with .py, not {save}", param_hint="--save")
    with told(""):
        where, size = cluster_of(topology, ranks, slow or [], cut or []), parse_size(nbytes)
        with _progress() as report:
            got = searched(collective, size, where, seconds=seconds, seed=seed, shown=SHOWN, report=report)
    also = [f", slow {x}" for x in slow or []] + [f", cut {x}" for x in cut or []]
    said = f"{collective} of {binary(size)} over {where.ranks} ranks: {topology or 'one host'}{''.join(also)}"
    if save is not None:
        if not got.found:
            raise typer.BadParameter("nothing was found that could be saved", param_hint="--save")
        _write(save, got, said, seed)
    if as_json:
        typer.echo(json.dumps(_document(said, size, seed, got), indent=2))
    else:
        _show(said, size, seed, got, save)


def _write(save: Path, got: Searched, said: str, seed: int) -> None:
    from ...search.save import text

    about = f"Found by `hocket plan search`, seed {seed}: {said}, {_seconds(got.found[0])}."
    try:
        save.write_text(text(got.found[0], about))
    except OSError as error:
        raise typer.BadParameter(f"{save} cannot be written: {error.strerror}", param_hint="--save") from error


@contextmanager
def _progress() -> Iterator[Report]:
    """A line that says how far it is, where somebody looks."""
    from rich.console import Console

    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield lambda stage, looked_at, best: None
        return
    with console.status("searching") as status:
        yield lambda stage, looked_at, best: status.update(f"{stage}: {looked_at} plans, best {duration(best)}")


def _seconds(entry: Entry) -> str:
    return duration(entry.took.seconds)


def _show(said: str, size: int, seed: int, got: Searched, save: Path | None) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    heads = (Column(name, no_wrap=True, justify="right") for name in ("time", "rounds", "bytes/rank", "of least"))
    table = Table(Column("", no_wrap=True), *heads, Column("plan"), box=None, padding=(0, 1, 0, 0), pad_edge=False)
    rows = [("found", entry) for entry in got.found] + [("shipped", entry) for entry in got.shipped[:SHOWN]]
    for kind, entry in sorted(rows, key=lambda row: (row[1].took.seconds, row[0] == "found")):
        sent, least = entry.took.bytes_per_rank, float(least_bytes(entry.plan.collective, entry.plan.size)) * size
        table.add_row(
            kind,
            _seconds(entry),
            str(entry.took.rounds),
            f"{three(sent / size)} S",
            f"{three(sent / least)} x",
            entry.title,
        )
    console = Console()
    console.print(f"{said}\n", markup=False, highlight=False)
    console.print(table)
    for line in _why(got, seed, save):
        console.print(line, markup=False, highlight=False)


def _why(got: Searched, seed: int, save: Path | None) -> list[str]:
    if not got.found:
        return ["\nNothing was found: in the time there was, or because there is no way between some ranks."]
    best, lines = got.found[0], list[str]()
    if not got.shipped:
        lines.append("\nNo shipped algorithm can be used here: each speaks where there is no way.")
    elif got.gain >= WORTH:
        shipped = got.shipped[0].title
        lines.append(f"\nThe best found is {three(got.gain)} times as fast as the best shipped, {shipped}.")
    else:
        lines.append(f"\nThe shipped {got.shipped[0].title} is best: nothing was found that is faster.")
    fewest = least_rounds(best.plan.size, best.took.ports)
    lines.append(
        f"Rounds of the found: {best.took.rounds}; with at most {best.took.ports} message"
        f"{'s' if best.took.ports > 1 else ''} of a rank in each, no algorithm has fewer than {fewest}."
    )
    lacks = [WORDS[name] for name in facts_of(best.plan.collective) if not getattr(best.facts, name)]
    lines.append("It is proved, as all of these are" + (f"; it is not: {', '.join(lacks)}." if lacks else "."))
    lines.append(f"Looked at {got.looked_at} plans, seed {seed}.")
    if got.cut_short:
        lines.append(f"Not all could be looked at in the time (of {', '.join(got.cut_short)}): --seconds gives more.")
    if save is not None:
        lines.append(f"Saved: algorithm {save}:found, for {best.plan.size} ranks.")
    return lines


def _document(said: str, size: int, seed: int, got: Searched) -> dict[str, Any]:
    head = {"title": said, "ranks": (got.found or got.shipped)[0].plan.size, "bytes": size, "seed": seed}
    return {
        **head,
        "looked_at": got.looked_at,
        "cut_short": got.cut_short,
        "gain": got.gain,
        "found": [_entry(entry, size) for entry in got.found],
        "shipped": [_entry(entry, size) for entry in got.shipped],
    }


def _entry(entry: Entry, size: int) -> dict[str, Any]:
    plan, took = entry.plan, entry.took
    return {
        "plan": entry.title,
        "seconds": took.seconds,
        "rounds": took.rounds,
        "least_rounds": least_rounds(plan.size, took.ports),
        "ports": took.ports,
        "bytes_per_rank": took.bytes_per_rank,
        "least_bytes_per_rank": float(least_bytes(plan.collective, plan.size)) * size,
        "chunks": plan.chunks,
        "segments": entry.segments,
        "facts": asdict(entry.facts),
        "fingerprint": plan.fingerprint,
        **({"code": entry.code} if entry.code else {}),
    }
