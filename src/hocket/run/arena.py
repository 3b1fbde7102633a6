"""The arena: memory that all ranks of a group can read, so that a collective sends nothing of it but its address."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays.ops import dtype_code

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes; less could not be fenced, or given back, alone
SPARE = 32 << 20  # bytes of freed arrays whose pages are kept, to be used again without a fault


class Arena:
    """Arrays out of `size` bytes at `address`. `owner` keeps that memory mapped, and so does every array.

    An array's memory is free again when the last view of it is gone. First fit, in whole pages. `give_back(begin,
    bytes)` returns pages to the system: those of an array that is freed while about `SPARE` bytes are spare already.

    The lock guards the gaps. An array may end in any thread, at any point, even in one that holds the lock: so what is
    freed goes into a queue, which takes no lock, and from there into the gaps when memory is next asked for.
    """

    def __init__(self, address: int, size: int, owner: object, give_back: Callable[[int, int], object]) -> None:
        self._address, self._size, self._owner, self._give_back = address, size, owner, give_back
        self._gaps: list[tuple[int, int]] = [(0, size)]  # begin and end, sorted and never adjacent
        self._freed: deque[tuple[int, int]] = deque()
        self._spare = 0  # bytes, about: freed, with their pages, and not used again
        self._lock = threading.Lock()

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> Array:
        """A new array, its contents undefined. Raises MemoryError when no gap is large enough, and TypeError for a
        dtype that no collective takes."""
        kind = np.dtype(dtype)
        dtype_code(kind)
        dims = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        if any(n < 0 for n in dims):
            raise ValueError(f"a shape has no negative axes: {dims}")
        nbytes = max(math.prod(dims) * kind.itemsize, 1)
        pages = -(-nbytes // PAGE) * PAGE
        begin = self._take(pages)
        memory = (ctypes.c_char * nbytes).from_address(self._address + begin)
        memory.owner = self._owner  # type: ignore[attr-defined]
        weakref.finalize(memory, self._free, begin, begin + pages).atexit = False
        return np.ndarray(dims, kind, buffer=memoryview(memory))

    @property
    def idle(self) -> bool:
        """Whether no array lies in it."""
        with self._lock:
            self._collect()
            return self._gaps == [(0, self._size)]

    def _take(self, nbytes: int) -> int:
        with self._lock:
            self._collect()
            self._spare = max(0, self._spare - nbytes)
            for i, (begin, end) in enumerate(self._gaps):
                if end - begin >= nbytes:
                    self._gaps[i : i + 1] = [(begin + nbytes, end)] if end - begin > nbytes else []
                    return begin
            left = sum(end - begin for begin, end in self._gaps)
        raise MemoryError(f"the arena has no {nbytes} bytes in one piece; {left} of {self._size} are free")

    def _free(self, begin: int, end: int) -> None:
        if self._spare + end - begin > SPARE:
            self._give_back(begin, end - begin)
        else:
            self._spare += end - begin
        self._freed.append((begin, end))

    def _collect(self) -> None:
        while self._freed:
            begin, end = self._freed.popleft()
            insort(self._gaps, (begin, end))
            i = self._gaps.index((begin, end))
            for j in (i, i - 1):  # the gap behind, then the one before
                if 0 <= j < len(self._gaps) - 1 and self._gaps[j][1] == self._gaps[j + 1][0]:
                    self._gaps[j : j + 2] = [(self._gaps[j][0], self._gaps[j + 1][1])]
