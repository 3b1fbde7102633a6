package ifneeded hocket 0.1.0 [list source [file join $dir hocket.tcl]]
# For scripts that ask for the extension whose commands these are. Where it is installed, its version is a later one.
package ifneeded torch 0.0 {package require hocket; package provide torch 0.0}
