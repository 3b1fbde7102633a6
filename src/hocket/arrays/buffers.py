"""The memory of one call: what the caller gave, made contiguous, and where the result goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .adopt import is_number, like, number_like, overlap, writable

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Buffers(NamedTuple):
    """`inp` and `target` are C-contiguous and either apart or in one memory, as the call's in-place rule has it.

    `deliver` finishes the call: it moves the result to where the caller wants it and gives back what the caller gets.
    """

    inp: Array
    target: Array
    deliver: Callable[[], Any]
    direct: bool  # these are the caller's own arrays and the one that is given back: nothing is copied
    keeps: bool = True  # what is given back may be the `out` of another call: it is no number
    given: bool = False  # `target` is the caller's, who sees what a failed call leaves there,
    protects: bool = False  # and is not to: the call is made elsewhere, and `target` written when it has succeeded

    @staticmethod
    def make(
        x: Any,
        given: Array | None,
        shape: tuple[int, ...] | None,
        dtype: np.dtype[Any],
        out: Any,
        leads: tuple[int, int] | None,
        protects: bool = False,
    ) -> Buffers:
        """Buffers for `given` (None: this rank gives nothing) and a result of `shape` and `dtype` (None: it gets none).

        The result goes into `out`, or into a new array of the kind of `x`. Input and output may share memory when
        `leads` is there and the input begins `leads[0]` bytes, the output `leads[1]` bytes after one common address;
        otherwise an input that overlaps the output is copied first, unless the call `protects` its output. Raises
        ValueError or TypeError for an `out` that does not fit.
        """
        inp = _NOTHING if given is None else np.ascontiguousarray(given)
        if shape is None:
            return Buffers(inp, _NOTHING, _deliver_nothing, _same(inp, given))
        if out is None:
            result = np.empty(shape, dtype)
            if shape == () and is_number(x):
                return Buffers(inp, result, lambda: number_like(x, result), direct=False, keeps=False)
            return Buffers(inp, result, lambda: like(x, result), _same(inp, given))
        result = writable(out)
        if result.shape != shape or result.dtype != dtype:
            raise ValueError(f"out is {_kind(result.shape, result.dtype)}, but the result is {_kind(shape, dtype)}")
        target = result if result.flags.c_contiguous else np.empty(shape, dtype)
        if not protects and inp.size and overlap(inp, target) and not _aligned(inp, target, leads):
            inp = inp.copy()

        def deliver() -> Any:
            if target is not result:
                result[...] = target
            return out

        direct = target is result and _same(inp, given)
        return Buffers(inp, target, deliver, direct, given=target is result, protects=protects and target is result)


_NOTHING = np.empty(0, np.uint8)


def _deliver_nothing() -> None:
    return None


def _same(inp: Array, given: Array | None) -> bool:
    return given is None or inp.ctypes.data == given.ctypes.data


def _aligned(inp: Array, target: Array, leads: tuple[int, int] | None) -> bool:
    return leads is not None and inp.ctypes.data - leads[0] == target.ctypes.data - leads[1]


def _kind(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{dtype.name} of shape {shape}"
