"""`hocket bench`: options to hocket.bench, and its tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from ..bench.peers import Peer
    from ..bench.sweep import Effort

STDOUT = Path("-")
ALONE = ("barrier", "send_recv")  # which know no in place, nor do calls of objects


@dataclass(frozen=True)
class World:
    """So many ranks on one host; or on each of several, whose links carry `rate`."""

    each: int
    hosts: int = 0
    rate: str = ""

    @property
    def ranks(self) -> int:
        return self.each * (self.hosts or 1)

    def __str__(self) -> str:
        if not self.hosts:
            return f"{self.ranks} ranks"
        links = f" with links of {self.rate}" if self.rate else ""
        return f"{self.hosts} hosts x {self.each} rank{'s' if self.each > 1 else ''}{links}"


@dataclass(frozen=True)
class Wanted:
    """What to measure, all of it understood."""

    collectives: list[str]
    sizes: list[int]
    worlds: list[World]
    libraries: dict[str, Peer]
    effort: Effort
    options: dict[str, str]


def bench(
    collectives: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COLLECTIVE]...",
            help="Such as broadcast, barrier, send_recv; with --api torch, ddp and fsdp2; or all.",
        ),
    ] = None,
    begin: Annotated[str, typer.Option("-b", "--begin", metavar="SIZE", help="Smallest size: 8, 1K, 64M.")] = "8",
    end: Annotated[str, typer.Option("-e", "--end", metavar="SIZE", help="Largest size.")] = "64M",
    factor: Annotated[int, typer.Option("-f", "--factor", min=2, help="From one size to the next.")] = 8,
    sizes: Annotated[str, typer.Option(metavar="SIZE,...", help="Exactly these sizes, instead of -b -e -f.")] = "",
    times: Annotated[int, typer.Option("-n", "--iterations", min=1, help="Samples per round, at most.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup", min=0, help="Samples before them that do not count.")] = 2,
    check: Annotated[
        int, typer.Option("-c", "--check", min=0, help="Calls whose result is compared with NumPy's; 0: none.")
    ] = 1,
    ranks: Annotated[
        str, typer.Option("-r", "--ranks", metavar="N,...", help="Numbers of processes. [default: 2]")
    ] = "",
    hosts: Annotated[
        str,
        typer.Option(
            metavar="HxN,...",
            help="Instead of --ranks: N processes on each of H hosts that are network namespaces of this machine, such "
            "as 2x1,2x2. Takes root.",
        ),
    ] = "",
    shape: Annotated[
        str,
        typer.Option(metavar="RATE", help="With --hosts: what each host's link carries, such as 1gbit, or 1gbit/flow."),
    ] = "",
    dtype: Annotated[str, typer.Option("-d", "--dtype", help="Of the elements.")] = "float32",
    op: Annotated[
        str, typer.Option("-o", "--op", help="sum, mean, ... or any binary NumPy ufunc, such as fmax.")
    ] = "sum",
    algorithm: Annotated[
        str,
        typer.Option(
            "-a",
            "--algorithm",
            help="Of `hocket plan list`, or mine.py:ring; several with commas take turns. [default: hocket's choice]",
        ),
    ] = "",
    memory: Annotated[
        Literal["private", "arena"], typer.Option(help="Where arrays lie: anywhere, or in group.empty's.")
    ] = "private",
    form: Annotated[
        Literal["call", "persistent", "async", "protect"],
        typer.Option(help="all_reduce(...), all_reduce_init(...)(), wait(), or with protect=True."),
    ] = "call",
    versus: Annotated[
        str,
        typer.Option(
            "--vs",
            metavar="LIBRARY,...",
            help="Beside hocket: gloo, openmpi, mpich, impi, or all; with --hosts lean, pump, too; or the folder of "
            "another environment, whose hocket takes turns with this one.",
        ),
    ] = "",
    api: Annotated[
        Literal["numpy", "torch"], typer.Option(help="torch: hocket is called through torch.distributed, as gloo is.")
    ] = "numpy",
    rounds: Annotated[int, typer.Option(min=1, help="In each, every library has its turn.")] = 5,
    seconds: Annotated[
        float, typer.Option(min=0.001, help="About so long for one size of one library, up to twice that before.")
    ] = 0.5,
    as_json: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Also write all figures there, for programs; -: to stdout, instead of tables.",
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="The same, as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Also draw time over size.")] = None,
) -> None:
    """Measure how long collectives take, as nccl-tests does, and other libraries beside them.

    A size is that of the whole vector: what an all_reduce takes, an all_gather yields, a reduce_scatter takes apart;
    it is rounded up to whole elements, and to equal parts. busbw is algbw times what nccl-tests gives it.

    A sample: every rank rewrites its input, all meet in the library's own barrier, each times its call, all meet again,
    and the slowest rank counts. Up to 4 KiB a sample is 32 calls in a row. p50 is the median over rounds of their
    medians, p99 that of all samples; best peer / hocket is the median over rounds, too, of what both took in one round.
    The roots of rooted collectives take turns. ddp is what DistributedDataParallel adds to a step of 20 small layers,
    fsdp2 what fully_shard adds to one of a small transformer.

    With --hosts all talk over TCP, by cubic, and within a host over shared memory; MPI is tuned for hosts that share
    their cores. lean is the all-reduce of two ranks in the least loop there is, without frames or Python, and pump only
    moves the bytes that must be moved between hosts: no peers, but what there is to reach.

    Exits with 1 if a result was wrong or a library failed.

    Examples:

        hocket bench -b 8 -e 64M -f 8

        hocket bench all_reduce --ranks 2,4 --vs gloo,openmpi,mpich --plot all_reduce.png

        hocket bench all_reduce --form protect --sizes 8,256K,16M

        hocket bench all_reduce barrier --vs ../before/.venv

        hocket bench scan broadcast_object --sizes 8,1K,256K --vs openmpi,mpich

        hocket bench all_gather send_recv --sizes 1K,1M --dtype bfloat16 --json figures.json

        hocket bench all_reduce barrier ddp fsdp2 --api torch --vs gloo --ranks 2,4

        sudo hocket bench --hosts 2x1,2x2 --vs all --sizes 8,1K,16K,256K,4M,64M

        sudo hocket bench --hosts 2x1,3x1 --shape 1gbit --vs gloo,pump --sizes 4M,64M
    """
    from ..bench.sweep import Effort

    effort = Effort(rounds, times, warmup, check, seconds)
    options = {"dtype": dtype, "op": op, "algorithm": algorithm, "memory": memory, "form": form}
    chosen = collectives or ["all_reduce"]
    worlds = _worlds(ranks, hosts, shape)
    wanted = _understand(chosen, (begin, end, factor, sizes), worlds, (api, versus), effort, options)
    if plot is not None and find_spec("matplotlib") is None:
        raise typer.BadParameter("a plot needs matplotlib: pip install 'hocket[plot]'", param_hint="--plot")
    rows = _measure(wanted, quiet=as_json == STDOUT)
    _write(rows, as_json, csv, plot)
    raise typer.Exit(1 if any(row["wrong"] or row["error"] for row in rows) else 0)


def _understand(
    collectives: list[str],
    sizes: tuple[str, str, int, str],
    worlds: list[World],
    versus: tuple[str, str],
    effort: Effort,
    options: dict[str, str],
) -> Wanted:
    """The options, or typer.BadParameter, which names the one that makes no sense."""
    from ..arrays.ops import NAMES, resolve
    from ..bench.peers.data import COLLECTIVES, OBJECTS, REDUCES, SCANS, TRAINING, kind
    from ..plans.authored import authored, blamed
    from ..plans.prove import proved

    beyond = (*SCANS, *OBJECTS)  # torch.distributed, or its backends
    torchs = (*(c for c in COLLECTIVES if c not in beyond), *TRAINING)
    known = torchs if versus[0] == "torch" else COLLECTIVES
    with _blame("COLLECTIVE"):
        _each_of(collectives, (*known, "all"), f"collective for --api {versus[0]}")
    chosen = list(known) if "all" in collectives else collectives
    libraries = _libraries(*versus, options, across=any(world.hosts for world in worlds))
    with _blame("--sizes" if sizes[3] else "-b, -e, -f"):
        spans = _sizes(*sizes)
    with _blame("--op, --dtype"):
        import numpy as np

        name = options["op"]
        if any(c in REDUCES for c in chosen):
            resolve(name if name in NAMES else getattr(np, name, name), kind(options["dtype"]))
    with _blame("--algorithm"):
        for collective in (c for c in chosen if options["algorithm"] and c not in OBJECTS):
            for world, name in product(worlds, options["algorithm"].split(",")):
                made = authored(name)
                with blamed(name):
                    proved(collective, made, world.ranks)
    return Wanted(chosen, spans, worlds, libraries, effort, options)


def _worlds(ranks: str, hosts: str, shape: str) -> list[World]:
    """What --ranks, --hosts and --shape say; or typer.BadParameter, also where there can be no hosts."""
    from ..bench.hosts import MOST, reason

    if not hosts:
        if shape:
            raise typer.BadParameter("only links between --hosts can be shaped", param_hint="--shape")
        with _blame("--ranks"):
            worlds = [World(int(word)) for word in (ranks or "2").split(",")]
            if min(world.each for world in worlds) < 1:
                raise ValueError("at least one rank")
        return worlds
    with _blame("--hosts"):
        if ranks:
            raise ValueError("it says how many ranks there are on each host; leave --ranks out")
        found = [re.fullmatch(r"(\d+)x(\d+)", word) for word in hosts.split(",")]
        worlds = [World(int(each[2]), int(each[1]), shape) for each in found if each]
        if len(worlds) < len(found) or not all(2 <= world.hosts <= MOST and world.each for world in worlds):
            raise ValueError(f'"{hosts}" is not such as 2x1 or 2x1,4x2: 2 to {MOST} hosts x ranks on each')
        if why := reason():
            raise ValueError(why)
    return worlds


def _sizes(first: str, last: str, factor: int, listed: str) -> list[int]:
    from ..bench.figures import parse_size, sweep_of

    if listed:
        return [parse_size(word) for word in listed.split(",")]
    return sweep_of(parse_size(first), parse_size(last), factor)


def _libraries(api: str, versus: str, options: dict[str, str], *, across: bool) -> dict[str, Peer]:
    """hocket and those beside it; or typer.BadParameter, also for what cannot be said to torch.distributed."""
    from ..bench.peers import APIS, FLOORS, another
    from ..bench.peers.data import TORCH_OPS

    known = APIS[api] | (FLOORS if across and api == "numpy" else {})
    peers = [name for name in known if name != "hocket"]
    beside = peers if versus == "all" else [word for word in versus.split(",") if word]
    with _blame("--vs"):
        _each_of([word for word in beside if "/" not in word], peers, f"library for --api {api}")
        others = {f"hocket {word}": another(api, word) for word in beside if "/" in word}
    if api == "torch":
        sayable = {"algorithm": [""], "memory": ["private"], "form": ["call", "async"], "op": TORCH_OPS}
        for name, words in sayable.items():
            if options[name] not in words:
                raise typer.BadParameter(f'torch.distributed has no "{options[name]}"', param_hint=f"--{name}")
        if find_spec("torch") is None:
            raise typer.BadParameter("it needs torch: pip install 'hocket[torch]'", param_hint="--api torch")
    return {name: known[name] for name in ("hocket", *beside) if name in known} | others


@contextmanager
def _blame(option: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _each_of(words: list[str], known: Any, what: str) -> None:
    for word in words:
        if word not in known:
            raise ValueError(f'there is no {what} called "{word}", only {", ".join(known)}')


def _measure(wanted: Wanted, quiet: bool) -> list[dict[str, Any]]:
    """All rows. Tables appear as soon as they are complete; progress, and who is missing, on stderr."""
    from rich.console import Console
    from rich.progress import Progress

    from ..bench.hosts import hosts
    from ..bench.session import LibraryFailed
    from ..bench.sweep import Field, task_for

    rows: list[dict[str, Any]] = []
    errors = Console(stderr=True)
    progress = Progress(console=errors, auto_refresh=False, transient=True, disable=not errors.is_terminal)
    with progress:
        bar = progress.add_task("", total=len(wanted.worlds) * sum(len(_cases(c, wanted)) for c in wanted.collectives))
        for world in wanted.worlds:
            progress.update(bar, description=f"starting {world}", refresh=True)
            with ExitStack() as stack:
                try:
                    made = stack.enter_context(hosts(world.hosts, rate=world.rate, congestion="cubic"))
                    field = stack.enter_context(Field(wanted.libraries, world.ranks, made))
                except (LibraryFailed, OSError) as error:
                    errors.print(str(error), markup=False, highlight=False)
                    raise typer.Exit(1) from None
                for reason in field.absent.values():
                    errors.print(reason, markup=False, highlight=False)
                for collective in wanted.collectives:
                    mine = []
                    for nbytes, in_place in _cases(collective, wanted):
                        progress.update(bar, description=f"{collective}, {world}, {nbytes} bytes", refresh=True)
                        task = task_for(
                            collective, nbytes, world.ranks, wanted.effort, in_place=in_place, **wanted.options
                        )
                        mine += field.compare(task, wanted.effort)
                        progress.advance(bar)
                    rows += mine
                    if not quiet:
                        _print(mine, collective, world)
    for text in dict.fromkeys(row["error"] for row in rows if row["error"]):
        errors.print(text, markup=False, highlight=False)
    return rows


def _cases(collective: str, wanted: Wanted) -> list[tuple[int, bool]]:
    """Sizes, out of place and in place, where there is a difference."""
    from ..bench.peers.data import TRAINING

    if collective in ("barrier", *TRAINING):
        return [(0, False)]
    ways = (False,) if collective in ALONE or collective.endswith("_object") else (False, True)
    return [(size, way) for size in wanted.sizes for way in ways]


def _print(rows: list[dict[str, Any]], collective: str, world: World) -> None:
    from rich.console import Console

    from ..bench.show import machine, own_table, versus_table

    console = Console()
    room = 156 if any(row["predicted_us"] is not None for row in rows) else 140
    if not console.is_terminal:
        console.width = room
    place = f"{collective}, {world} on {machine()['cores']} cores"
    own = [row for row in rows if row["key"] == "hocket"]
    own = [row for row in own if not row["lacks"]] or own  # torch has most calls in one way only
    split = console.width < room  # nccl-tests' two halves side by side want some room, and one of them some
    for part in ([row for row in own if row["in_place"] == way] for way in (False, True)) if split else (own,):
        if part:
            title = f"{part[0]['library'] or 'hocket'}: {place}"
            console.print(own_table(part, title, narrow=console.width < room - 50))
    for way in (False, True):
        beside = [row for row in rows if row["in_place"] == way]
        if any(row["samples"] for row in beside if row["key"] != "hocket"):
            console.print(versus_table(beside, f"{place}, {'in place' if way else 'out of place'}, median time"))


def _write(rows: list[dict[str, Any]], as_json: Path | None, csv: Path | None, plot: Path | None) -> None:
    from ..bench import show

    if as_json == STDOUT:
        show.write_json(rows, sys.stdout)
    elif as_json is not None:
        with as_json.open("w") as file:
            show.write_json(rows, file)
    if csv is not None:
        with csv.open("w", newline="") as file:
            show.write_csv(rows, file)
    if plot is not None:
        from ..bench.plot import plot as draw

        draw(rows, plot)
