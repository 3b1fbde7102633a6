"""What the words of a script mean, and how tensors are written down for it.

Tcl knows words alone: a number is a word that looks like one, a list one with spaces, a list of lists one with braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from ..arrays.ops import DTYPES
from .errors import invalid
from .handles import Array

TORCHS, OTHERS = ("sum", "mean", "max", "min"), ("product", "band", "bor", "bxor")
OPERATION_NEEDED = (
    f"Invalid arguments: tensor required and operation must be {'/'.join(TORCHS)} (or {'/'.join(OTHERS)})"
)
_DTYPES = {dtype.name: dtype for dtype in DTYPES}
_SYNONYMS = {
    **{"float": "float32", "double": "float64", "half": "float16"},
    **{"short": "int16", "int": "int32", "long": "int64"},
}
_SPECIAL = {"inf": "Inf", "-inf": "-Inf", "nan": "NaN"}  # as Tcl writes them
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")  # as Tcl has them, abbreviations aside
_PIECES = re.compile(r"[{}]|[^\s{}]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|\d+)", re.ASCII)


# ---- from words --------------------------------------------------------------------------------------------------


def integer(word: str) -> int:
    """A whole number, also in Tcl's other bases. A leading zero is none of them: 010 is ten."""
    if word.isascii() and word.isdecimal():
        return int(word)
    text = word.strip()
    if not _INTEGER.fullmatch(text):
        raise invalid(f'expected integer but got "{word}"')
    return int(text) if text.lstrip("+-").isdecimal() else int(text, 0)


def number(word: str) -> int | float:
    """An integer where it looks like one, else a floating-point number."""
    if _INTEGER.fullmatch(word.strip()):
        return integer(word)
    if not _NUMBER.fullmatch(word.strip()):
        raise invalid(f'expected number but got "{word}"')
    return float(word)


def flag(word: str) -> bool:
    """A boolean."""
    if word.lower() not in _TRUE + _FALSE:
        raise invalid(f'expected boolean value but got "{word}"')
    return word.lower() in _TRUE


def seconds(word: str) -> float:
    """A time."""
    return float(number(word))


def operation(word: str) -> str:
    """The operator of a reduction."""
    if word not in TORCHS + OTHERS:
        raise invalid(OPERATION_NEEDED)
    return word


def dtype(word: str) -> np.dtype[Any]:
    """A dtype by torch's name, which is NumPy's, or by a name of torch's for the same."""
    name = _SYNONYMS.get(word, word)
    if name not in _DTYPES:
        raise invalid(f'unknown dtype "{word}": must be {", ".join(_DTYPES)}')
    return _DTYPES[name]


def integers(word: str) -> list[int]:
    """A list of them."""
    return [integer(each) for each in word.split()]


def shape(word: str) -> tuple[int, ...]:
    """A list of lengths. An empty one is that of a single number."""
    lengths = tuple(integers(word))
    if any(length < 0 for length in lengths):
        raise invalid(f'a shape has no negative lengths: "{word}"')
    return lengths


def sizes(word: str) -> list[int] | None:
    """A list of numbers of rows. An empty one says nothing, as an option that is not given."""
    rows = integers(word)
    if any(number < 0 for number in rows):
        raise invalid(f'sizes has no negative numbers of rows: "{word}"')
    return rows or None


def array(word: str, to: np.dtype[Any], into: tuple[int, ...] | None) -> Array:
    """The numbers of a list, which may be of lists, as many levels deep as it has dimensions; or of that shape."""
    pieces = _PIECES.findall(word)
    if "{" in pieces or "}" in pieces:
        numbers, found = _flat(pieces)
    else:
        numbers, found = pieces, (len(pieces),)
    result = _numbers(numbers, to)
    if into is None:
        return result.reshape(found)
    if result.size != np.prod(into, dtype=object):
        raise invalid(f"{result.size} numbers do not fill the shape {{{' '.join(map(str, into))}}}")
    return result.reshape(into)


