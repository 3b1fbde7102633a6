"""A barrier that says who did not come."""

from __future__ import annotations

import numpy as np

from ..errors import CollectiveTimeout
from ..group import Group

_TAG = -(1 << 40)  # beyond torch's tags, which have 32 bits
_SLACK = 5.0  # seconds for rank 0's verdict to arrive


def monitored_barrier(group: Group, number: int, seconds: float, all_missing: bool) -> None:
    """Every rank reports to rank 0, which tells them who is missing. It is made of messages and not of a collective, so
    that the group remains usable. `number` counts the group's monitored barriers. An error says it in gloo's words too,
    which tools look for."""
    begin, within = f"monitored_barrier timed out after {seconds:g} s", f"{round(seconds * 1000)} ms"
    if seconds <= 0:
        raise CollectiveTimeout(f"{begin}: Rank {group.rank} timed out in monitoredBarrier after {within}")
    tag = _TAG - number
    verdict = np.zeros(group.size, np.bool_)
    if group.rank == 0:
        others = range(1, group.size)
        reports = [group.recv(r, out=np.empty(1, np.bool_), tag=tag, timeout=seconds, async_op=True) for r in others]
        for rank, report in zip(others, reports, strict=True):
            error = report.exception()
            if error is not None and not isinstance(error, CollectiveTimeout):
                raise error
            verdict[rank] = error is not None
            if error is not None and not all_missing:
                break
        for rank in others:
            if not verdict[rank]:
                group.send(verdict, rank, tag=tag)
    else:
        group.send(np.ones(1, np.bool_), 0, tag=tag)
        group.recv(0, out=verdict, tag=tag, timeout=seconds + _SLACK)
    if verdict.any():
        missing = np.flatnonzero(verdict).tolist()
        text = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} failed to pass monitoredBarrier"
        text += f" in {within}{'' if all_missing else ', and perhaps others did'}"
        if group.rank != 0:
            came = f"Rank {group.rank} successfully reached monitoredBarrier"
            text = f"{came}, but received errors while waiting for send/recv from rank 0: {text}"
        raise CollectiveTimeout(f"{begin}: {text}")
