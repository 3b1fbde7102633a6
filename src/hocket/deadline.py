"""A point in time until which something may take."""

from __future__ import annotations

import time


class Deadline:
    """A point in time, `seconds` from now, or from when it began, so many `spent` ago."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        self.seconds = seconds
        self._begin = time.monotonic() - spent

    @staticmethod
    def of(limit: Deadline | float) -> Deadline:
        """One that has begun already, or so many seconds from now."""
        return limit if isinstance(limit, Deadline) else Deadline(limit)

    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.seconds - self.spent())

    def spent(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._begin

    def __str__(self) -> str:
        return f"{round(self.seconds, 1):g} s"
