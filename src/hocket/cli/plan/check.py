"""`hocket plan check`: whether an algorithm keeps its promise, over as many ranks as it is meant for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...plans.algorithms import Algorithm, names, resolve
from ...plans.check import Facts
from ...plans.collectives import find
from ...plans.plan import Plan
from ...plans.prove import proved
from ...words import spans
from .sizes import algorithm_of, ranks_of, the_root, told
from .tables import WORDS, facts_of


def check(
    collective: Annotated[str, typer.Argument(help="Such as all_reduce.")],
    algorithm: Annotated[
        str, typer.Argument(help="mine.py:ring for a function of yours, or a name. Without it: all there are.")
    ] = "",
    size: Annotated[
        str,
        typer.Option(
            "--size",
            "-n",
            metavar="N,N-M",
            help="Number of ranks, or several: 1-64, or 2,4,8. [default: 1-16, or that of a plan file]",
        ),
    ] = "",
    root: Annotated[int, typer.Option(min=0, help="For broadcast, reduce, scatter and gather.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Prove that an algorithm does what its collective promises, and say what else is true of it.

    Exits with 1 where it does not, and says for how many ranks, in which step, and why.

    Examples:

        hocket plan check all_reduce mine.py:ring -n 1-64

        hocket plan check broadcast --root 2 -n 3-8
    """
    with told(algorithm):
        every = [algorithm] if algorithm else names(find(collective).name)
        functions = [_function(collective, name) for name in every]
    counts = ranks_of(size, functions[0], "1-16")
    the_root(collective, root, counts[0])
    verdicts = [_verdict(collective, *each, counts, root) for each in zip(every, functions, strict=True)]
    if as_json:
        import json

        typer.echo(json.dumps(verdicts))
    else:
        for verdict in verdicts:
            _tell(verdict)
    raise typer.Exit(0 if all(verdict["right"] for verdict in verdicts) else 1)


def _function(collective: str, name: str) -> Algorithm | Plan:
    """What a name stands for."""
    found = algorithm_of(name)
    return found if isinstance(found, Plan) else resolve(collective, found)[1]


def _verdict(collective: str, name: str, algorithm: Algorithm | Plan, counts: list[int], root: int) -> dict[str, Any]:
    """Whether it is right; then, for each fact, over which of the numbers of ranks it is true; else what is wrong."""
    head = {"collective": collective, "algorithm": name}
    facts: dict[int, Facts] = {}
    try:
        for size in counts:
            with told(name):
                facts[size] = proved(collective, algorithm, size, root).facts
    except typer.BadParameter as wrong:
        return {**head, "right": False, "ranks": [size], "why": wrong.message}
    true = {fact: [size for size in counts if getattr(facts[size], fact)] for fact in facts_of(collective)}
    return {**head, "right": True, "ranks": counts, "facts": true}


def _tell(verdict: dict[str, Any]) -> None:
    counts = verdict["ranks"]
    about = f"{verdict['collective']} {verdict['algorithm']} over {_ranks(counts)} is"
    if not verdict["right"]:
        typer.echo(f"{about} wrong: {verdict['why']}")
        return
    typer.echo(f"{about} right")
    for fact, those in verdict["facts"].items():
        said = "yes" if those == counts else f"over {_ranks(those)}" if those else "no"
        typer.echo(f"  {WORDS[fact]}: {said}")


def _ranks(numbers: list[int]) -> str:
    """`1-4, 8 ranks`."""
    return f"{spans(numbers)} rank{'' if numbers == [1] else 's'}"
