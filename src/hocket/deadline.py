"""A point in time until which something may take."""

from __future__ import annotations

import time


class Deadline:
    """A point in time, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def __str__(self) -> str:
        return f"{round(self.seconds, 1):g} s"
