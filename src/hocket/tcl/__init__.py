"""Tcl's way to hocket: the commands `torch::distributed_all_reduce` and its family, for scripts in Tcl.

```
hocket tclsh script.tcl                 tclsh script.tcl: package require hocket
│ interpreter.py: tkinter's Tcl         │ package/hocket.tcl: a pipe, lengths and words
│                                       ▼
│                                     companion.py: a Python process beside the script's
└──────────────┬────────────────────────┘
               ▼  words: name, arguments ──▶ outcome, text, error code
          script.py      one script's side of hocket: which command, what became of it, how it ends
          commands.py    words bound to the parameters of a command: positions, options, defaults
          distributed.py tensors.py    the commands, each a Python function: its signature is all that is said of it
          handles.py     tensor1, request1, group1, and what they stand for
          values.py      what a word means, and how a tensor is written
```

Tensors are NumPy arrays, which stay in Python: a script has handles. In both ways `package/commands.tcl` makes the
commands and turns an outcome into a Tcl result or a Tcl error.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "package"  # of Tcl's
