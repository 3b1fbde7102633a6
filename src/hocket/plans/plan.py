"""The plan: what moves, globally. Read this page first.

A plan says *rank 3's chunk 2 is reduced into rank 4's*. It never says who waits, how many bytes, which transport or
which thread. There are two verbs and three buffers:

    copy(dst, src)      dst becomes src               inp(rank, chunk)   what the caller gave: never written
    reduce(dst, src)    dst becomes dst op src        out(rank, chunk)   what the caller gets
                                                      tmp(rank, chunk)   memory the plan owns

An algorithm is a generator over **steps**. What it yields, one `Front` or a tuple of them, is one step: a front of
moves that happen together, held in columns (one NumPy array per field, one entry per move), so that thousands of ranks
are one array operation:

    c = np.arange(n)
    yield reduce(out((c + 1) % n, c), out(c, c))        # n moves in one step

All moves of a front read what was there *before* it; then they write. No move reads a slot that another one of the same
front writes. Several moves may write one slot: they apply in the order written, and only the first may be a copy; that
is a many-source reduce, and how a fold in rank order is written.

**Chunks** are pieces of the collective's whole vector, and an index means the same piece in `inp` and in `out` on
every rank: in all_gather over n ranks, `inp(r, r)` is what rank r gives and `out(q, r)` is where rank q gets it. (In
all_to_all, whose ranks all hold different vectors, `inp(r, j)` goes to rank j and `out(r, i)` came from rank i.) How
many bytes a chunk has is decided later, by `bind`. Slot `tmp(r, t)` is as large as chunk `t % chunks`.

Long, because it is one page on purpose: the words of a plan, what is wrong with them, and how a plan is kept in a file.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..deadline import Deadline
from ..errors import CollectiveTimeout, PlanError

Index: TypeAlias = "int | npt.NDArray[np.int64]"
Column: TypeAlias = "npt.NDArray[np.int64]"

INP, OUT, TMP = 0, 1, 2
COPY, REDUCE = 0, 1
BUFFERS = ("inp", "out", "tmp")
VERBS = ("copy", "reduce")
MOST = (1 << 63) - 1

# What ends a plan that never ends, before the memory does. A ring over 4096 ranks, the longest of the plans in the book
# over as many as are meant here, has 8190 steps and just less than this many moves, which take 64 bytes each.
MOST_STEPS = 1 << 16
MOST_MOVES = 1 << 25


class Slots(NamedTuple):
    """Places: `count` chunks from `chunk` on, in one buffer of `rank`. Fields are ints or arrays, which broadcast."""

    buf: Index
    rank: Index
    chunk: Index
    count: Index  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


def inp(rank: Index, chunk: Index = 0, count: Index = 1) -> Slots:
    """The input of `rank`. Never written."""
    return Slots(INP, rank, chunk, count)


def out(rank: Index, chunk: Index = 0, count: Index = 1) -> Slots:
    """The output of `rank`. Begins as a copy of the input where the collective says so (`collectives.py`)."""
    return Slots(OUT, rank, chunk, count)


def tmp(rank: Index, chunk: Index = 0, count: Index = 1) -> Slots:
    """Memory that the plan owns on `rank`, as much as it names."""
    return Slots(TMP, rank, chunk, count)


@dataclass(frozen=True, eq=False)
class Front:
    """The moves of one step, one row per move, one column per field. All columns are int64 and equally long."""

    verb: Column
    dst_buf: Column
    dst_rank: Column
    dst_chunk: Column
    src_buf: Column
    src_rank: Column
    src_chunk: Column
    count: Column

    def __len__(self) -> int:
        return len(self.verb)

    @property
    def base(self) -> Front:
        """The front whose moves these are but for the names of ranks: itself, where it is no turn (`turn.py`)."""
        return self

    def columns(self) -> tuple[Column, ...]:
        """The eight columns, in the order of the fields."""
        return _columns(self)

    def is_sound(self) -> bool:
        """All columns are as promised. Nothing that the words of a plan make is not."""
        shape = (len(self),)
        for column in self.columns():
            if not isinstance(column, np.ndarray) or column.dtype != np.int64 or column.shape != shape:
                return False
        return True

    def take(self, rows: npt.ArrayLike) -> Front:
        """The moves at `rows` (indices or a boolean mask), in that order."""
        return Front(*(column[rows] for column in self.columns()))  # type: ignore[index]

    def singles(self) -> tuple[Column, Front]:
        """The front with every span taken apart into single chunks, in order, and which move each came from."""
        rows = np.arange(len(self))
        if np.all(self.count == 1):
            return rows, self
        rows = np.repeat(rows, self.count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        verb, db, dr, dc, sb, sr, sc, count = self.take(rows).columns()
        return rows, Front(verb, db, dr, dc + within, sb, sr, sc + within, np.ones_like(count))

    def __str__(self) -> str:
        return "  ".join(self.describe(i) for i in range(len(self)))

    def describe(self, row: int) -> str:
        """One move in words of the plan: `r1.out[0] += r0.out[0]`."""
        verb, db, dr, dc, sb, sr, sc, k = (int(column[row]) for column in self.columns())
        sign = "+=" if verb == REDUCE else "<-"
        return f"r{dr}.{BUFFERS[db]}[{_span(dc, k)}] {sign} r{sr}.{BUFFERS[sb]}[{_span(sc, k)}]"


BATCH = 1 << 13  # moves: their columns stay in the second-level cache

FIELDS = ("verb", "dst_buf", "dst_rank", "dst_chunk", "src_buf", "src_rank", "src_chunk", "count")
_columns = attrgetter(*FIELDS)


def _span(chunk: int, count: int) -> str:
    return str(chunk) if count == 1 else f"{chunk}:{chunk + count}"


def copy(dst: Slots, src: Slots) -> Front:
    """`dst` becomes `src`."""
    return _moves(COPY, dst, src)


def reduce(dst: Slots, src: Slots) -> Front:
    """`dst` becomes `dst op src`, with `dst` as the left operand."""
    return _moves(REDUCE, dst, src)


def _moves(verb: int, dst: Slots, src: Slots) -> Front:
    if not isinstance(dst, Slots) or not isinstance(src, Slots):
        wrong = src if isinstance(dst, Slots) else dst
        raise TypeError(f"{VERBS[verb]}(dst, src) takes slots, as inp(), out() and tmp() name them, not {wrong!r}")
    fields = [_integers(x) for x in (*dst, *src)]
    count = np.maximum(fields.pop(3), fields.pop())
    try:
        shape = np.broadcast(*fields, count).shape
    except ValueError as error:
        raise PlanError(f"the ends of a {VERBS[verb]} do not fit each other{_asked()}: {error}") from error
    block = np.empty((len(FIELDS), *shape), np.int64)
    for row, x in enumerate((verb, *fields, count)):
        block[row] = x
    return Front(*block.reshape(len(FIELDS), -1))


def _integers(x: Index) -> Index:
    """`x`, where it is whole numbers: others would be cut, and True is no rank."""
    if isinstance(x, np.ndarray) and x.dtype == np.int64:
        return x
    if type(x) is int and -MOST <= x <= MOST:
        return x
    array = np.asarray(x)
    if type(x) is int or (array.dtype.kind not in "iu" and array.size):
        raise PlanError(f"a rank, a chunk or a count is not a whole number of 64 bits{_asked()}: {x!r}")
    return array.astype(np.int64)


def _asked() -> str:
    """Where the innermost function that is none of this file's is."""
    frame = sys._getframe()
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f" ({frame.f_code.co_filename}:{frame.f_lineno})"


