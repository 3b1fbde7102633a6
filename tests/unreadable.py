"""A process whose memory no other one may read, not even of root's."""

from __future__ import annotations

import ctypes

SET_DUMPABLE, PTRACE, VERSION_3 = 4, 19, 0x20080522  # of prctl, of the capabilities, and of how those are given


def become_unreadable() -> None:
    """From now on: it is not dumpable, and has no right to look at others that are not. Files it reads as before."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << PTRACE)  # what it may do
    sets[1] &= ~(1 << PTRACE)  # and could take back
    assert libc.capset(header, sets) == 0
    assert libc.prctl(SET_DUMPABLE, 0, 0, 0, 0) == 0
