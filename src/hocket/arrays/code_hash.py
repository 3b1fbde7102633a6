"""What a function does, as a short hash, so that ranks can tell whether they combine with the same one.

Two functions of one name have different hashes where they do different things, as far as that can be seen:

    code       instructions, constants, names and nested functions; not the file or the lines
    values     of defaults, of what is closed over and of the globals that are read: None, numbers (by their bits),
               text, bytes, NumPy scalars, dtypes and arrays that are read-only, and tuples and frozen sets of these
    functions  among these values, in turn; `functools.partial` and what a decorator wraps, too; bound methods, with
               such values among the attributes that they read
    objects    that are called: their class's `__call__`, and such values among the attributes that it reads
    names      of modules, classes, builtins, ufuncs and members of an enum

What can change is state, and not compared: variables and attributes that a function writes itself, such as a count of
its calls; what is in a list, a dict or a set, such as a log or a cache; and the elements of an array that can be
written, of which only dtype and shape count. Ranks that fold more often than others would differ in it. Every other
object is only the name of its type, and so is what lies deeper than `DEPTH`. Of text, bytes and arrays of more than
`LARGE` bytes only the type and the length count, and of collections that all together hold more than some thousand
values only the lengths. What a function reaches through such an object, through a module or through another method of
its class is not compared.

The hash is the same in every process that runs the same version of Python: no address, no order of a set and no seed
goes into it.
"""

from __future__ import annotations

import builtins
import dis
import enum
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from hashlib import blake2b
from types import CodeType, EllipsisType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Path: TypeAlias = "tuple[int, ...]"  # the addresses of the objects that an object was found through

DEPTH = 12  # how far values are followed: one function that calls another is one
LARGE = 1 << 16  # bytes: some ten microseconds of hashing
WORK = 1 << 14  # values: each object divides what it was given among its parts, so a hash takes 20 ms or so at the most
PER_FUNCTION = 32  # of these: what a function costs, beside its values


def code_hash(function: Callable[..., Any]) -> str:
    """Eight hexadecimal digits."""
    return blake2b(_value(function, WORK, ()), digest_size=4).hexdigest()


_PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"",
    EllipsisType: lambda _: b"",
    bool: lambda x: b"%d" % x,
    int: lambda x: b"%x" % x,
    float: lambda x: struct.pack("<d", x),
    complex: lambda x: struct.pack("<dd", x.real, x.imag),
    str: lambda x: _bounded(x.encode("utf-8", "surrogatepass")),
    bytes: lambda x: _bounded(x),
}


def _value(x: Any, work: int, path: Path) -> bytes:
    """What can be said of a value, as bytes that equal no other value's."""
    kind = type(x)
    if kind in _PLAIN:
        return _pack(kind.__name__.encode(), _PLAIN[kind](x))
    name = _name(kind)
    if id(x) in path:
        return _pack(name, b"which holds this", b"%d" % (len(path) - path.index(id(x))))
    if work <= 0 or len(path) >= DEPTH:
        return _pack(name)
    for kinds, parts in _KINDS:
        if issubclass(kind, kinds):
            return _pack(name, *parts(x, work - 1, (*path, id(x))))
    return _pack(name)


def _function(f: FunctionType, work: int, path: Path) -> Iterable[bytes]:
    seen, none = _look(f.__code__), object()
    found = [f.__globals__.get(name, getattr(builtins, name, none)) for name in seen.globals]
    cells = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
    closed = [_content(cell) for name, cell in cells if name not in seen.writes]
    defaults = [f.__defaults__, _keywords(f.__kwdefaults__)]
    return seen.digest, *_each([*defaults, *closed, *found], work - PER_FUNCTION, path)


def _keywords(words: dict[str, Any] | None) -> tuple[Any, ...]:
    return tuple(sorted((words or {}).items(), key=lambda item: item[0]))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return object()


def _sequence(items: Any, work: int, path: Path) -> Iterable[bytes]:
    return _each(list(items), work, path)


def _set(items: Any, work: int, path: Path) -> Iterable[bytes]:
    return sorted(_each(list(items), work, path))


def _each(items: list[Any], work: int, path: Path) -> list[bytes]:
    """All of them, each with the same share of the work, so that their order does not matter to how far it goes."""
    share = work // max(1, len(items))
    return [_value(item, share, path) for item in items] if share else [b"%d" % len(items)]


def _array(x: Any, work: int, path: Path) -> Iterable[bytes]:
    """A scalar too. What lies between the fields of a record is anything, and objects are addresses."""
    yield repr((x.dtype, x.shape)).encode()
    fixed = isinstance(x, np.generic) or not x.flags.writeable
    if fixed and not x.dtype.hasobject and x.dtype.names is None and x.nbytes <= LARGE:
        yield x.tobytes()


def _called(x: Any, work: int, path: Path) -> Iterable[bytes]:
    """A builtin, by its name and what it belongs to; an object of a class of Python's; or what another one wraps."""
    call = type(x).__call__
    if isinstance(call, FunctionType):
        return _each([call, *_attributes(x, call)], work, path)
    if not (name := getattr(x, "__qualname__", None)):
        return ()
    home = (getattr(x, "__module__", None), getattr(x, "__self__", None), getattr(x, "__wrapped__", None))
    return _each([name, *home], work, path)