def join(*fronts: Front) -> Front:
    """One front out of several, in that order."""
    if len(fronts) == 1:
        return fronts[0]
    if not fronts:
        return Front(*np.empty((len(FIELDS), 0), np.int64))
    return Front(*(np.concatenate(columns) for columns in zip(*(f.columns() for f in fronts), strict=True)))


Step: TypeAlias = "Front | tuple[Front, ...]"
Steps: TypeAlias = Iterable[Step]


def walk(steps: Steps, whose: object, deadline: Deadline | None = None, *, lazily: bool = False) -> Iterator[Front]:
    """The steps one after the other, each joined into one front; those without moves too. `lazily`: nobody will look
    at the turns of a front (`turn.py`), so that their moves take no memory and do not count.

    Raises PlanError, which begins with `whose`, for what is no step, and where there are more of them than can be
    meant; CollectiveTimeout between two steps when the deadline has passed.
    """
    if not isinstance(steps, Iterable):
        raise no_steps(steps, whose)
    moves, iterator = 0, iter(steps)
    for number, step in enumerate(iterator):
        parts = (step,) if isinstance(step, Front) else step
        if type(parts) is not tuple or not all(isinstance(part, Front) for part in parts):
            raise PlanError(
                f"{whose}: step {number} is {_short(step)}, not a Front or a tuple of them{_line(iterator)}"
            )
        front = join(*parts)
        if not front.is_sound():
            raise PlanError(
                f"{whose}: step {number} has columns that are not int64 or differ in length{_line(iterator)}"
            )
        moves += 0 if lazily and front.base is not front else len(front)
        if number >= MOST_STEPS or moves > MOST_MOVES:
            what = f"{MOST_STEPS} steps" if number >= MOST_STEPS else f"{MOST_MOVES} moves"
            raise PlanError(
                f"{whose}: more than {what}, which is more than can be meant: does it end?{_line(iterator)}"
            )
        if deadline is not None and not deadline.left():
            raise CollectiveTimeout(
                f"{whose} timed out after {deadline}: its algorithm was still making step {number + 1}"
            )
        yield front


