"""What hocket asks of the kernel, tried out, since a container may forbid what the kernel could do."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Callable
from typing import NamedTuple

from .findings import Check, Finding, Here, note, ok, problem, warning
from .limits import asks_for_ucx

_OLDEST, _POPULATES = (5, 3), (5, 14)
_PAGE = 4096
_SECCOMP = "docker --security-opt seccomp=unconfined tells whether its filter is to blame; a newer docker allows it"


def read_version(here: Here) -> str:
    """Such as "6.1.0-18-amd64"."""
    return here.text("proc/sys/kernel/osrelease")


def judge_version(release: str) -> list[Finding]:
    """One that lacks what hocket cannot do without, or what makes the first call quick."""
    found = re.match(r"(\d+)\.(\d+)", release)
    version = (int(found[1]), int(found[2])) if found else _OLDEST
    if version < _OLDEST:
        return problem(
            "version",
            f"Linux {release}",
            "a rank learns by a pidfd that another one has died, and pidfd_open came with Linux 5.3",
            "a newer kernel",
        )
    if version < _POPULATES:
        return note(
            "version",
            f"Linux {release}",
            "from 5.14 on shared memory is entered into page tables at once, and not by a fault for each page",
            "a newer kernel makes first calls with large arrays quicker",
        )
    return ok("version", f"Linux {release}")


def _refused(action: Callable[[], object]) -> str:
    """Why the kernel refuses; empty where it does not."""
    try:
        action()
    except OSError as error:
        return error.strerror or str(error)
    return ""


class Memfd(NamedTuple):
    """Why no memory file can be made and shared, empty where one can; and the sysctl vm.memfd_noexec, if there."""

    refused: str
    noexec: str


def read_memfd(here: Here) -> Memfd:
    """By making one as hocket does."""
    return Memfd(_refused(_share), here.maybe("proc/sys/vm/memfd_noexec"))


def _share() -> None:
    fd = os.memfd_create("hocket-doctor", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, _PAGE)
        with mmap.mmap(fd, _PAGE) as memory:
            memory[0] = 1
    finally:
        os.close(fd)


def judge_memfd(facts: Memfd) -> list[Finding]:
    """Refused; or not at all."""
    if not facts.refused:
        return ok("memfd", "memfd_create")
    found = f"memory that processes share cannot be made (memfd_create: {facts.refused})"
    why = "it is what ranks of one host exchange arrays through"
    if facts.noexec == "2":
        return problem("memfd", f"{found}, since vm.memfd_noexec is 2", why, "sysctl vm.memfd_noexec=1")
    return problem("memfd", found, why, _SECCOMP)


def read_pidfd(here: Here) -> str:
    """Why there is none, empty where there is."""
    return _refused(lambda: os.close(os.pidfd_open(os.getpid())))


def judge_pidfd(refused: str) -> list[Finding]:
    """Refused; or not at all."""
    if not refused:
        return ok("pidfd", "pidfd_open")
    found, why = f"no pidfd can be had (pidfd_open: {refused})", "by it a rank learns that another one has died"
    return problem("pidfd", found, why, _SECCOMP)


class Reading(NamedTuple):
    """Why a process cannot read another one's memory, empty where it can: what the kernel says, and Yama's
    ptrace_scope, empty without Yama; whether UCX is asked for; and whether root asks."""

    refused: str
    scope: str
    ucx: bool
    root: bool = False


def read_reading(here: Here) -> Reading:
    """By reading this one's, which Yama allows and a filter of system calls does not."""
    return Reading(
        _refused(_copy), here.maybe("proc/sys/kernel/yama/ptrace_scope"), asks_for_ucx(here), os.geteuid() == 0
    )


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _copy() -> None:
    one, other = ctypes.create_string_buffer(b"x", 8), ctypes.create_string_buffer(8)
    spans = [_Span(ctypes.addressof(each), 8) for each in (other, one)]
    call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    words = (ctypes.byref(spans[0]), ctypes.c_ulong(1), ctypes.byref(spans[1]), ctypes.c_ulong(1), ctypes.c_ulong(0))
    if call(ctypes.c_int(os.getpid()), *words) != 8:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def judge_reading(facts: Reading) -> list[Finding]:
    """Forbidden by a filter, or by Yama to all but root. hocket does without, and what is used beside it may not."""
    made = warning if facts.ucx else note
    why = (
        "hocket stages long messages then, even where the kernel would copy them faster; UCX's cma, and py-spy behind "
        "hocket status --stacks, read other processes' memory, too"
    )
    if facts.refused:
        return made("process_vm_readv", f"process_vm_readv is forbidden ({facts.refused})", why, _SECCOMP)
    if facts.scope not in ("", "0") and not facts.root:
        found = f"a process reads no other's memory but its child's (ptrace_scope is {facts.scope})"
        return made("process_vm_readv", found, why, "sysctl kernel.yama.ptrace_scope=0, or UCX_TLS=^cma")
    return ok("process_vm_readv", "process_vm_readv")


CHECKS = (
    Check("version", read_version, judge_version),
    Check("memfd", read_memfd, judge_memfd),
    Check("pidfd", read_pidfd, judge_pidfd),
    Check("process_vm_readv", read_reading, judge_reading),
)
