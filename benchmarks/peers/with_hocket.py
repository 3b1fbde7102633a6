"""hocket's all-reduce. See measure.py."""

from measure import run

import hocket

with hocket.init() as group:
    run(
        f"hocket {hocket.__version__}",
        group.rank,
        group.size,
        lambda x, y: group.all_reduce(x, out=y),
        group.barrier,
    )
