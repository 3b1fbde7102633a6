"""The fast path into a call: what it tells apart, and how a method takes it. csrc/python/cache.h says how it works."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, NamedTuple, TypeVar, cast

from .._core import fast_path as make

Function = TypeVar("Function", bound=Callable[..., Any])

# In the order of csrc/python/cache.h.
(
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    SCAN,
    EXSCAN,
    BROADCAST,
    SCATTER,
    ALL_GATHER,
    GATHER,
    ALL_TO_ALL,
    BARRIER,
    SEND,
    RECV,
) = range(13)


class CacheKey(NamedTuple):
    """The arguments that a call is remembered under, if it has no others."""

    method: int
    x: Any
    op: Any
    out: Any
    root: int


def fast_path(method: int) -> Callable[[Function], Function]:
    """For a method of Group: a call that looks like an earlier one is made without it. All others are made by it."""

    def decorate(function: Function) -> Function:
        return cast(Function, update_wrapper(make(method, function), function))

    return decorate
