"""A call that other processes are to make: looked at, and as bytes.

Pickle names functions and classes, and whoever unpickles imports them. What was typed into an interpreter or a notebook
is in no file, and a lambda or an inner function has no name to be found by: cloudpickle, where it is installed, takes
such things along by value.
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from operator import index
from types import FunctionType
from typing import Any, SupportsIndex, TypeAlias

Call: TypeAlias = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]
Dumps: TypeAlias = Callable[[Any], bytes]


def checked(fn: object, size: object, args: object, kwargs: object, caller: str) -> Call:
    """The call that each of `size` ranks is to make. TypeError or ValueError, in a sentence, for what is none."""
    if not callable(fn):
        raise TypeError(f"{caller}: fn is {fn!r:.80}; it is the function that each rank runs")
    if not isinstance(size, SupportsIndex) or isinstance(size, bool):
        raise TypeError(f"{caller}: size is {size!r:.80}; it is the number of ranks: {caller}(fn, 4)")
    if index(size) < 1:
        raise ValueError(f"size is {size}; at least one rank is needed")
    if not isinstance(args, Sequence) or isinstance(args, (str, bytes, bytearray)):
        raise TypeError(f"{caller}: args is {args!r:.80}; it is a tuple of fn's arguments: {caller}(fn, {size}, (x,))")
    if not isinstance(kwargs, Mapping | None):
        raise TypeError(f"{caller}: kwargs is {kwargs!r:.80}; it is a dict of those arguments of fn that have names")
    return fn, tuple(args), dict(kwargs or {})


def pickled(call: Call, caller: str) -> tuple[bytes, Dumps]:
    """The call, and what pickles its results and errors. Raises TypeError, in a sentence, where it takes cloudpickle
    and there is none."""
    stream = io.BytesIO()
    finder = _Finder(stream)
    cause: Exception | None = None
    try:
        finder.dump(call)
        if finder.nowhere is None:
            return stream.getvalue(), pickle.dumps
        what = f"{finder.nowhere} was typed in here, and no other process can import it"
    except (pickle.PicklingError, AttributeError) as error:
        cause, what = error, str(error)
    try:
        dumps = importlib.import_module("cloudpickle").dumps
    except ImportError:
        raise TypeError(
            f"{caller}: {what}: `pip install cloudpickle`, which takes it along by value, or put it into a module"
        ) from cause
    return dumps(call), dumps


class _Finder(pickle.Pickler):
    """Finds what pickle names and no other process can import."""

    nowhere: str | None = None

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, (type, FunctionType)) and value.__module__ == "__main__" and _is_in_no_file():
            self.nowhere = self.nowhere or value.__qualname__
        return NotImplemented


def _is_in_no_file() -> bool:
    """Whether a fresh process would not find in its own `__main__` what is in this one. Interpreters and notebooks have
    a prompt, `sys.ps1`; behind `python -i` there is a file, too, and who knows what was typed after it."""
    main = sys.modules["__main__"]
    return hasattr(sys, "ps1") or (getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None)
