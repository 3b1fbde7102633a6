"""Processes: how they are started, watched and ended."""
