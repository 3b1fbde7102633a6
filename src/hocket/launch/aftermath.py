"""Which error came first? A rank that dies makes others fail with PeerLost: those are consequences, and no news.

A launcher sees only processes that end, and the rank that failed first is often the last one to end, since the others
notice while it still prints its traceback. So a rank under `hocket run` that ends in a consequence says so by its exit
code, and the launcher waits a moment for the cause before it believes that there is none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, TypeVar

from ..errors import HocketError, PeerLost
from ..places import ends_in_users, users_part

CONSEQUENCE = 76  # EX_PROTOCOL of sysexits.h: a code that programs do not give by themselves
PATIENCE = 2.0  # seconds that a consequence waits for its cause


class Process(Protocol):
    """A rank's process; its `str` names it in messages."""

    @property
    def pid(self) -> int:
        """On its host."""


P = TypeVar("P", bound=Process)


def left_too_early(left: Sequence[P], words: str) -> P | None:
    """Which of those that `left` without an error, in this order, made another rank fail for lack of a peer.

    Its last `words` name the peer by its pid. Where they name nobody, it was the first.
    """
    pids = set(re.findall(r"\(pid (\d+)", words))
    return next((child for child in left if not pids or str(child.pid) in pids), None)


def is_consequence(error: BaseException | None) -> bool:
    """Whether another rank's failure is at the root: `error`, or what it was raised from or during, is a PeerLost."""
    return error is not None and any(isinstance(link, PeerLost) for link in _chain(error))


@contextmanager
def trimmed(error: BaseException) -> Iterator[None]:
    """Without hocket's own lines in its traceback, and in those that it came from: to a user they are no news.
    `python -X dev` keeps them. With the name that something has here, where it was asked for by another one."""
    whole = [(link, link.__traceback__, link.args) for link in _chain(error)]
    for link, trace, words in whole:
        told = isinstance(link, (HocketError, TypeError, ValueError, AttributeError)) or _is_pickles(link)
        if (told or ends_in_users(trace)) and not sys.flags.dev_mode:
            link.__traceback__ = users_part(trace)
        if isinstance(link, AttributeError) and words:
            link.args = (f"{words[0]}{_hint(link)}", *words[1:])
    try:
        yield
    finally:
        for link, trace, words in whole:
            link.__traceback__, link.args = trace, words


def _hint(error: AttributeError) -> str:
    from .elsewhere import hint  # which few programs need

    return hint(error)


def _is_pickles(error: BaseException) -> bool:
    """Whether it tells what cannot be pickled. By its name: few programs have imported pickle by then."""
    return type(error).__module__ in ("pickle", "_pickle")


def _chain(error: BaseException) -> list[BaseException]:
    """It, and what it was raised from or during, and so on."""
    chain = [error]
    for link in chain:
        chain += [before for before in (link.__cause__, link.__context__) if before is not None and before not in chain]
    return chain


def install() -> None:
    """Let this process end with the exit code CONSEQUENCE where its uncaught error is one. It is printed as ever, but
    for lines of hocket's own."""
    before = sys.excepthook
    if getattr(before, "tells_consequences", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with trimmed(error):
            before(kind, error, error.__traceback__)
        if is_consequence(error):
            sys.exit(CONSEQUENCE)

    hook.tells_consequences = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def exit_code(error: BaseException) -> int:
    """What this process is to end with, where that error ends it and Python's own handler does not see it."""
    return CONSEQUENCE if getattr(sys.excepthook, "tells_consequences", False) and is_consequence(error) else 1
