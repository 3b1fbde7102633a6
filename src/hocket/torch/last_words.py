"""A rank that ends with an error tells the others, who raise it in the call that they wait in, or in their next."""

from __future__ import annotations

import sys
import weakref
from types import TracebackType
from typing import Protocol


class Leaves(Protocol):
    """What can be left because of an error."""

    def leave(self, error: BaseException) -> None:
        """Leave, and tell why."""


_groups: weakref.WeakSet[Leaves] = weakref.WeakSet()


def of(group: Leaves) -> None:
    """Let `group` be left with the error that ends this program, if one does."""
    _groups.add(group)
    before = sys.excepthook
    if getattr(before, "says_last_words", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        for left in list(_groups):
            left.leave(error)
        before(kind, error, trace)

    hook.says_last_words = True  # type: ignore[attr-defined]
    sys.excepthook = hook
