"""A profile: what calls cost on a machine, as `hocket tune` has measured it. The numbers are those of `Costs`.

A group decides by one profile, that of its first rank, and every rank gets it to the last bit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .costs import Costs

REGIMES = ("near", "crowded", "far")
MOST_PIECES = 8


class Regime(NamedTuple):
    """What holds where ranks lie in one way: seconds of every call, whatever it moves, and the costs of the rest."""

    call: float
    costs: Costs


class Profile(NamedTuple):
    """Of one machine: `cores` are its cores; `near` holds for ranks on it that each have a core, `crowded` where there
    are more of them than cores, and `far` for ranks of several hosts like it. None: nobody has measured that."""

    cores: int
    near: Regime | None = None
    crowded: Regime | None = None
    far: Regime | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON has it, which knows no infinity: the last limit of `shm` is null."""
        regimes = {name: getattr(self, name) for name in REGIMES}
        return {"cores": self.cores, **{name: each and _plain(each) for name, each in regimes.items()}}

    @staticmethod
    def of(said: Mapping[str, Any]) -> Profile:
        """What `plain` gave. Raises ValueError where a cost is missing, no number, below zero, or out of bounds."""
        cores = said.get("cores")
        if type(cores) is not int or not 0 < cores < 1 << 20:
            raise ValueError("it has no number of cores")
        return Profile(cores, *(None if said.get(name) is None else _regime(said[name]) for name in REGIMES))

    def pack(self) -> str:
        """As a short line, which `unpack` reads: to the last bit the same."""
        regimes = (getattr(self, name) for name in REGIMES)
        rows = [each and list(_plain(each).values()) for each in regimes]
        return json.dumps([self.cores, *rows], separators=(",", ":"))

    @staticmethod
    def unpack(text: str) -> Profile:
        """Read such a line. Raises ValueError where it is none."""
        try:
            cores, *rows = json.loads(text)
            named = [None if row is None else dict(zip(_NAMES, row, strict=True)) for row in rows]
            return Profile.of({"cores": cores, **dict(zip(REGIMES, named, strict=True))})
        except (TypeError, RecursionError) as error:
            raise ValueError("this is no profile") from error


_NAMES = ("call", *Costs._fields)


def _plain(regime: Regime) -> dict[str, Any]:
    shm = [[None if limit == math.inf else limit, rate] for limit, rate in regime.costs.shm]
    return {"call": regime.call, **regime.costs._asdict(), "shm": shm}


def _regime(said: Any) -> Regime:
    if not isinstance(said, dict) or said.keys() != {*_NAMES} or not isinstance(said["shm"], list):
        raise ValueError(f"a part of it does not have the costs {', '.join(_NAMES)}")
    try:
        shm = tuple((math.inf if limit is None else float(limit), float(rate)) for limit, rate in said["shm"])
        numbers = {name: float(said[name]) for name in _NAMES if name != "shm"}
    except (TypeError, ValueError) as error:
        raise ValueError("a cost is no number") from error
    limits = [limit for limit, _ in shm]
    if not 0 < len(limits) <= MOST_PIECES or limits[-1] != math.inf or limits != sorted(set(limits)) or limits[0] <= 0:
        raise ValueError("the sizes of shm do not rise to the last, which is null")
    if not all(0 <= number <= 1e3 for number in (*numbers.values(), *(rate for _, rate in shm))):
        raise ValueError("a cost is below zero, or beyond all bounds")
    return Regime(numbers.pop("call"), Costs(shm=shm, **numbers))
