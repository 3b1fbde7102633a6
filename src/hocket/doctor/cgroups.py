"""What the control groups of this process allow it, of either version; also within a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from .findings import Here

_NONE = 1 << 60  # bytes: what version 1 says where nothing is limited is more than that


def cpu_quota(here: Here) -> float | None:
    """How many cores' worth of time there is; None where that is not limited."""
    found = []
    for folder, is_v2 in _folders(here, "cpu"):
        if is_v2:
            quota, _, period = _told(folder / "cpu.max").partition(" ")
        else:
            quota, period = _told(folder / "cpu.cfs_quota_us"), _told(folder / "cpu.cfs_period_us")
        if quota not in ("", "max") and int(quota) > 0 and period:
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_limit(here: Here) -> int | None:
    """In bytes; None where there is none."""
    found = []
    for folder, is_v2 in _folders(here, "memory"):
        text = _told(folder / ("memory.max" if is_v2 else "memory.limit_in_bytes"))
        if text not in ("", "max") and int(text) < _NONE:
            found.append(int(text))
    return min(found, default=None)


def _folders(here: Here, controller: str) -> Iterator[tuple[Path, bool]]:
    """The group that this process is in, and those around it, each with whether it is of version 2. A container may see
    its own as the root, and none around it."""
    for line in here.text("proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        is_v2 = not controllers
        if not is_v2 and controller not in controllers.split(","):
            continue
        tops = ["unified", "."] if is_v2 else [controllers, controller]
        top = next((top for name in tops if (top := here.root / "sys/fs/cgroup" / name).is_dir()), None)
        if top is None:
            continue
        within = PurePosixPath(path.lstrip("/"))
        for each in (within, *within.parents) if ".." not in within.parts else [PurePosixPath()]:
            if (top / each).is_dir():
                yield top / each, is_v2


def _told(file: Path) -> str:
    """Empty where there is no such file, as in the root of all groups."""
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""
