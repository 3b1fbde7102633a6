"""Processes: how they are started, watched and ended."""

NO_MORE = "a process cannot be started: this user may have no more of them (ulimit -u), or this container"
