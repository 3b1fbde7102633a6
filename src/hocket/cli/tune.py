"""`hocket tune`: measures this machine, or a group of hosts, and keeps what came of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..config import Config

MOST = 16  # ranks that are started for it


def tune(
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", "-n", min=2, help="How many are started. [default: two per core, at most 16]"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the profile there. [default: in the user's cache]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The profile, for programs.")] = False,
    silent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Measure what calls cost on this machine, in some seconds, and keep that as its profile.

    From then on groups on this host choose algorithms by it (`hocket choose` says which, and why),
    and `hocket bench` prints its prediction beside each time. Results have the same bits as without. The machine should
    have nothing else to do meanwhile.

    Started by `hocket run` on several hosts it measures what lies between them, too, and keeps it on each. The profile
    is in $XDG_CACHE_HOME/hocket (~/.cache/hocket), a file for each kind of machine; HOCKET_PROFILE names another file,
    or none.

    Examples:

        hocket tune

        hocket run -n 2 --nnodes 2 --node-rank 0 --rendezvous tcp://first:4711 -m hocket tune    (and on the other host)
    """
    from ..config import Config
    from ..config.observed import profile_place
    from ..errors import RendezvousError
    from ..tuning.saved import file_of

    try:
        config = Config.from_env()
    except RendezvousError as error:
        raise typer.BadParameter(str(error)) from None
    place, is_file = profile_place()
    if file is None and place is None:
        raise typer.BadParameter(
            "there is no place to keep a profile (HOCKET_PROFILE=none, or no HOME)", param_hint="--file"
        )
    path = (file or file_of(place or Path(), is_file)).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"it cannot be written to {path}: {error.strerror}", param_hint="--file") from None
    if config.launcher != "none":
        if ranks is not None:
            raise typer.BadParameter("these ranks have been started already; leave it out", param_hint="--ranks")
        _measure(path, config)
    else:
        _start(ranks, path)
    if config.rank == 0 and not silent:
        _show(path, as_json=as_json)


def _start(ranks: int | None, path: Path) -> None:
    """The same command, as that many ranks; or as one for each core, and then as two."""
    from ..launch.command import run_command
    from ..tuning.topology import this_host

    cores = this_host().cores
    sizes = [ranks] if ranks else [size for size in (min(cores, MOST), 2 * cores) if 2 <= size <= MOST]
    for size in sizes or [2]:
        words = [sys.executable, "-m", "hocket", "tune", "--file", str(path), "--silent"]
        if code := run_command(words, size, tag_output=False):
            raise typer.Exit(code)


def _measure(path: Path, config: Config) -> None:
    """As a rank of the group."""
    from rich.console import Console
    from rich.progress import Progress

    from ..bench.calibration import tune as tuned
    from ..errors import HocketError

    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=bool(config.rank) or not errors.is_terminal) as progress:
        bar = progress.add_task("", total=1)

        def told(what: str, done: int, of: int) -> None:
            progress.update(bar, description=what, completed=done, total=of)

        try:
            tuned(path, keeps=config.local_rank == 0, told=told)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        except HocketError as error:
            errors.print(str(error), markup=False, highlight=False)
            raise typer.Exit(1) from None
        except OSError as error:
            errors.print(f"the profile cannot be written to {path}: {error.strerror}", markup=False, highlight=False)
            raise typer.Exit(1) from None


def _show(path: Path, *, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from ..bench.figures import duration, three
    from ..tuning.profile import REGIMES
    from ..tuning.saved import load

    profile, said = load(path)
    fits = said.get("fits", {})
    if as_json:
        typer.echo(json.dumps({"file": str(path), **said, **profile.plain()}, indent=1))
        return
    names = ("ranks", "call", "latency", "message", "bytes", "folding", "fit")
    columns = (Column(name, justify="right", no_wrap=True) for name in names)
    table = Table("regime", *columns, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in REGIMES:
        if (regime := getattr(profile, name)) is None:
            continue
        costs, fit = regime.costs, fits.get(name, {})
        table.add_row(
            name,
            fit.get("ranks", "-"),
            duration(regime.call),
            duration(costs.alpha if name == "far" else costs.local),
            duration(costs.send + costs.receive),
            f"{three(1e-9 / (costs.nic if name == 'far' else costs.shm[0][1]))} GB/s",
            f"{three(1e-9 / costs.reduce)} GB/s",
            f"{fit['median_error']:.0%}" if "median_error" in fit else "-",
        )
    console = Console()
    console.print(table)
    console.print(
        "\nfit: the median of |predicted / measured - 1|, over the calls that were measured.", highlight=False
    )
    console.print(f"Kept in {path}", markup=False, highlight=False, soft_wrap=True)
