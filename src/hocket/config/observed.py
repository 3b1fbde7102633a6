"""Where a rank is to show what it does: its metrics, its timeline, and what it did before an error; and where it finds
what was measured of its machine."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import RendezvousError
from ..launchers import Environ, Launcher
from . import place_of


def metrics_address(environ: Environ = os.environ) -> tuple[str, int] | None:
    """Where this rank serves its metrics: at the host and port of HOCKET_METRICS, plus its local rank; None where that
    is not set. Raises RendezvousError where it makes no sense."""
    asked = environ.get("HOCKET_METRICS", "")
    if not asked:
        return None
    host, _, port = asked.rpartition(":")
    here = place_of(environ)[2] if Launcher.of(environ) or "LOCAL_RANK" in environ else 0
    if not (port.isascii() and port.isdigit() and 0 < int(port) + here < 1 << 16):
        raise RendezvousError(
            f'HOCKET_METRICS is "{asked}"; it is a port, or host:port, of the first rank of each host'
        )
    return host.strip("[]") or "127.0.0.1", int(port) + here


def trace_folder(environ: Environ = os.environ) -> Path | None:
    """Where this rank writes its timeline: the folder HOCKET_TRACE; None where that is not set."""
    asked = environ.get("HOCKET_TRACE", "")
    return Path(asked) if asked else None


def flight_folder(environ: Environ = os.environ) -> Path | None:
    """Where this rank writes what it did last, should its group break: the folder HOCKET_FLIGHT; None where that is not
    set."""
    asked = environ.get("HOCKET_FLIGHT", "")
    return Path(asked) if asked else None


def profile_place(environ: Environ = os.environ) -> tuple[Path | None, bool]:
    """The file that HOCKET_PROFILE names, and True; where that is not set the folder with those of all machines that
    share a home, and False. None: "none" has been asked for, or there is no home."""
    asked = environ.get("HOCKET_PROFILE", "")
    if asked:
        return (None if asked == "none" else Path(asked)), True
    cache, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    if cache.startswith("/"):  # as the XDG base directory specification has it: others are ignored
        return Path(cache) / "hocket", False
    return (Path(home) / ".cache" / "hocket" if home else None), False
