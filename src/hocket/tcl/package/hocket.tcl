# The package for any tclsh: `exchange` by way of a companion, a Python process that holds the tensors. It ends with this
# one, however this one ends; when it ends by itself, every command is an error that says so.
#
# Over the pipe go words, each way as a line of their lengths in bytes, and then the words, in UTF-8, without anything
# between them: neither side has to know how the other one quotes.

source [file join [file dirname [info script]] commands.tcl]

namespace eval ::hocket {
    # The program that is the companion: hocket's command line. A script may set it before it requires the package.
    variable program
    if {![info exists program]} {
        set program hocket
    }
    variable pipe ""
    variable lost ""
    variable version 0.1.0

    # A Ctrl-C, and all that a process group is told, is for the script: the companion ends when it does.
    proc start {} {
        variable program
        variable pipe
        variable version
        if {[auto_execok [lindex $program 0]] eq ""} {
            return -code error -errorcode {HOCKET NoProgram} "there is no program \"[lindex $program 0]\" on the PATH:\
                install hocket, or set ::hocket::program to where it is"
        }
        set deaf {trap "" HUP INT TERM; exec "$@"}
        set pipe [open [list | /bin/sh -c $deaf sh {*}$program tcl-companion 2>@stderr] r+]
        fconfigure $pipe -translation binary -buffering full -buffersize 65536
        if {[catch {lassign [receive] theirs} names]} {
            return -code error -errorcode {HOCKET CompanionLost} "hocket's companion did not start: [mourn]"
        }
        if {$theirs ne $version} {
            catch {close $pipe}
            return -code error -errorcode {HOCKET OtherVersion} \
                "$program is hocket $theirs, and this package is of $version"
        }
        return $names
    }

    proc exchange {args} {
        variable pipe
        variable lost
        if {$lost ne ""} {
            return $lost
        }
        set lengths {}
        set body ""
        foreach word $args {
            set bytes [encoding convertto utf-8 $word]
            lappend lengths [string length $bytes]
            append body $bytes
        }
        if {[catch {puts -nonewline $pipe $lengths\n$body; flush $pipe; receive} words]} {
            set lost [list error "hocket's companion has ended: [mourn]" HOCKET CompanionLost]
            return $lost
        }
        return $words
    }

    proc receive {} {
        variable pipe
        if {[gets $pipe lengths] < 0} {
            error "end of file"
        }
        set words {}
        foreach length $lengths {
            lappend words [encoding convertfrom utf-8 [read $pipe $length]]
        }
        return $words
    }

    # How it ended, in words.
    proc mourn {} {
        variable pipe
        fconfigure $pipe -blocking 1
        if {![catch {close $pipe} text options]} {
            return "exit code 0"
        }
        switch -- [lindex [dict get $options -errorcode] 0] {
            CHILDKILLED {return "killed by [lindex [dict get $options -errorcode] 2]"}
            CHILDSTATUS {return "exit code [lindex [dict get $options -errorcode] 2]"}
        }
        return $text
    }

    # The end of a script is a call of `exit`, too.
    proc farewell {command operation} {
        variable pipe
        variable lost
        if {$lost ne ""} {
            return
        }
        set status [expr {[llength $command] > 1 ? [lindex $command 1] : 0}]
        if {![string is integer -strict $status]} {
            return
        }
        set status [expr {int($status)}]
        set better [leave $status]
        set lost {error "the script is ending" HOCKET CompanionLost}
        catch {close $pipe}
        if {$better ne $status} {
            exit $better
        }
    }

    if {[catch {define [start]} problem options]} {
        catch {close $pipe}
        return -options $options $problem
    }
    trace add execution exit enter ::hocket::farewell
}

package provide hocket 0.1.0
