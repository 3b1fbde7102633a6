"""The eight collectives as torch.distributed has them: who has what before and after.

    python examples/lessons/with_torch/cheatsheet.py 4

Rank r holds the numbers 1, 2, 3, ... times 10^r: a digit tells which piece it is, its place whose. A dot is a place in
which there is nothing. Torch writes results into tensors that it is given, where hocket's own calls give back new
arrays: into a list of one tensor for each rank, or into one tensor that has room for all. What each call moves is what
it moves with NumPy: ../cheatsheet.py counts it.
"""

import torch
import torch.distributed as dist
from start import everyone, say, start

# Who gives what (the root everything, each rank its own piece, everyone everything), and the call in its forms. What
# is called: x, and y for what comes; their pieces in lists; this rank's own pieces of both. It is text, so that what is
# shown is what is called. A list that only the root has is None on the others.
CALLS = {
    "broadcast": ("root", "dist.broadcast(x, src=0)"),
    "scatter": ("root", "dist.scatter(own_y, at_root(pieces_x), src=0)"),
    "gather": ("own", "dist.gather(own_x, at_root(pieces_y), dst=0)"),
    "all_gather": ("own", "dist.all_gather(pieces_y, own_x)", "dist.all_gather_single(y, own_x)"),
    "reduce": ("all", "dist.reduce(x, dst=0)"),
    "all_reduce": ("all", "dist.all_reduce(x)"),
    "reduce_scatter": ("all", "dist.reduce_scatter(own_y, pieces_x)", "dist.reduce_scatter_single(own_y, x)"),
    "all_to_all": ("all", "dist.all_to_all(pieces_y, pieces_x)", "dist.all_to_all_single(y, x)"),
}
IN_PLACE = {"broadcast", "all_reduce", "reduce"}  # what comes replaces x


def at_root(pieces):
    return pieces if dist.get_rank() == 0 else None


def filled(gives):
    """x before the call."""
    rank, x = dist.get_rank(), torch.zeros(dist.get_world_size(), dtype=torch.int64)
    mine = slice(rank, rank + 1) if gives == "own" else slice(0, 0) if gives == "root" and rank else slice(None)
    x[mine] = (torch.arange(len(x))[mine] + 1) * 10**rank
    return x


def called(text, x):
    """What is there after the call."""
    rank, y = dist.get_rank(), torch.zeros_like(x)
    pieces_x, pieces_y = list(x.split(1)), list(y.split(1))  # views: who writes into a piece writes into y
    names = {"x": x, "pieces_x": pieces_x, "own_x": pieces_x[rank], "at_root": at_root}
    eval(text, {**names, "y": y, "pieces_y": pieces_y, "own_y": pieces_y[rank], "dist": dist})
    return y


def picture(name):
    gives, *forms = CALLS[name]
    say(f"\n{'   or   '.join(forms)}")
    results = []
    for text in forms:
        x = filled(gives)
        y = called(text, x)
        results.append(x if name in IN_PLACE else y)
    after = results[0]
    assert all(torch.equal(result, after) for result in results), "both forms do the same"
    if name == "reduce" and dist.get_rank() > 0:
        after.zero_()  # what is left in x off the root, torch does not promise
    size = dist.get_world_size()
    width = max(size * (size + 1), 8) + 2
    say(f"    {'before':{width}}after")
    for rank, row in enumerate(everyone(torch.stack([filled(gives), after]))):
        cells = ["".join(f"{value or '·':>{size}} " for value in part.tolist()) for part in row]
        say(f"r{rank}  " + "".join(f"{text:{width}}" for text in cells).rstrip())


ADVICE = """
barrier only waits. Pythonic things travel as bytes: dist.broadcast_object_list
and all_gather_object pickle them, so they are for those whom you trust.
With async_op=True a call gives back a Work; wait() before x or y are touched."""


def main():
    for name in CALLS:
        picture(name)
    dist.barrier()
    say(ADVICE)


if __name__ == "__main__":
    start(main)
