"""Every error hocket raises, on one page.

```
HocketError                      a RuntimeError
├── RendezvousError              the ranks did not find each other
├── CollectiveTimeout            a deadline passed            (also a TimeoutError)
├── PeerLost                     a rank died or left          (also a ConnectionError)
├── MismatchError                ranks made different calls   (also a ValueError)
├── PlanError                    a plan breaks its promise    (also a ValueError)
└── GroupBroken                  an earlier error poisoned this group
```

Bad arguments raise plain `ValueError` or `TypeError`, before anything is sent.
"""

from __future__ import annotations


class HocketError(RuntimeError):
    """The root of all errors that are hocket's own.

    One that ended a group is the same on all ranks that are left: its text, and what follows.
    """

    lost: tuple[int, ...] = ()
    """The ranks that the others take for lost: dead, gone, or stopped."""

    completed: int | None = None
    """The last call of the group that all others completed; calls are counted from 1. None for other errors."""

    settled: str = ""
    """The call that ended well on some ranks, but not on all: its result is not to be used, on any. Empty: none did."""


class RendezvousError(HocketError):
    """The ranks did not find each other: a missing variable, a missing rank, or a rank of another job."""


class CollectiveTimeout(HocketError, TimeoutError):
    """A deadline passed. The message names the operation and the ranks that were waited for."""


class PeerLost(HocketError, ConnectionError):
    """A rank died or left while it was needed. The message names it and, where known, why."""


class MismatchError(HocketError, ValueError):
    """Ranks made different calls. The message holds both."""


class PlanError(HocketError, ValueError):
    """A plan breaks its collective's promise. The message names step, move, rank and slot."""


class GroupBroken(HocketError):
    """An earlier error poisoned this group; it is the `__cause__`, and its text is in the message."""
