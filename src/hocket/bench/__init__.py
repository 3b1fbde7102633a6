"""`hocket bench`: how long hocket's calls take, and those of the libraries beside it, measured alike.

`sweep` says what is measured and measures it, in rounds that take turns between the libraries; `session` keeps one
library's processes; `peers` is what runs in them; `figures` has sizes, units and bandwidths; `show` and `plot` print.
"""
