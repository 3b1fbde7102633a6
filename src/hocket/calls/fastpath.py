"""The short way into a collective: what it tells apart, and how a method takes it. csrc/python/cache.h says how it works."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, NamedTuple, TypeVar, cast

from .. import _core

Function = TypeVar("Function", bound=Callable[..., Any])

# In the order of csrc/python/cache.h.
(
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    BROADCAST,
    SCATTER,
    ALL_GATHER,
    GATHER,
    ALL_TO_ALL,
    BARRIER,
    SEND,
    RECV,
) = range(11)


class Memo(NamedTuple):
    """What a call with no arguments but these is remembered under."""

    method: int
    x: Any
    op: Any
    out: Any
    root: int


def short_way(method: int) -> Callable[[Function], Function]:
    """For a method of Group: a call that looks like an earlier one is made without it. All others are made by it."""

    def decorate(function: Function) -> Function:
        return cast(Function, update_wrapper(_core.door(method, function), function))

    return decorate
