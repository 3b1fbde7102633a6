"""What each collective promises: who gives what, who gets what, and what the output begins as. Data, not code.

A vector is cut into chunks; an index means the same piece on every rank. Where each rank owns a part of the vector (a
*block*), block i is made of `chunks / size` neighbouring chunks and belongs to rank i.

    collective       gives   gets    the promise for a slot of the output
    all_reduce       all     all     the reduction of that chunk over all ranks
    reduce           all     root    the same
    reduce_scatter   all     own     the same
    scan             all     all     the reduction of that chunk over the ranks up to this one
    exscan           all     later   the reduction of that chunk over the ranks before this one
    broadcast        root    all     the root's chunk
    scatter          root    own     the root's chunk
    gather           own     root    the chunk of the rank that owns it
    all_gather       own     all     the same
    all_to_all       all     all     out(r, block i) is inp(i, block r)
    barrier          own     all     as all_gather, with tokens of 0 bytes: everyone has heard of everyone

*all* means every chunk on every rank, *root* every chunk on the root, *own* each rank's own block, *later* every chunk
on every rank but the first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Table: TypeAlias = "npt.NDArray[np.int64]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"

FOLD, NOBODY = -1, -2
SMALL = 1 << 14  # slots of a promise that is kept: it takes less than half a megabyte


class Collective(NamedTuple):
    """A line of the table above: `gives` and `gets` are "all", "root", "own" or "later"; `of` is whose contributions a
    slot of the output is made of: "every", "until" this rank or "before" it, "root" or "owner"."""

    name: str
    gives: str
    gets: str
    of: str
    transposed: bool = False  # all_to_all: a block of the output comes from another block of the input

    @property
    def rooted(self) -> bool:
        """One rank is special."""
        return "root" in (self.gives, self.gets)

    @property
    def reduces(self) -> bool:
        """It takes an operator."""
        return self.of in ("every", "until", "before")

    @property
    def scans(self) -> bool:
        """Each rank gets the reduction over those up to it, or before it."""
        return self.of in ("until", "before")

    @property
    def blocks(self) -> bool:
        """Each rank owns a block of the vector, so the number of chunks is a multiple of the number of ranks."""
        return "own" in (self.gives, self.gets) or self.of == "owner"


COLLECTIVES: dict[str, Collective] = {
    c.name: c
    for c in (
        Collective("all_reduce", gives="all", gets="all", of="every"),
        Collective("reduce", gives="all", gets="root", of="every"),
        Collective("broadcast", gives="root", gets="all", of="root"),
        Collective("scatter", gives="root", gets="own", of="root"),
        Collective("gather", gives="own", gets="root", of="owner"),
        Collective("all_gather", gives="own", gets="all", of="owner"),
        Collective("reduce_scatter", gives="all", gets="own", of="every"),
        Collective("scan", gives="all", gets="all", of="until"),
        Collective("exscan", gives="all", gets="later", of="before"),
        Collective("all_to_all", gives="all", gets="all", of="owner", transposed=True),
        Collective("barrier", gives="own", gets="all", of="owner"),
    )
}


class Layout(NamedTuple):
    """A collective's promise for one number of ranks and chunks. All arrays have the shape [size, chunks]."""

    inp: Mask  # the rank gives this slot
    out: Mask  # the rank gets this slot
    seed: Mask  # `out` begins as a copy of `inp` here: where a rank's own input is (part of) what it is to get
    rank: Table  # whose contribution `out` must end as; FOLD: the reduction over `ranks`; NOBODY: there is no slot
    ranks: Table  # the reduction is over so many ranks, from the first on
    chunk: Table  # which chunk of that rank: the own index everywhere but in all_to_all


def layout(collective: str, size: int, chunks: int, root: int = 0) -> Layout:
    """The promise of `collective` as arrays. Raises ValueError where such a collective cannot be."""
    spec = find(collective)
    if size < 1 or chunks < 1:
        raise ValueError(f"{collective} needs at least one rank and one chunk, not size {size} and chunks {chunks}")
    if not 0 <= root < size:
        raise ValueError(f"root {root} is not one of the ranks 0 to {size - 1}")
    if spec.blocks and chunks % size:
        raise ValueError(f"each rank owns a block in {collective}: {chunks} chunks do not make {size} equal blocks")
    make = _layout if size * chunks <= SMALL else _layout.__wrapped__
    return make(spec, size, chunks, root)


@lru_cache(maxsize=256)
def _layout(spec: Collective, size: int, chunks: int, root: int) -> Layout:
    r, c = np.indices((size, chunks), dtype=np.int64)
    per = max(1, chunks // size)
    owner = c // per
    places = {"all": np.ones_like(r, dtype=bool), "root": r == root, "own": owner == r, "later": r > 0}
    given, got = places[spec.gives], places[spec.gets]
    ranks = {"every": np.full_like(r, size), "until": r + 1, "before": r}.get(spec.of, np.zeros_like(r))
    whose = np.full_like(r, FOLD) if spec.reduces else np.full_like(r, root) if spec.of == "root" else owner
    which = r * per + c % per if spec.transposed else c
    seed = given & got & np.where(whose == FOLD, r < ranks, (whose == r) & (which == c))
    made = Layout(given, got, seed, np.where(got, whose, NOBODY), ranks, which)
    for table in made:
        table.flags.writeable = False  # it is kept, and others get the same one
    return made


def find(collective: str) -> Collective:
    """The collective of that name. Raises ValueError naming those there are."""
    if collective not in COLLECTIVES:
        raise ValueError(f"there is no collective {collective!r}; there are {', '.join(COLLECTIVES)}")
    return COLLECTIVES[collective]
