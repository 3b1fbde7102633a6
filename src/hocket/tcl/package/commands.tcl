# What `hocket tclsh` and the package for any tclsh have in common: Tcl commands out of words that go to Python, and out
# of what comes back: an outcome, a text, and for an error the words of its error code. How they go, `exchange` knows.

namespace eval ::hocket {
    # Make the commands torch::NAME. Another package's are not overwritten: its tensors are not known here.
    proc define {names} {
        foreach name $names {
            if {[namespace which ::torch::$name] ne ""} {
                return -code error -errorcode {HOCKET NameTaken} \
                    "torch::$name is there already, of another package, whose tensors hocket does not know"
            }
        }
        namespace eval ::torch {}
        foreach name $names {
            interp alias {} ::torch::$name {} ::hocket::call $name
        }
    }

    proc call {args} {
        set code [lassign [exchange {*}$args] outcome text]
        switch -- $outcome {
            ok {return $text}
            print {puts $text}
            default {return -code error -errorcode $code $text}
        }
        return
    }

    # Before the script ends, however it does: leave the groups. The status to end with is another one where the error
    # is a consequence of what befell another rank, which `hocket run` wants to know.
    proc leave {status} {
        set error ""
        set code ""
        if {$status != 0 && [info exists ::errorInfo] && [info exists ::errorCode]} {
            set error [lindex [split $::errorInfo \n] 0]
            set code [lindex $::errorCode 0]
        }
        lassign [exchange leave $status $error $code] outcome better
        return [expr {$outcome eq "ok" ? $better : $status}]
    }
}
