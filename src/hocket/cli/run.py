"""`hocket run`: options to `run_command`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .quick import size_of

# What comes behind the program belongs to the program, whatever it looks like.
SETTINGS = {"allow_interspersed_args": False}


def _size(text: str) -> int:
    try:
        return size_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM [ARGS]...", help="A .py file or any program, and its arguments.")
    ],
    size: Annotated[
        int, typer.Option("-n", "--size", parser=_size, metavar="N|auto", help="How many ranks; auto: one per core.")
    ] = "auto",  # type: ignore[assignment]
    module: Annotated[bool, typer.Option("-m", "--module", help="PROGRAM is a Python module.")] = False,
    tag_output: Annotated[
        bool | None,
        typer.Option(
            "--tag-output/--no-tag-output",
            help="Begin each line with its rank, [2]. Default: of several ranks, at a terminal.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="End the whole job after that time, with code 124."),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Time between SIGTERM and SIGKILL when the job is ended.")
    ] = 5.0,
    max_restarts: Annotated[
        int,
        typer.Option(min=0, metavar="K", help="How many times ranks that fail are started again, in all."),
    ] = 0,
    min_ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many ranks are enough to go on, once no restart is left. Default: all.",
            show_default=False,
        ),
    ] = None,
    nnodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many hosts; on each of them this command is started.")
    ] = 1,
    node_rank: Annotated[
        int | None, typer.Option(min=0, metavar="K", help="Which of the hosts this one is, from 0.")
    ] = None,
    rendezvous: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Where the ranks of several hosts meet: an address of host 0."),
    ] = None,
    preload: Annotated[
        str | None,
        typer.Option(
            metavar="MODULES",
            help="Import these (numpy,torch), and hocket, once, and fork the ranks: many start sooner.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve metrics to Prometheus there, and at the next ports for the next ranks."
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write timelines of all calls there, for ui.perfetto.dev.")
    ] = None,
) -> None:
    """Run a program as several ranks on this host, or on each of several.

    Every rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and what hocket.init() needs to find the others; for
    torch.distributed, MASTER_ADDR and MASTER_PORT (a free port), unless they are set.
    OMP_NUM_THREADS is set to 1 for more than one rank, unless it is set: ranks share the cores.

    Rank 0 reads the terminal; the others read nothing. When a rank fails, the others are ended, its error is what you
    see last, and its exit code (128 + signal if it was killed) is the job's. Equal errors of several ranks are shown
    once, without hocket's own lines (python -X dev shows these). Ctrl-C ends all; a second one at once.

    With --max-restarts a rank that fails is started again; with --min-ranks the others go on without it, once no
    restart is left and as long as they are enough. The others are left alone, and their program calls group.recover();
    the one that was started again joins them in hocket.init(). Where there is nobody to join, before the ranks have met
    or after all have failed, all are ended and started again, which is one restart. Each failure is told as it happens.
    The exit code is 0 if all ended well at last, or if at least --min-ranks did and the others were given up.

    With --preload each rank is a fork of a process that has imported those modules, and hocket's, and shares their
    memory. What reads RANK or the clock when it is imported, opens a GPU or starts threads, is none of them.

    With --no-tag-output ranks write to the terminal themselves: colours, progress bars and editors work as alone.

    Examples:

        hocket run -n 4 train.py --epochs 3

        hocket run -n auto --tag-output -m my_package.train

        hocket run -n 2 --timeout 60 ./my_program -v

        hocket run -n 4 --max-restarts 3 --min-ranks 2 train.py    (goes on when a rank dies)

        hocket run -n 16 --preload torch,hocket.torch train.py    (torch is imported once, not 16 times)

        hocket run -n 4 --metrics 9400 train.py    (Prometheus asks the ports 9400 to 9403)

        hocket run -n 4 --trace timelines train.py    (and open timelines/trace.json at https://ui.perfetto.dev)

    On two hosts, with one HOCKET_SECRET (openssl rand -hex 16) in the environment of both:

        hocket run -n 4 --nnodes 2 --node-rank 0 --rendezvous tcp://first:4711 train.py

        hocket run -n 4 --nnodes 2 --node-rank 1 --rendezvous tcp://first:4711 train.py
    """
    from ..config.children import Node
    from ..config.observed import metrics_address
    from ..errors import RendezvousError
    from ..launch.command import command_line, preloaded, reason, run_command
    from .trace import merge_timelines

    try:
        argv = command_line(command, module=module)
        node = Node.of(node_rank, nnodes, rendezvous)
        if min_ranks is not None and min_ranks > size:
            raise ValueError(f"--min-ranks {min_ranks} is more than there are: -n {size}")
        metrics_address({"HOCKET_METRICS": metrics or ""})
        modules = preloaded(argv, preload)
    except (ValueError, RendezvousError) as error:
        raise typer.BadParameter(str(error)) from None
    try:
        if trace is not None and node_rank in (None, 0):
            from ..observe.timeline import clear  # with NumPy, which the launcher does without

            clear(trace)
        code = run_command(
            argv,
            size,
            tag_output=tag_output,
            timeout=timeout,
            grace=grace,
            node=node,
            metrics=metrics,
            trace=trace,
            max_restarts=max_restarts,
            min_ranks=min_ranks,
            preload=modules,
        )
        if trace is not None:
            merge_timelines(trace)
    except (OSError, RendezvousError) as error:  # not executable after all, or too many processes or open files
        typer.echo(f"hocket run: {reason(error)}", err=True)
        code = 126
    raise typer.Exit(code)
