"""The element types and the operators of reductions: the two tables that the native kernels also have, and `resolve`.

An operator is one of the names in `NAMES`, a binary NumPy ufunc (`np.add` is "sum"; one without a name here, such as
`np.hypot`, is a custom operator) or a Python callable `f(a, b, out)` that writes `a op b` into `out`; what it returns
is ignored. Its arrays are its own, `a` and `b` read-only: they are one-dimensional and hold pieces of the operands, cut
anywhere, and it may keep them. Custom operators must be associative; they are never assumed to commute: operands stay
in rank order. A ufunc gives no floating-point warnings here. One that is made by `whole_rows` gets rows, as they are.
The elements of a callable may have fields (structured dtypes); "maxloc" and "minloc" take such of two fields.

All ranks must give the same operator. A callable is compared by what it does, not by its name: its code and the values
that it reads and that cannot change, as they are when a call is first made (`code_hash.py` says which are seen and
which are not). What is to differ between ranks, such as a rank's own number, must not lie open in a global, in a
variable that is closed over or in an attribute, but inside of a list, a dict or another object.

What the named ones mean where it could be doubted: integer sums and products wrap around; `mean` is the sum divided by
the number of ranks, of integers truncated toward zero; a NaN in any operand of `min` or `max` is a NaN in the result;
of bools, `sum` and `max` are "or", `product` and `min` are "and"; `land`, `lor` and `lxor` take nonzero (NaN too) as
true and give 0 or 1 in the operands' own dtype.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

Dtype: TypeAlias = "np.dtype[Any]"
OpName: TypeAlias = Literal[
    "sum", "mean", "product", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor", "maxloc", "minloc"
]
Operator: TypeAlias = "OpName | np.ufunc | Callable[[Any, Any, Any], Any]"

BFLOAT16: Dtype = np.dtype(ml_dtypes.bfloat16)
_KINDS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"

# Codes are positions: the same order as the enums of csrc/kernels/reduce.h.
DTYPES: dict[Dtype, int] = {
    BFLOAT16 if name == "bfloat16" else np.dtype(name): code for code, name in enumerate(_KINDS.split())
}
# They are folded in float32 and rounded at the end of each pass: more passes give other bits.
ROUNDED = (np.dtype(np.float16), BFLOAT16)
OPS: dict[str, int] = {
    name: code
    for code, name in enumerate(("sum", "product", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor"))
}
CUSTOM = -1  # the code of every custom operator

NAMES = ("sum", "mean", *list(OPS)[1:])
_NICKNAMES = {"avg": "mean", "average": "mean", "add": "sum", "mul": "product", "multiply": "product"}
_UFUNCS: dict[np.ufunc, str] = {
    np.add: "sum",
    np.multiply: "product",
    np.minimum: "min",
    np.maximum: "max",
    np.bitwise_and: "band",
    np.bitwise_or: "bor",
    np.bitwise_xor: "bxor",
    np.logical_and: "land",
    np.logical_or: "lor",
    np.logical_xor: "lxor",
}


class Op(NamedTuple):
    """An operator that has been found to fit a dtype.

    `code` is the kernels' (`CUSTOM` for a custom operator); `mean` asks for a final division by the number of ranks;
    `function(a, b, out)` is there for custom operators only. `name` tells the operator to people and to the other
    ranks: a custom one's never equals a name of `NAMES`, and differs where two functions of one name do.
    """

    name: str
    code: int
    mean: bool = False
    function: Callable[..., Any] | None = None
    rows: bool = False  # `function` takes whole rows

    def element(self, array: np.ndarray[Any, Dtype]) -> tuple[Dtype, tuple[int, ...]]:
        """What must not be cut of an operand, as a dtype, and the shape that the operand has in such elements."""
        if not self.rows or array.ndim < 2:
            return array.dtype, array.shape
        return np.dtype((array.dtype, array.shape[1:])), array.shape[:1]


@dataclass(frozen=True)
class WholeRows:
    """A custom operator that gets whole rows: see `whole_rows`."""

    function: Callable[[Any, Any, Any], Any]

    def __call__(self, a: Any, b: Any, out: Any) -> Any:
        """`a op b`, into `out`."""
        return self.function(a, b, out)


def whole_rows(function: Callable[[Any, Any, Any], Any]) -> WholeRows:
    """`function(a, b, out)` as an operator that combines what lies in one row of axis 0, such as a matrix or a record.

    Of operands of the shape (n, ...) it gets pieces of the shape (k, ...): so many whole rows, while other operators
    get pieces of one axis that are cut anywhere. A row that is longer than a message, of tens of KiB, is a ValueError.
    """
    if not callable(function):
        raise TypeError(f"an operator is a callable f(a, b, out), not {function!r}")
    return WholeRows(function)


def _located(better: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], None]:
    def located(a: Any, b: Any, out: Any) -> None:
        value, place = a.dtype.names
        equal = (a[value] == b[value]) | ((a[value] != a[value]) & (b[value] != b[value]))
        nan = (b[value] != b[value]) & (a[value] == a[value])
        ahead = better(b[value], a[value]) & (a[value] == a[value])
        out[...] = np.where(nan | ahead | (equal & (b[place] < a[place])), b, a)

    return located


# Of elements of two fields, a value and where it is: the greatest or least value, and of equal ones (of NaN, which goes
# before all) the lowest place.
LOCATED: dict[str, Callable[[Any, Any, Any], None]] = {"maxloc": _located(np.greater), "minloc": _located(np.less)}


def dtype_code(dtype: Dtype) -> int:
    """The kernels' code of `dtype`. Raises TypeError, listing the dtypes there are, for any other."""
    code = DTYPES.get(dtype)
    if code is not None:
        return code
    if dtype.newbyteorder("=") in DTYPES:
        order = "big" if sys.byteorder == "little" else "little"
        raise TypeError(f"dtype {dtype.str} is {order}-endian: give x.astype({dtype.newbyteorder('=').name!r}) instead")
    raise TypeError(f"dtype {dtype} is not supported; these are: {', '.join(d.name for d in DTYPES)}")