def _flat(pieces: list[str]) -> tuple[list[str], tuple[int, ...]]:
    """The numbers of nested lists in order, and their shape."""
    level: list[Any] = []
    outer: list[list[Any]] = []
    for piece in pieces:
        if piece == "{":
            outer.append(level)
            level = []
        elif piece == "}":
            if not outer:
                raise invalid("the data has a closing brace without an opening one")
            outer[-1].append(level)
            level = outer.pop()
        else:
            level.append(piece)
    if outer:
        raise invalid("the data has an opening brace without a closing one")
    found: tuple[int, ...] = (len(level),)
    while any(isinstance(each, list) for each in level):
        lengths = {len(each) if isinstance(each, list) else -1 for each in level}
        if len(lengths) > 1:
            raise invalid(f"the lists of the data differ in length or depth, {len(found)} levels deep")
        found += tuple(lengths)
        level = list(chain.from_iterable(level))
    return level, found


def _numbers(words: list[str], to: np.dtype[Any]) -> Array:
    try:
        return _FAMILIES.get(to.kind, _floats)(words, to)
    except ValueError:
        pass  # the slow way, to name the culprit
    culprit = next(word for word in words if not _fits(word, to))
    raise invalid(f'expected {to.name} but got "{culprit}"') from None


def _fits(word: str, to: np.dtype[Any]) -> bool:
    try:
        _FAMILIES.get(to.kind, _floats)([word], to)
    except ValueError:
        return False
    return True


def _floats(words: list[str], to: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # what is too large is infinite
        return np.array(list(map(float, _plain(words))), np.float64).astype(to)


def _whole(words: list[str], to: np.dtype[Any]) -> Array:
    """A floating-point number is taken where it is whole, as 2.0 is."""
    values = list(map(_as_integer, _plain(words)))
    limits = np.iinfo(to)
    if values and (min(values) < limits.min or max(values) > limits.max):
        raise ValueError
    return np.array(values, to)


def _as_integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        if _INTEGER.fullmatch(word):
            return int(word, 0)
        value = float(word)
        if not value.is_integer():
            raise
        return int(value)


def _truths(words: list[str], to: np.dtype[Any]) -> Array:
    """Tcl's booleans, and numbers: what is not zero is true."""
    known = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
    return np.array([known[word.lower()] if word.lower() in known else bool(float(word)) for word in _plain(words)], to)


def _complexes(words: list[str], to: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        return np.array(list(map(complex, _plain(words))), np.complex128).astype(to)


def _plain(words: list[str]) -> list[str]:
    """Without what Python alone takes for a number: 1_000, and digits of other scripts."""
    text = "".join(words)
    if "_" in text or not text.isascii():
        raise ValueError
    return words


_FAMILIES: dict[str, Callable[[list[str], np.dtype[Any]], Array]] = {
    "b": _truths,
    "i": _whole,
    "u": _whole,
    "c": _complexes,
}


# ---- to words ----------------------------------------------------------------------------------------------------


def text(array: Array) -> str:
    """The elements as a flat Tcl list: floating-point numbers with a point or an exponent, and in as few
    digits as tell them apart in their dtype; bfloat16 in full."""
    return " ".join(_words(array.ravel()))


def printed(array: Array) -> str:
    """For people: the elements in rows, the middle left out of many, and below them the dtype."""
    plain = array if array.dtype.kind in "biufc" else array.astype(np.float32)
    return f"{np.array2string(plain, separator=', ')}\n{{{' '.join(map(str, array.shape))}}} {array.dtype.name}"


def _words(flat: Array) -> Iterable[str]:
    if flat.dtype.kind in "iub":
        return map(str, (flat.astype(np.uint8) if flat.dtype.kind == "b" else flat).tolist())
    if flat.dtype.kind == "c":
        return [word.strip("()") for word in flat.astype("U").tolist()]
    wide = flat.astype(np.float64)
    if flat.dtype.kind == "f" and flat.dtype.itemsize < 8:
        words = [repr(float(word)) for word in flat.astype("U").tolist()]
    else:  # bfloat16, too, of which NumPy knows nothing
        words = list(map(repr, wide.tolist()))
    return words if np.isfinite(wide).all() else [_SPECIAL.get(word, word) for word in words]
