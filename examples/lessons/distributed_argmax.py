"""The largest of all ranks' values, and where it lies: a maximum alone does not say.

    hocket run -n 4 examples/lessons/distributed_argmax.py

Two all-reduces: the first finds the value; in the second, the ranks that have it say where, the others say "nowhere", a
number above all places, and the smallest wins. So of equal values the first one counts, as in np.argmax. MPI has
MAXLOC for it, one operator on pairs: custom_op.py makes one.
"""

import numpy as np
from by_hand import everyone, say

import hocket

EACH = 5  # values on each rank


def main(group):
    values = ((np.arange(EACH) + EACH * group.rank) * 7 + 6) % 8  # over four ranks, two have the largest
    for rank, row in enumerate(everyone(group, values)):
        say(group, f"before  r{rank}  {row}")

    largest = group.all_reduce(np.array(values.max()), op="max")
    nowhere = EACH * group.size
    place = EACH * group.rank + values.argmax() if values.max() == largest else nowhere
    first = group.all_reduce(np.array(place), op="min")

    rank, index = divmod(int(first), EACH)
    say(group, f"after   the largest is {largest}, on r{rank} at {index}: at {first} of all {nowhere}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
