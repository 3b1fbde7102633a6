"""Numbers of ranks, hosts and algorithms, as commands take them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from ...plans.algorithms import Algorithm
from ...plans.algorithms.lanes import Places
from ...plans.authored import authored, blamed
from ...plans.collectives import find
from ...plans.plan import Plan

MOST = 1 << 14
STDOUT = Path("-")


def sizes(text: str) -> list[int]:
    """`4`, `1-64`, or `2,4,8-16`, in ascending order. Raises typer.BadParameter."""
    wanted = set[int]()
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= least <= most <= MOST:
            raise typer.BadParameter(
                f"--size is a number of ranks, such as 8, or several, such as 1-64 or 2,4,8, not {text!r}"
            )
        wanted.update(range(least, most + 1))
    return sorted(wanted)


def places_of(hosts: str) -> Places:
    """The host of each rank, from how many each has, `4,4,2`; None where nothing is said. Raises typer.BadParameter."""
    try:
        sizes = [int(size) for size in hosts.split(",")] if hosts else []
    except ValueError:
        sizes = [0]
    if any(size < 1 for size in sizes):
        raise typer.BadParameter(f"--hosts tells how many ranks each host has, such as 4,4,2, not {hosts!r}")
    return tuple(host for host, size in enumerate(sizes) for _ in range(size)) or None


def the_root(collective: str, root: int, least: int) -> None:
    """Raises typer.BadParameter where the fewest ranks have not that root, the collective has none, or is none."""
    if root >= least:
        raise typer.BadParameter(f"--root {root} is none of the ranks, which are 0 to {least - 1}")
    with told(""):
        rooted = not collective or find(collective).rooted
    if root and not rooted:
        raise typer.BadParameter(f"--root {root}: {collective} has no root")


def algorithm_of(text: str) -> str | Algorithm | Plan:
    """A name of the book, the function of file.py:function, or the plan in a file. Raises typer.BadParameter."""
    with told(text):
        return authored(text)


def ranks_of(text: str, algorithm: str | Algorithm | Plan, default: str) -> list[int]:
    """The numbers of ranks that a text says; where it says nothing, that of a plan, or the default."""
    return sizes(text or (str(algorithm.size) if isinstance(algorithm, Plan) else default))


def algorithms_of(text: str) -> dict[str, str | Algorithm | Plan]:
    """The same of several, which commas divide, by what they are called there."""
    return {name: algorithm_of(name) for name in text.split(",")}


@contextmanager
def told(text: str) -> Iterator[None]:
    """What is wrong with an algorithm is one sentence, as typer.BadParameter."""
    try:
        with blamed(text):
            yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def written(file: Path, text: str) -> None:
    """Write a text into a file, or to stdout. Raises typer.BadParameter."""
    if file == STDOUT:
        typer.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from error
