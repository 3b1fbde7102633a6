"""The arena: memory that all ranks of a group can read, so that a collective sends nothing of it but its address."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from bisect import insort
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays.ops import dtype_code

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

PAGE = 4096


class Arena:
    """Arrays out of `size` bytes at `address`. `owner` keeps that memory mapped, and so does every array.

    An array's memory is free again when the last view of it is gone. First fit, in whole pages.
    """

    def __init__(self, address: int, size: int, owner: object) -> None:
        self._address, self._size, self._owner = address, size, owner
        self._free: list[tuple[int, int]] = [(0, size)]  # begin and end, sorted and never adjacent
        self._lock = threading.Lock()

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> Array:
        """A new array, its contents undefined. Raises MemoryError when no gap is large enough, and TypeError for a
        dtype that no collective takes."""
        kind = np.dtype(dtype)
        dtype_code(kind)
        dims = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        if any(n < 0 for n in dims):
            raise ValueError(f"a shape has no negative axes: {dims}")
        nbytes = math.prod(dims) * kind.itemsize
        begin = self._take(-(-max(nbytes, 1) // PAGE) * PAGE)
        memory = (ctypes.c_char * max(nbytes, 1)).from_address(self._address + begin)
        memory.owner = self._owner  # type: ignore[attr-defined]
        weakref.finalize(memory, self._give, begin, begin + -(-max(nbytes, 1) // PAGE) * PAGE).atexit = False
        return np.ndarray(dims, kind, buffer=memoryview(memory))

    def _take(self, nbytes: int) -> int:
        with self._lock:
            for i, (begin, end) in enumerate(self._free):
                if end - begin >= nbytes:
                    self._free[i : i + 1] = [(begin + nbytes, end)] if end - begin > nbytes else []
                    return begin
            left = sum(end - begin for begin, end in self._free)
        raise MemoryError(f"the arena has no {nbytes} bytes in one piece; {left} of {self._size} are free")

    def _give(self, begin: int, end: int) -> None:
        with self._lock:
            insort(self._free, (begin, end))
            i = self._free.index((begin, end))
            for j in (i, i - 1):  # the gap behind, then the one before
                if 0 <= j < len(self._free) - 1 and self._free[j][1] == self._free[j + 1][0]:
                    self._free[j : j + 2] = [(self._free[j][0], self._free[j + 1][1])]
