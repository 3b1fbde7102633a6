"""`hocket choose`: which algorithm a call takes, and why."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..bench.figures import binary, duration, parse_size, three
from ..plans.algorithms import names
from ..plans.collectives import find
from .plan.sizes import the_root, told
from .simulate import Row, amount, cluster_of, row_of

if TYPE_CHECKING:
    from ..tuning.cluster import Cluster
    from ..tuning.profile import Profile
    from ..tuning.topology import Topology


class Told(NamedTuple):
    """What is shown: the call, by what times are predicted, who is chosen, why, and all algorithms, the fastest
    first. `call` are seconds that any call takes beside what its algorithm does."""

    title: str
    basis: str
    chosen: str
    reason: str
    call: float
    rows: list[Row]
    among: tuple[str, ...]
    left_out: dict[str, str]


def choose(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce.")],
    nbytes: Annotated[str, typer.Argument(metavar="SIZE", help="Of the vector: 8, 64K, 1GiB.")] = "1MiB",
    ranks: Annotated[
        str, typer.Option("--ranks", "-n", metavar="N|HxN", help="So many, or N on each of H hosts. [default: 2]")
    ] = "",
    topology: Annotated[
        str,
        typer.Option(
            "--topology", "-t", metavar="SPEC", help="A cluster as for `hocket simulate`, instead of this machine."
        ),
    ] = "",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="All figures, for programs.")] = False,
) -> None:
    """Say which algorithm a call takes that names none, what each would take, and why that one is chosen.

    Times are predicted with the costs that `hocket tune` has measured of this machine; without them, sizes decide that
    were measured once and for all. With --topology they are those of a cluster that you describe. A choice is made only
    among algorithms whose results have the same bits.

    Examples:

        hocket choose all_reduce 64K --ranks 4

        hocket choose all_reduce 1M --ranks 4x8 --topology flat:x8,nic=25Gbit/s

        hocket choose broadcast 16M --ranks 2x4 --json
    """
    with told(""):
        spec = find(collective)
        size = parse_size(nbytes) if spec.name != "barrier" else 0
        places = _places(ranks, topology)
        said = (
            _by_topology(spec.name, size, places, topology, root) if topology else _here(spec.name, size, places, root)
        )
    if as_json:
        typer.echo(json.dumps(_document(said), indent=2))
    else:
        _show(said)


def _places(ranks: str, topology: str) -> tuple[int, ...] | None:
    """The hosts of the ranks; None where the topology tells."""
    found = re.fullmatch(r"(?:(\d{1,6})x)?(\d{1,6})", ranks or ("" if topology else "2"))
    if not ranks and topology:
        return None
    if not found or 0 in (hosts := int(found[1] or 1), each := int(found[2])):
        raise ValueError(
            f"--ranks is a number of ranks, such as 8, or hosts x ranks on each, such as 4x8, not {ranks!r}"
        )
    if hosts * each > 1 << 20:
        raise ValueError(f"--ranks {ranks}: there are 1 to {1 << 20} ranks")
    return tuple(host for host in range(hosts) for _ in range(each))


def _by_topology(collective: str, nbytes: int, places: tuple[int, ...] | None, topology: str, root: int) -> Told:
    """What would be chosen on a cluster that is described, with the costs that it is given."""
    from ..tuning.choose import candidates
    from ..tuning.topology import Topology

    where = cluster_of(topology, None if places is None else len(places), [], [])
    if places is not None and len(set(places)) > 1 and where.places != places:
        raise ValueError(f"{topology} has {where.ranks} ranks on {where.hosts} hosts, and --ranks says it otherwise")
    the_root(collective, root, where.ranks)
    rows, left_out = _rows(collective, nbytes, where, root)
    among = candidates(collective, Topology.of(where.places))
    best = next((row for row in rows if row.algorithm in among), None)
    if best is None:
        raise ValueError(f"no plan of {collective} over {where.ranks} ranks fits into memory")
    title = f"{collective} of {binary(nbytes)} over {where.ranks} ranks: {topology}"
    reason = f"the fastest of {', '.join(among)}" if among[1:] else "the only one of its kind"
    basis = "Predicted with the costs of this topology, as by `hocket simulate`."
    return Told(title, basis, best.algorithm, reason, 0.0, rows, among, left_out)


def _here(collective: str, nbytes: int, places: tuple[int, ...] | None, root: int) -> Told:
    """What a group on this machine, or on several like it, takes."""
    from ..config.observed import profile_place
    from ..tuning.choose import candidates
    from ..tuning.choose import choose as chosen
    from ..tuning.predict import cluster_of as measured
    from ..tuning.predict import regime_of
    from ..tuning.saved import found
    from ..tuning.topology import Topology

    assert places is not None
    the_root(collective, root, len(places))
    profile, why = found(*profile_place())
    topology = Topology.of(places, profile=profile)
    choice = chosen(collective, nbytes, len(places), topology)
    regime = regime_of(profile, places)
    rows, left_out = list[Row](), dict[str, str]()
    if profile is not None and regime is not None:
        rows, left_out = _rows(collective, nbytes, measured(profile, places, regime), root)
    title = f"{collective} of {binary(nbytes)} over {len(places)} ranks: {_where(topology)}"
    call = regime.call if regime else 0.0
    return Told(
        title, _basis(profile, why, bool(rows)), *choice, call, rows, candidates(collective, topology), left_out
    )


def _where(topology: Topology) -> str:
    return "this machine" if topology.hosts == 1 else f"{topology.hosts} hosts like this machine"


def _basis(profile: Profile | None, why: str, is_told: bool) -> str:
    if is_told:
        return "Predicted with this machine's profile, which overrules built-in sizes for a clear gain only."
    if profile is None:
        return f"No times: {why or 'this machine has no profile; `hocket tune` makes one'}."
    return "No times: `hocket tune` has not measured ranks that lie like this."


def _rows(collective: str, nbytes: int, where: Cluster, root: int) -> tuple[list[Row], dict[str, str]]:
    """All algorithms, the fastest first, and why others are left out."""
    rows, left_out = list[Row](), dict[str, str]()
    for name in names(collective):
        row = row_of(collective, name, where, nbytes, root, 1)
        if isinstance(row, Row):
            rows.append(row)
        else:
            left_out[name] = row
    return sorted(rows, key=lambda row: row.took.seconds), left_out


def _show(said: Told) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console()
    console.print(f"{said.title}\n", markup=False, highlight=False)
    if said.rows:
        least = min(row.took.seconds for row in said.rows if row.algorithm == said.chosen) + said.call
        heads = [Column(name, no_wrap=True, justify="right") for name in ("time", "/ chosen", "rounds", "bytes/rank")]
        table = Table(
            Column("algorithm", no_wrap=True),
            *heads,
            Column("", justify="right"),
            box=None,
            padding=(0, 2, 0, 0),
            pad_edge=False,
        )
        for row in said.rows:
            seconds = row.took.seconds + said.call
            note = "possible" if row.algorithm in said.among else "when named"
            table.add_row(
                row.algorithm,
                duration(seconds),
                three(seconds / least) if least else "-",
                str(row.took.rounds),
                amount(row.took.bytes_per_rank),
                "chosen" if row.algorithm == said.chosen else note,
            )
        console.print(table)
        console.print()
    lines = [f"chosen: {said.chosen}, {said.reason}.", said.basis]
    for line in (*lines, *(f"{name} is left out: {why}." for name, why in said.left_out.items())):
        console.print(line, markup=False, highlight=False)


def _document(said: Told) -> dict[str, Any]:
    each = [
        {
            "algorithm": row.algorithm,
            "seconds": row.took.seconds + said.call,
            "rounds": row.took.rounds,
            "bytes_per_rank": row.took.bytes_per_rank,
            "chosen_among": row.algorithm in said.among,
        }
        for row in said.rows
    ]
    head = {"title": said.title, "basis": said.basis, "chosen": said.chosen, "reason": said.reason}
    return {**head, "chosen_among": list(said.among), "algorithms": each, "left_out": said.left_out}