def resolve(op: str | np.ufunc | Callable[..., Any], dtype: Dtype) -> Op:
    """The operator that `op` means for elements of `dtype`.

    Raises ValueError for a name that does not exist, and TypeError, saying what would work, for a dtype that is not
    supported, for a pair that makes no sense (bitwise of floats, min of complex, mean of bool), for a ufunc that is not
    binary or whose result does not fit into `dtype`, and for a callable that cannot be called as `f(a, b, out)`.
    """
    if isinstance(op, str) and op in LOCATED:
        if dtype.names is None or len(dtype.names) != 2:
            raise TypeError(f'op {op!r} is of elements of two fields, such as [("value", "f8"), ("index", "i8")]')
        return Op(op, CUSTOM, function=LOCATED[op])
    if isinstance(op, (str, np.ufunc)):
        return _known(op, dtype)
    if dtype.fields is None:
        dtype_code(dtype)
    if isinstance(op, WholeRows):
        return Op(f"whole_rows({_custom_name(op.function)})", CUSTOM, function=op.function, rows=True)
    if not callable(op):
        names = ", ".join(NAMES)
        raise TypeError(f"op is a name ({names}), a binary NumPy ufunc or a callable f(a, b, out), not {op!r}")
    return Op(_custom_name(op), CUSTOM, function=op)  # not cached: that would keep what the callable closes over alive


@lru_cache(maxsize=1024)
def _known(op: str | np.ufunc, dtype: Dtype) -> Op:
    dtype_code(dtype)
    name = op if isinstance(op, str) else _UFUNCS.get(op)
    if name is None:
        assert isinstance(op, np.ufunc)
        return _ufunc(op, dtype)
    if name not in NAMES:
        from difflib import get_close_matches  # late: every rank would pay for it, and few mistype

        word = name.lower()
        near = [_NICKNAMES[word]] if word in _NICKNAMES else get_close_matches(word, NAMES, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no op {name!r}.{hint} The names are: {', '.join(NAMES)}")
    if not _makes_sense(name, dtype):
        sound = ", ".join(other for other in NAMES if _makes_sense(other, dtype))
        taken = ", ".join(other.name for other in DTYPES if _makes_sense(name, other))
        raise TypeError(f"op {name!r} does not exist for {dtype.name}, only for {taken}; {dtype.name} has {sound}")
    return Op(name, OPS["sum" if name == "mean" else name], mean=name == "mean")


def _makes_sense(name: str, dtype: Dtype) -> bool:
    if name in ("band", "bor", "bxor"):
        return dtype.kind in "biu"
    if name in ("min", "max"):
        return dtype.kind != "c"
    return name != "mean" or dtype.kind != "b"


def _ufunc(ufunc: np.ufunc, dtype: Dtype) -> Op:
    if (ufunc.nin, ufunc.nout) != (2, 1) or ufunc.signature is not None:
        shape = ufunc.signature or f"{ufunc.nin} inputs and {ufunc.nout} outputs"
        raise TypeError(f"ufunc {ufunc.__name__!r} has {shape}; an op takes two elements and gives one")
    try:
        ufunc.resolve_dtypes((dtype, dtype, dtype))
    except TypeError as error:
        reason = str(error) or "no loop for it"
        raise TypeError(f"ufunc {ufunc.__name__!r} of {dtype.name} does not give {dtype.name}: {reason}") from None
    return Op(f"numpy.{ufunc.__name__}", CUSTOM, function=ufunc)


def _custom_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if function in (min, max, sum):  # the first two take three arguments, write nothing, and have no signature to tell
        raise TypeError(f"op is the builtin {name}, which cannot write into out: did you mean {name!r}?")
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        raise TypeError(f"op {name} cannot be called as f(a, b, out): it must write a op b into out") from None
    except ValueError:
        pass  # a builtin without a signature: the call itself will tell
    from .code_hash import code_hash  # late, as few have operators of their own

    return f"custom({name} {code_hash(function)})"
