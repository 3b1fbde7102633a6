# All suites, in one process of each rank: every *.test of this folder. What they expect they compute in Tcl.

package require tcltest
namespace import ::tcltest::*
package require hocket

set rank [torch::get_rank]
set size [torch::get_world_size]

testConstraint several [expr {$size > 1}]

# Element i of rank r: it varies by both, and sums over four ranks fit into every dtype.
proc element {r i} {
    expr {($r + 1) * ($i + 3) - $r * $r}
}

# Elements of a rank, as words of that dtype: floating-point numbers have a point.
proc elements {r count {dtype int64} {factor 1}} {
    set words {}
    for {set i 0} {$i < $count} {incr i} {
        lappend words [as $dtype [expr {$factor * [element $r $i]}]]
    }
    return $words
}

proc as {dtype number} {
    expr {[string match *float* $dtype] ? double($number) : $number}
}

proc mine {count {dtype int64} {shape ""} {factor 1}} {
    if {$shape eq ""} {
        set shape $count
    }
    torch::tensor_create -data [elements $::rank $count $dtype $factor] -shape $shape -dtype $dtype
}

# The reduction of all ranks' elements.
proc folded {operation count {dtype int64} {factor 1}} {
    set words {}
    for {set i 0} {$i < $count} {incr i} {
        set column {}
        for {set r 0} {$r < $::size} {incr r} {
            lappend column [expr {$factor * [element $r $i]}]
        }
        lappend words [as $dtype [fold $operation $column]]
    }
    return $words
}

proc fold {operation column} {
    switch $operation {
        sum {return [expr [join $column +]]}
        product {return [expr [join $column *]]}
        mean {return [expr ([join $column +]) / $::size]}
        max - min {return [tcl::mathfunc::$operation {*}$column]}
        band {return [expr [join $column &]]}
        bor {return [expr [join $column |]]}
        bxor {return [expr [join $column ^]]}
    }
}

proc ranks {} {
    lrange {0 1 2 3} 0 [expr {$::size - 1}]
}

# All ranks' elements, one after the other.
proc joined {count {dtype int64}} {
    concat {*}[lmap r [ranks] {elements $r $count $dtype}]
}

# This rank's part of a list that has so many words for each.
proc part {words each} {
    lrange $words [expr {$::rank * $each}] [expr {($::rank + 1) * $each - 1}]
}

# What a tensor is: everything that can be seen of it. It is freed.
proc seen {tensor} {
    if {$tensor eq ""} {
        return nothing
    }
    set what [list [torch::tensor_dtype $tensor] [torch::tensor_shape $tensor] [torch::tensor_data $tensor]]
    torch::tensor_free $tensor
    return $what
}

# All tensors that there are, with all they hold.
proc everything {} {
    set all {}
    foreach tensor [torch::tensor_list] {
        lappend all $tensor [torch::tensor_dtype $tensor] [torch::tensor_shape $tensor] [torch::tensor_data $tensor]
    }
    return $all
}

# The text and the code of the error that a bad call is; nothing else may have become of it.
proc refused {command} {
    set before [everything]
    if {![catch {uplevel #0 $command} text options]} {
        return "it went well: $text"
    }
    if {[everything] ne $before} {
        return "tensors changed: $before, and then [everything]"
    }
    list $text [dict get $options -errorcode]
}

foreach file [lsort [glob -directory [file dirname [info script]] *.test]] {
    source $file
}
set failed $::tcltest::numTests(Failed)
puts "rank $rank of $size: $::tcltest::numTests(Passed) passed, $failed failed"
exit [expr {$failed > 0}]
