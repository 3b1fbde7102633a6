"""A cluster as its user describes it: hosts, ranks on them, what lies between, and what everything costs.

    4x8                                     4 hosts with 8 ranks each; every two hosts are as near as any other two
    fat-tree:64x8,oversubscription=2        hosts under leaf switches, whose way up carries half of what is below
    rail:16x8                               a NIC for each rank; the r-th of all hosts hang on one switch, the rail r
    ring:8x4   torus:4x4x4,ranks=2          hosts with links to their neighbours only
    wan:2x16x8,between=1Gbit/s              2 sites of 16 hosts
    flat:x8                                 as many hosts as the number of ranks takes

or the same keys in a file: TOML, or JSON. `cluster("4x8")` reads either. Ranks lie on hosts in blocks.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .cluster import Cluster, Matrix
from .costs import Costs
from .units import per_byte, pieces, seconds

KINDS = ("flat", "fat-tree", "rail", "ring", "torus", "wan")
MOST_RANKS = 1 << 20

_COSTS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("alpha", "hop", "local", "send", "receive", "distance"), seconds),
    **dict.fromkeys(("nic", "memory", "reduce", "between"), per_byte),
    "shm": pieces,
}
_OTHERS = ("cores", "nics", "ranks", "oversubscription", "leaf", "rates", "distances")
_ONLY = {
    "oversubscription": ("fat-tree", "rail"),
    "leaf": ("fat-tree",),
    "nics": ("flat", "fat-tree", "rail", "wan"),
    "ranks": ("torus",),
    "between": ("wan",),
    "distance": ("wan",),
    "rates": ("wan",),
    "distances": ("wan",),
}


def cluster(text: str, ranks: int | None = None) -> Cluster:
    """The cluster of a text such as `fat-tree:64x8,nic=200Gbit/s`, or of a file that ends with .toml or .json. `ranks`:
    so many it must have. Raises ValueError that says what is allowed."""
    said = _file(Path(text)) if text.endswith((".toml", ".json")) else _text(text)
    try:
        made = _made(said, ranks)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error
    if ranks is not None and made.ranks != ranks:
        raise ValueError(
            f"{text}: this cluster has {made.ranks} ranks, not {ranks}; flat:x8 has as many hosts as it takes"
        )
    return made


def _text(text: str) -> dict[str, Any]:
    head, *options = text.split(",")
    kind, _, shape = head.rpartition(":")
    said: dict[str, Any] = {"kind": kind or "flat", "shape": shape}
    for option in options:
        key, sign, value = option.partition("=")
        if not sign or key.strip() in said:
            raise ValueError(f"{text}: after the shape come key=value with commas, each key once, not {option!r}")
        said[key.strip()] = value.strip()
    return said


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
        if path.suffix == ".json":
            said = json.loads(text)
        else:
            if sys.version_info < (3, 11):
                raise ValueError("TOML needs Python 3.11; the same keys may be in a .json")
            import tomllib

            said = tomllib.loads(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(said, dict) or "shape" not in said:
        raise ValueError(f'{path}: a cluster has at least a shape, such as shape = "4x8"')
    return {"kind": "flat", **said}


def _made(said: Mapping[str, Any], ranks: int | None) -> Cluster:
    kind = said["kind"]
    if kind not in KINDS:
        raise ValueError(f"there is no kind of cluster {kind!r}; there are {', '.join(KINDS)}")
    allowed = [key for key in (*_COSTS, *_OTHERS) if kind in _ONLY.get(key, KINDS) or (kind, key) == ("ring", "ranks")]
    for key in said.keys() - {"kind", "shape", *allowed}:
        raise ValueError(f"{kind} has no {key!r}; it has {', '.join(allowed)}")
    costs = Costs(**{key: _read(key, _COSTS[key], said[key]) for key in _COSTS if key in said})
    sizes, sides, sites = _shape(kind, said["shape"], _whole(said, "ranks", 1), ranks)
    if not 0 < sum(sizes) <= MOST_RANKS:
        raise ValueError(f"{sum(sizes)} ranks: there are 1 to {MOST_RANKS}")
    nics = said.get("nics", "rank" if kind == "rail" else "host")
    if nics not in ("host", "rank") or (kind == "rail" and nics == "host"):
        raise ValueError(f"nics is host or rank, for whom there is one each (on rails rank), not {nics!r}")
    over = _read("oversubscription", float, said.get("oversubscription", 1))
    if not 0 < over < math.inf:
        raise ValueError(f"oversubscription is a number above 0, such as 2, not {over}")
    made = Cluster(
        "torus" if kind == "ring" else kind,
        sizes,
        costs,
        _whole(said, "cores", 0),
        nics,
        over,
        _whole(said, "leaf", 16),
        sides,
        sites,
    )
    return _wan(made, said) if kind == "wan" else made


def _read(key: str, how: Callable[[Any], Any], value: Any) -> Any:
    try:
        return how(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{key}: {error}") from error


def _whole(said: Mapping[str, Any], key: str, default: int) -> int:
    value = said.get(key, default)
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", str(value)) or (int(value) < 1 and key in said):
        raise ValueError(f"{key} is a whole number above 0, not {value!r}")
    return int(value)


def _shape(kind: str, shape: Any, each: int, ranks: int | None) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Ranks on each host, the sides of a torus, and the number of sites."""
    if isinstance(shape, list) and kind in ("flat", "fat-tree", "rail", "ring"):
        if not shape or not all(type(size) is int and size > 0 for size in shape):
            raise ValueError(f"a shape that is a list has the number of ranks of each host, not {shape}")
        return tuple(shape), (len(shape),) if kind == "ring" else (), 1
    if found := re.fullmatch(r"x(\d{1,7})", str(shape)):
        if ranks is None or int(found[1]) < 1 or kind in ("torus", "wan"):
            raise ValueError(f"{shape} takes as many hosts as a number of ranks needs: say that too, with --ranks")
        full, rest = divmod(ranks, int(found[1]))
        sizes = (int(found[1]),) * full + ((rest,) if rest else ())
        return sizes, (len(sizes),) if kind == "ring" else (), 1
    if not re.fullmatch(r"\d{1,12}(x\d{1,12}){0,3}", str(shape)) or 0 in (numbers := [*map(int, shape.split("x"))]):
        raise ValueError(f"a shape is hosts x ranks on each, such as {kind}:4x8, or x8, not {shape!r}")
    if math.prod(numbers) * each > MOST_RANKS:
        raise ValueError(f"{shape}: there are 1 to {MOST_RANKS} ranks")
    if kind == "torus":
        return (each,) * math.prod(numbers), tuple(numbers), 1
    if kind == "wan":
        if len(numbers) != 3:
            raise ValueError(f"a wan is sites x hosts x ranks, such as wan:2x16x8, not {shape!r}")
        return (numbers[2],) * (numbers[0] * numbers[1]), (), numbers[0]
    if len(numbers) > 2:
        raise ValueError(f"{kind} is hosts x ranks on each, such as {kind}:4x8, not {shape!r}")
    sizes = (numbers[1] if len(numbers) == 2 else each,) * numbers[0]
    return sizes, (len(sizes),) if kind == "ring" else (), 1


def _wan(made: Cluster, said: Mapping[str, Any]) -> Cluster:
    """With the matrices of what lies between sites: `between` and `distance` where none are given."""

    def matrix(key: str, default: float, how: Callable[[Any], float]) -> Matrix:
        rows = said.get(key)
        if rows is None:
            return ((default,) * made.sites,) * made.sites
        lists = rows if isinstance(rows, list) else []
        if [len(row) if isinstance(row, list) else 0 for row in lists] != [made.sites] * made.sites:
            raise ValueError(f"{key} is a matrix of {made.sites} by {made.sites}")
        return tuple(tuple(_read(key, how, value) for value in row) for row in lists)

    def rate(value: Any) -> float:
        return math.inf if str(value) == "0" else per_byte(value)

    return replace(
        made,
        rates=matrix("rates", made.costs.between, rate),
        distances=matrix("distances", made.costs.distance, lambda value: 0.0 if str(value) == "0" else seconds(value)),
    )


assert {*_COSTS} == {*Costs._fields}
