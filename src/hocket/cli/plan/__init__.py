"""Look at algorithms: what there is, what it costs, what is proved of it, and how it looks.

Each command takes the name of an algorithm, mine.py:ring for a function of yours, or plan.xml for a plan in a file.

    hocket plan list all_reduce -n 8

    hocket plan draw all_reduce ring,two_shot -n 8 --html ring.html

    hocket plan search all_reduce -t torus:2x3
"""

# Each a function of that name in the module of that name.
COMMANDS = ("list", "show", "check", "count", "draw", "search", "export", "import_")
