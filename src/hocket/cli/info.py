"""`hocket info`: what hocket sees of this machine and of the launcher."""

from __future__ import annotations

from typing import Annotated

import typer


def info(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Show version, cores and what they share, which kernels reduce, how two ranks do it, which launcher's variables
    are set here, and whether there is UCX (HOCKET_UCX).

    Examples:

        hocket info

        hocket run -n 2 --tag-output -m hocket info --json
    """
    facts = _facts()
    if as_json:
        import json

        typer.echo(json.dumps(facts))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("", "", show_header=False)
    for name, value in facts.items():
        rows = value.items() if isinstance(value, dict) else [(name, value)]
        for label, text in rows:
            table.add_row(str(label), str(text))
    Console().print(table)


_LENT = "lend slots: a sum comes home in the slot that its part went out in (HOCKET_PROTOCOL=staged: it does not)"
_PAST = ", written past the caches where calls find that faster"
_PROTOCOLS = {  # of two ranks that sum, and of long messages
    "lent": (
        _LENT,
        "through slots{past}; or by the kernel, if only copied, where calls find that faster, now and then anew",
    ),
    "staged": ("send sums back from slots of their own: HOCKET_PROTOCOL", "through slots{past}: HOCKET_PROTOCOL"),
    "offered": (_LENT, "by the kernel, from memory to memory, where it can and they are only copied: HOCKET_PROTOCOL"),
}


_RESULTS = (
    "what is copied, or summed out of place, of 2 to 16 MiB, through the caches or past them, whichever calls find "
    "faster, now and then anew; more past them"
)


def _facts() -> dict[str, object]:
    import os
    import platform
    import socket

    from .._core import VERSION, kernels
    from ..config import Config, concerning, job_protocol, seen
    from ..doctor.versions import ucx
    from ..errors import RendezvousError

    try:
        config = Config.from_env()
        place: object = f"rank {config.rank} of {config.size}"
        launcher, protocol = config.launcher, job_protocol()
    except RendezvousError as error:
        place, launcher, protocol = f"no place: {error}", "unclear", "lent"
    there, lacks = ucx(concerning())
    passes = platform.machine() == "x86_64"  # the caches: csrc/kernels/copy.cpp
    return {
        "hocket": VERSION,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cores": len(os.sched_getaffinity(0)),
        **_shared(),
        "kernels": kernels(),
        "two ranks": _PROTOCOLS[protocol][0],
        "long messages": _PROTOCOLS[protocol][1].format(past=_PAST if passes else ""),
        "long results": _RESULTS if passes else "through the caches",
        "launcher": launcher,
        "place": place,
        "ucx": there or f"none: {lacks}",
        "variables": seen(),
    }


def _shared() -> dict[str, str]:
    """How cores share caches and memory, and which of these this process is bound to."""
    import os

    from ..cores import cores

    found, allowed = cores(), os.sched_getaffinity(0)

    def told(count: int, number: int, lacks: str) -> str:
        if count < 2:
            return "1" if count else lacks
        return f"{count}; this process is bound to " + (f"number {number}" if number >= 0 else "none of them")

    return {
        "cache domains": told(len(found.domains), found.domain(allowed), "not told by this machine"),
        "numa nodes": told(len(found.nodes), found.node(allowed), "not told by this machine"),
    }
