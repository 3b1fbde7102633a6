"""`hocket check`: whether an algorithm keeps its promise, over as many ranks as it is meant for."""

from __future__ import annotations

from typing import Annotated

import typer

from ..plans.algorithms import Algorithm, names, resolve
from ..plans.check import Facts
from ..plans.collectives import find
from ..plans.prove import proved
from ..words import spans
from .show import WORDS, facts_of
from .sizes import algorithm_of, sizes, the_root, told


def check(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce.")],
    algorithm: Annotated[
        str, typer.Argument(help="mine.py:ring for a function of yours, or a name. Without it: all there are.")
    ] = "",
    size: Annotated[str, typer.Option("--size", "-n", metavar="N|N-M", help="Number of ranks, or several.")] = "1-16",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
) -> None:
    """Prove that an algorithm does what its collective promises, and say what else is true of it.

    Exits with 1 where it does not, and says for how many ranks, in which step, and why.

    Examples:

        hocket check all_reduce mine.py:ring -n 1-64

        hocket check broadcast --root 2 -n 3-8
    """
    counts = sizes(size)
    the_root(collective, root, counts[0])
    with told(algorithm):
        every = [algorithm] if algorithm else names(find(collective).name)
        functions = [resolve(collective, algorithm_of(name))[1] for name in every]
    good = [_holds(collective, *each, counts, root) for each in zip(every, functions, strict=True)]
    raise typer.Exit(0 if all(good) else 1)


def _holds(collective: str, name: str, algorithm: Algorithm, counts: range, root: int) -> bool:
    facts: dict[int, Facts] = {}
    try:
        for size in counts:
            with told(name):
                facts[size] = proved(collective, algorithm, size, root).facts
    except typer.BadParameter as wrong:
        typer.echo(f"{collective} {name} over {_ranks([size])} is wrong: {wrong.message}")
        return False
    typer.echo(f"{collective} {name} over {_ranks(list(counts))} is right")
    for fact in facts_of(collective):
        those = [size for size in counts if getattr(facts[size], fact)]
        said = "yes" if len(those) == len(counts) else f"over {_ranks(those)}" if those else "no"
        typer.echo(f"  {WORDS[fact]}: {said}")
    return True


def _ranks(numbers: list[int]) -> str:
    """`1-4, 8 ranks`."""
    return f"{spans(numbers)} rank{'' if numbers == [1] else 's'}"