def no_steps(given: object, whose: object, home: str = "") -> PlanError:
    """For an algorithm, at `home`, that gives this in the place of steps."""
    said = "None: it has no `yield`" if given is None else _short(given)
    return PlanError(f"{whose}: the algorithm returned {said}, and should yield steps{home}")


def _line(steps: object) -> str:
    """The file and the line of the `yield` at which a generator stands, where that can be known."""
    while getattr(steps, "gi_yieldfrom", None) is not None:
        steps = steps.gi_yieldfrom  # type: ignore[attr-defined]
    frame = getattr(steps, "gi_frame", None)
    return f" ({frame.f_code.co_filename}:{frame.f_lineno})" if frame is not None else ""


def _short(x: object) -> str:
    """What something is, in a few words."""
    if isinstance(x, Slots):
        return "slots that no copy or reduce moves"
    text = repr(x)
    return f"a {type(x).__name__}" if len(text) > 40 else text


class Kept(tuple[Front, ...]):
    """Fronts that have been walked, all with moves; and what makes them anew, where that is known."""

    source: Callable[[], Steps] | None = None

    @staticmethod
    def of(source: Callable[[], Steps], whose: object, deadline: Deadline | None = None) -> Kept:
        """The steps that it makes, walked."""
        kept = Kept(filter(len, walk(source(), whose, deadline)))
        kept.source = source
        return kept


