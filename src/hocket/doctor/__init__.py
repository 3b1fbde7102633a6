"""What on a machine will make hocket slow, or fail: `hocket doctor`.

A check is two functions (`findings.Check`): one reads facts from /proc, /sys, the kernel and the variables, the other
is pure and judges them. They lie in a module for each subject; `report` puts together what they find, `hosts` asks
other hosts, and `door` tries the ways between these.
"""
