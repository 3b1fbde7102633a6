"""Which error came first? A rank that dies makes others fail with PeerLost: those are consequences, and no news.

A launcher sees only processes that end, and the rank that failed first is often the last one to end, since the others
notice while it still prints its traceback. So a rank under `hocket run` that ends in a consequence says so by its exit
code, and the launcher waits a moment for the cause before it believes that there is none.
"""

from __future__ import annotations

import sys
from types import TracebackType

from .errors import PeerLost

CONSEQUENCE = 76  # EX_PROTOCOL of sysexits.h: a code that programs do not give by themselves
PATIENCE = 2.0  # seconds that a consequence waits for its cause


def is_consequence(error: BaseException | None) -> bool:
    """Whether another rank's failure is at the root of `error`: a PeerLost anywhere among its causes."""
    while error is not None:
        if isinstance(error, PeerLost):
            return True
        error = error.__cause__ or error.__context__
    return False


def install() -> None:
    """Let this process end with the exit code CONSEQUENCE where its uncaught error is one. It is printed as ever."""
    before = sys.excepthook
    if getattr(before, "tells_consequences", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if is_consequence(error):
            sys.exit(CONSEQUENCE)

    hook.tells_consequences = True  # type: ignore[attr-defined]
    sys.excepthook = hook
