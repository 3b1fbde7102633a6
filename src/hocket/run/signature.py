"""What all ranks must agree on in one collective call, and the sizes that follow from it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..plans.collectives import find
from ..plans.partition import bounds
from ..plans.plan import Plan

Dtype: TypeAlias = "np.dtype[Any]"


@dataclass(frozen=True)
class Signature:
    """A collective call as all ranks must make it: equal calls have equal texts, and the text is what an error prints.

    `shape` is that of the whole vector: of the joined result for all_gather and gather, of the input for the others.
    `sizes` are the elements of each rank's block where the caller gave uneven ones. In all_to_all every rank then has
    sizes of its own, so that they and the first axis are left out of what must agree.
    """

    collective: str
    dtype: Dtype
    shape: tuple[int, ...]
    op: str = ""
    root: int = 0
    sizes: tuple[int, ...] | None = None
    algorithm: str = "auto"
    order: str = "same"
    each: tuple[int, ...] | None = None  # the shape that each rank gives, where that is not the whole vector's
    within: str = ""  # the call that this one serves, where it is not the user's own
    own: bool = False  # the algorithm is none of the book's, and ranks may mean different ones by its name
    known: bool = True  # what is moved; not to a rank that waits to learn it from a root which is in another call
    note: str = ""  # what the root tells ranks that do not know what they will get: `tell` and `told`

    @cached_property
    def text(self) -> str:
        """The call as a user might have written it."""
        spec = find(self.collective)
        words = []
        if self._own_sizes:
            words.append(f"{spelled(self.dtype)}[{', '.join(['...', *map(str, self.shape[1:])])}], sizes=...")
        elif self.collective != "barrier" and self.known:
            words.append(f"{spelled(self.dtype)}{list(self.shape if self.each is None else self.each)}")
        words += [f"op={self.op!r}"] if spec.reduces else []
        words += [f"root={self.root}"] if spec.rooted else []
        words += [f"sizes={_short(self.sizes)}"] if self.sizes is not None and not self._own_sizes else []
        words += [f"algorithm={self.algorithm!r}"] if self.algorithm != "auto" else []
        words += [f"order={self.order!r}"] if self.order != "same" else []
        return f"{self.within and self.within + ': '}{self.collective}({', '.join(words)})"

    def said_of(self, plan: Plan) -> str:
        """The text, as other ranks are told it: of two plans of one name it shows that they differ."""
        return f"{self.text[:-1]}; plan {plan.fingerprint[:8]})" if self.own else self.text

    @property
    def _own_sizes(self) -> bool:
        return self.collective == "all_to_all" and self.sizes is not None

    def fingerprint(self, plan: Plan) -> int:
        """64 bits that differ where two ranks' calls or plans do."""
        sizes = None if self._own_sizes else self.sizes
        text = f"{self.text} {sizes} {self.note} {plan.fingerprint}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    @property
    def count(self) -> int:
        """Elements of the whole vector."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole vector."""
        return self.count * self.dtype.itemsize

    def leads(self, rank: int, size: int) -> tuple[int, int]:
        """How many bytes after the begin of the whole vector the input and the output of `rank` begin."""
        spec = find(self.collective)
        before = rank * (self.count // size) if self.sizes is None else sum(self.sizes[:rank])
        lead = before * self.dtype.itemsize
        return lead if spec.gives == "own" else 0, lead if spec.gets == "own" else 0

    def chunk_sizes(self, chunks: int, size: int) -> npt.NDArray[np.int64]:
        """Elements of each chunk of the whole vector, when a plan for `size` ranks cuts it into `chunks`."""
        blocks = self.sizes
        if blocks is None and find(self.collective).blocks:
            blocks = (self.count // size,) * size
        return np.diff(bounds(self.count, chunks, blocks))


class Told(NamedTuple):
    """What a note says of the root's input: `rows` are those of each rank where they are uneven."""

    collective: str
    dtype: str
    shape: list[int]
    rows: list[int] | None


def tell(collective: str, dtype: Dtype, shape: tuple[int, ...], rows: tuple[int, ...] | None = None) -> str:
    """The note of a root that gives an array of `dtype` and `shape`."""
    return json.dumps(Told(collective, dtype.name, list(shape), None if rows is None else list(rows)))


def told(note: str) -> Told:
    """What a note says."""
    return Told(*json.loads(note))


def spelled(dtype: Dtype) -> str:
    """What a text calls it: its name, `float64[2, 2]` for a row of that shape, `{value: float64, at: int64}` for
    fields."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return f"{spelled(base)}{list(shape)}"
    if dtype.fields is None:
        return dtype.name
    fields = (f"{name}: {spelled(field[0])} at {field[1]}" for name, field in dtype.fields.items())
    return f"{{{', '.join(fields)}; {dtype.itemsize}}}"


def _short(sizes: tuple[int, ...] | None) -> str:
    """The sizes, cut where a text would grow too long; the fingerprint holds them all."""
    items = list(sizes or ())
    return str(items) if len(items) <= 8 else f"[{', '.join(map(str, items[:8]))}, ...]"
