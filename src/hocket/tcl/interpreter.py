"""`hocket tclsh`: an interpreter in this process, in which the commands are there from the beginning."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from .._core import VERSION
from . import PACKAGE
from .script import NAMES, OK, Script

_SETUP = """
source [file join $::hocket::folder commands.tcl]
::hocket::define $::hocket::names
lappend auto_path $::hocket::folder
package provide hocket $::hocket::version
proc exit {{status 0}} {
    set status [::hocket::leave [expr {int($status)}]]
    foreach channel [chan names] {
        catch {flush $channel}
    }
    ::hocket::end $status
}
"""

_RUN = """
if {[catch {source $argv0} problem options]} {
    puts stderr $errorInfo
    exit 1
}
exit 0
"""


def run(file: str, arguments: Sequence[str]) -> None:
    """Run a script as tclsh does, and end this process as tclsh would: with status 1 and Tcl's own words on standard
    error where the script fails. A Ctrl-C ends it at once. Raises ImportError where this Python has no tkinter."""
    from tkinter import Tcl

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python would see it only when the script calls hocket
    interpreter, script = Tcl(), Script()

    def exchange(name: str, *words: str) -> tuple[str, ...]:
        if name == "leave":
            return OK, str(script.leave(int(words[0]), words[1], words[2]))
        return script.reply(name, words)

    def end(status: str) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(status) & 0xFF)

    interpreter.createcommand("::hocket::exchange", exchange)
    interpreter.createcommand("::hocket::end", end)
    settings = {"::hocket::folder": str(PACKAGE), "::hocket::names": NAMES, "::hocket::version": VERSION}
    for name, value in {**settings, "argv0": file, "argv": tuple(arguments), "argc": len(arguments)}.items():
        interpreter.call("set", name, value)
    interpreter.eval(_SETUP)
    interpreter.eval(_RUN)
