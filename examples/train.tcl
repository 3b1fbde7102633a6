# Train a small model on as many ranks as there are: each computes the gradients of its part of the data, and
# distributed_all_reduce makes of them the mean over all ranks, so that all take the same step.
#
#     tclsh examples/train.tcl                                    # one process
#     hocket run -n 4 tclsh examples/train.tcl                    # four, in any tclsh
#     hocket run -n 4 hocket tclsh examples/train.tcl             # four, each in one Python process
#
# The model is y = a x + b. It is to find a = 3 and b = -1 in 64 points on that line, of which each rank has its share.

lappend auto_path [exec hocket tcl-path]
package require hocket

set rank [torch::get_rank]
set size [torch::get_world_size]
set steps 200
set rate 0.3

# This rank's points: every size-th, beginning with its own number.
set xs {}
set ys {}
for {set i $rank} {$i < 64} {incr i $size} {
    set x [expr {$i / 32.0 - 1}]
    lappend xs $x
    lappend ys [expr {3 * $x - 1}]
}

# The gradient of the mean squared error over these points, by a and by b.
proc gradient {a b} {
    global xs ys
    set by_a 0.0
    set by_b 0.0
    foreach x $xs y $ys {
        set error [expr {$a * $x + $b - $y}]
        set by_a [expr {$by_a + 2 * $error * $x / [llength $xs]}]
        set by_b [expr {$by_b + 2 * $error / [llength $xs]}]
    }
    list $by_a $by_b
}

set weights [torch::zeros 2 float64]
for {set step 0} {$step < $steps} {incr step} {
    set mine [torch::tensor_create -data [gradient {*}[torch::tensor_data $weights]] -dtype float64]
    set mean [torch::distributed_all_reduce $mine mean]
    set change [torch::mul $mean $rate]
    set better [torch::sub $weights $change]
    torch::tensor_free $weights $mine $mean $change
    set weights $better
}

# Gathered by all, to see that they agree.
set all [torch::tensor_data [torch::distributed_all_gather $weights]]
lassign $all a b
set same [expr {$all eq [join [lrepeat $size [list $a $b]]] ? "the same" : "DIFFERENT"}]
if {$rank == 0} {
    puts [format "%d ranks, %d steps: y = %.6f x + %.6f, on all ranks %s" $size $steps $a $b $same]
}