def _method(x: MethodType, work: int, path: Path) -> Iterable[bytes]:
    owner = x.__self__
    kept = [owner] if isinstance(owner, type) else [type(owner), *_attributes(owner, x.__func__)]
    return _each([x.__func__, *kept], work, path)


def _attributes(x: Any, reader: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, from `__dict__` and `__slots__`, that `reader`, a method of `x`, names and does not write. The
    others are none of its business: an object may hold anything beside an operator, its rank for one."""
    if not isinstance(reader, FunctionType):
        return
    written, named = _look(reader.__code__).writes, _named(reader.__code__)
    names = [f".{name}" for name in sorted(getattr(x, "__dict__", ()))]
    for kind in type(x).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            hidden = slot.startswith("__") and not slot.endswith("__")
            names.append(f"._{kind.__name__.lstrip('_')}{slot}" if hidden else f".{slot}")
    for name in names:
        if name[1:] in named and name not in written:
            yield name, getattr(x, name[1:], None)


@lru_cache(maxsize=256)
def _named(code: CodeType) -> frozenset[str]:
    """All names in a function, and in those inside of it."""
    inner = [_named(const) for const in code.co_consts if isinstance(const, CodeType)]
    return frozenset(code.co_names).union(*inner)


_Parts: TypeAlias = "Callable[[Any, int, Path], Iterable[bytes]]"

# The first that fits. A bool of an enum is an enum, a named tuple a tuple, and all but the last may be called as well.
_KINDS: tuple[tuple[type | tuple[type, ...], _Parts], ...] = (
    (FunctionType, _function),
    (MethodType, _method),
    (partial, lambda x, work, path: _each([x.func, x.args, _keywords(x.keywords)], work, path)),
    (enum.Enum, lambda x, work, path: [x.name.encode() if x.name else _value(x.value, work, path)]),
    (ModuleType, lambda x, work, path: [x.__name__.encode()]),
    (type, lambda x, work, path: [_name(x)]),
    (np.ufunc, lambda x, work, path: [x.__name__.encode(), *(text.encode() for text in x.types)]),
    ((np.ndarray, np.generic), _array),
    (np.dtype, lambda x, work, path: [repr(x).encode()]),
    (tuple, _sequence),
    (frozenset, _set),
    (object, lambda x, work, path: _called(x, work, path) if callable(x) else ()),
)


class _Look(NamedTuple):
    """What can be seen of code alone, with that of the functions in it."""

    digest: bytes
    globals: tuple[str, ...]  # that it reads and never writes
    writes: frozenset[str]  # variables closed over, and attributes: those with a dot


@lru_cache(maxsize=1024)
def _look(code: CodeType) -> _Look:
    loads, writes, consts = *_names(code), []
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = _look(const)
            consts.append(inner.digest)
            loads.update(inner.globals)
            writes.update(inner.writes)
        else:
            consts.append(_value(const, WORK, ()))
    words = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    table = getattr(code, "co_exceptiontable", b"")  # from Python 3.11 on
    text = _pack(code.co_code, table, repr((words, counts)).encode(), *consts)
    stored = {name[1:] for name in writes if name.startswith("=")}
    return _Look(blake2b(text, digest_size=16).digest(), tuple(sorted(loads - stored)), frozenset(writes))


def _names(code: CodeType) -> tuple[set[str], set[str]]:
    """The globals that code loads; and what it stores: `name` is closed over, `.name` an attribute, `=name` a global.

    `co_names` does not tell globals from attributes, and which variables are stored only the instructions say.
    """
    loads, writes = set(), set()
    own = len(
        {*(code.co_varnames if MODERN else ()), *code.co_cellvars}
    )  # variables that come before those closed over
    text, more = code.co_code, 0
    for instruction, low in zip(text[::2], text[1::2], strict=True):
        argument = more << 8 | low
        more = argument if instruction == dis.EXTENDED_ARG else 0
        verb = _VERBS.get(instruction)
        if verb == "LOAD_GLOBAL":
            loads.add(code.co_names[argument >> MODERN])  # the lowest bit says something else
        elif verb == "STORE_GLOBAL":
            writes.add(f"={code.co_names[argument]}")
        elif verb == "STORE_ATTR":
            writes.add(f".{code.co_names[argument]}")
        elif verb == "STORE_DEREF" and argument >= own:
            writes.add(code.co_freevars[argument - own])
        elif verb:  # in the body of a class, which loads locals and globals alike
            loads.add(code.co_names[argument])
    return loads, writes


MODERN = sys.version_info >= (3, 11)
_VERBS = {
    dis.opmap[name]: name
    for name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF")
    if name in dis.opmap
}


def _bounded(text: bytes) -> bytes:
    return text if len(text) <= LARGE else b"%d bytes" % len(text)


def _name(kind: type) -> bytes:
    """A program that is run and a program whose processes multiprocessing spawned call their module differently."""
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return f"{module}.{kind.__qualname__}".encode()


def _pack(*parts: bytes) -> bytes:
    """Parts in a row, so that it shows where each ends."""
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)
