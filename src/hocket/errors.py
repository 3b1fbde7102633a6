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

What a failed call leaves behind: its inputs are as they were. Its output, `out` or the array of a call in place, is as
it was too, or else `error.out_touched` is true. With `protect=True` it always is as it was.
"""

from __future__ import annotations

TOUCHED = "out may hold a part of the result"


class HocketError(RuntimeError):
    """The root of all errors that are hocket's own.

    One that ended a group is the same on all ranks that are left: what follows, and its text, but for the half sentence
    with which each says by itself that its output was touched.
    """

    lost: tuple[int, ...] = ()
    """The ranks that the others take for lost: dead, gone, or stopped."""

    completed: int | None = None
    """The last call of the group that all others completed; calls are counted from 1. None for other errors."""

    settled: str = ""
    """The call that ended well on some ranks, but not on all: its result is not to be used, on any. Empty: none did."""

    out_touched: bool = False
    """Of this rank alone: whether the caller's `out` (in place: the array itself) may hold a part of the result. False
    only where not a byte of it was changed. Where a `wait` has timed out, and the call goes on, it is true if that call
    may be writing there."""


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


def touch(error: BaseException) -> None:
    """Say of what ended a call that the caller's output may have been written. Errors that are not hocket's own get a
    note, where Python has notes (from 3.11 on)."""
    if isinstance(error, HocketError):
        if error.out_touched:
            return
        error.out_touched = True
        sentence, newline, rest = str(error).partition("\n")
        error.args = (f"{sentence}; {TOUCHED}{newline}{rest}",)
    elif hasattr(error, "add_note"):
        error.add_note(f"hocket: {TOUCHED}")


def untouched(text: str) -> str:
    """A text that says so, as it is for other ranks, and other calls: without that."""
    return text.replace(f"; {TOUCHED}", "").replace(f"hocket: {TOUCHED}\n", "")