@dataclass(frozen=True, eq=False)
class Plan:
    """A collective algorithm for one number of ranks: a value. Frozen, hashable; equal when it moves the same things.

    `source` makes the steps anew each time they are asked for, so that a plan for thousands of ranks is streamed and
    never stored; but for one that is kept. `chunks` is the number of chunks of the whole vector, at least `size` where
    each rank owns a part.
    """

    collective: str
    algorithm: str
    size: int
    root: int
    chunks: int
    source: Callable[[], Steps]

    def fronts(self, *, lazily: bool = False) -> Iterator[Front]:
        """The steps in order, without those that have no moves. `lazily`: as in `walk`."""
        steps = self.source()
        return iter(steps) if isinstance(steps, Kept) else filter(len, walk(steps, repr(self), lazily=lazily))

    def keep(self, deadline: Deadline | None = None) -> Plan:
        """The same plan with its steps made once and stored, however often this is asked."""
        steps = self.source()
        if isinstance(steps, Kept):
            return self
        mine = vars(self)
        if "kept" not in mine:
            kept = Kept.of(lambda: steps, repr(self), deadline)
            kept.source = self.source
            mine["kept"] = replace(self, source=lambda: kept)
        made: Plan = mine["kept"]
        return made

    def line_of(self, step: int) -> str:
        """Where the `yield` of a step is, " (file.py:7)", for the author of the algorithm. Empty where that cannot be
        known, and for hocket's own."""
        steps = self.source()
        steps = steps.source() if isinstance(steps, Kept) and steps.source is not None else steps
        iterator = iter(steps)
        with suppress(Exception):  # whatever the author does the second time
            next(islice(filter(len, walk(iterator, repr(self))), step, None))
            line = _line(iterator)
            return "" if line.startswith(f" ({Path(__file__).parent}") else line
        return ""

    @cached_property
    def tmp_chunks(self) -> int:
        """How many tmp slots the busiest rank uses."""
        return extent(self.fronts(), (TMP,))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything the plan says, as 32 hexadecimal digits; equal on every rank for equal plans."""
        digest = hashlib.blake2b(json.dumps(self._head()).encode(), digest_size=16)
        for front in self.fronts():
            digest.update(np.stack(front.columns()).astype("<i8").tobytes())
            digest.update(b"|")
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _head(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in HEAD}

    def to_json(self) -> str:
        """Canonical JSON: the same text for the same plan, whoever wrote it."""
        steps = [np.stack(front.columns(), axis=1).tolist() for front in self.fronts()]
        return json.dumps({**self._head(), "fields": FIELDS, "steps": steps}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote. Raises PlanError when the text is no plan; whether one keeps its promise, and
        names what there is, is for `check` to say."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise ValueError(f"it is {_short(data)}, not an object")
            head = {name: _field(data, name, kind) for name, kind in HEAD.items()}
            if head["size"] * head["chunks"] > MOST_MOVES:
                raise ValueError(f"{head['chunks']} chunks on each of {head['size']} ranks are more than can be meant")
            if data.get("fields") != list(FIELDS):
                raise ValueError(f"fields are {data.get('fields')}, not {list(FIELDS)}")
            steps = tuple(_step_of(rows, number) for number, rows in enumerate(_field(data, "steps", list)))
        except (ValueError, RecursionError) as error:
            raise PlanError(f"this text is not a plan: {error}") from error
        return Plan(**head, source=lambda: steps)

    def __repr__(self) -> str:
        root = f", root={self.root}" if self.root else ""
        return f"Plan({self.collective}, {self.algorithm}, size={self.size}{root}, chunks={self.chunks})"


HEAD: dict[str, type] = {"collective": str, "algorithm": str, "size": int, "root": int, "chunks": int}


def _field(data: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a plan's JSON. Raises ValueError where it is missing or something else."""
    if name not in data:
        raise ValueError(f"it has no {name!r}")
    value: Any = data[name]
    least = int(name != "root")
    beyond = isinstance(value, int) and not least <= value <= MOST
    if type(value) is not kind or beyond or (isinstance(value, str) and not value.isprintable()):
        raise ValueError(f"{name!r} is {_short(value)}")
    return value


def _step_of(rows: Any, number: int) -> Front:
    """A step of a plan's JSON: a list of moves, each as many whole numbers as a move has fields."""
    try:
        array = np.array(rows, object).reshape(-1, len(FIELDS)) if rows == [] else np.array(rows, object)
    except ValueError:
        array = np.empty(0)
    if type(rows) is not list or array.ndim != 2 or array.shape[1] != len(FIELDS):
        raise ValueError(f"step {number} is no list of moves of {len(FIELDS)} numbers")
    if not all(type(x) is int and -MOST <= x <= MOST for x in array.flat):
        raise ValueError(f"step {number} holds what is no whole number of 64 bits")
    return Front(*array.astype(np.int64).T.copy())


def extent(fronts: Iterable[Front], buffers: tuple[int, ...]) -> int:
    """One more than the largest chunk index that is named in `buffers`; 0 when none is."""
    top = 0
    for _, fs in batches(_bases(fronts)):
        f = join(*fs)
        for buf, chunk in ((f.dst_buf, f.dst_chunk), (f.src_buf, f.src_chunk)):
            named = np.logical_or.reduce([buf == of for of in buffers])
            top = max(top, int(np.max(chunk + f.count, where=named, initial=0)))
    return top


def _bases(fronts: Iterable[Front]) -> Iterator[Front]:
    """The fronts, of several turns of one in a row only that one: they name the same chunks."""
    last = None
    for front in fronts:
        if front.base is not last:
            yield front.base
        last = front.base


def batches(fronts: Iterable[Front]) -> Iterator[tuple[int, list[Front]]]:
    """The fronts, several at a time where they are small, and the number of the first: what can be asked of all at once
    then costs a few array operations for many."""
    first, batch, moves = 0, list[Front](), 0
    for front in fronts:
        if batch and moves + len(front) > BATCH:
            yield first, batch
            first, batch, moves = first + len(batch), [], 0
        batch.append(front)
        moves += len(front)
    if batch:
        yield first, batch
