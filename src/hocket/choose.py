"""Which algorithm `algorithm=None` means."""

from __future__ import annotations

# Up to this many bytes, one round in which everyone sends everything beats two rounds that send less.
ONE_SHOT = 4096


def choose(collective: str, nbytes: int, size: int, order: str = "same") -> str:
    """The name of the algorithm for a vector of `nbytes` over `size` ranks of one host.

    All reductions chosen here fold in rank order whatever the size of the message, so that the choice never shows in
    the bits of the result. `order="any"` would allow others too, where they were faster; on one host none is.
    """
    if collective == "all_reduce":
        return "one_shot" if nbytes <= ONE_SHOT or size == 1 else "two_shot"
    return "dissemination" if collective == "barrier" else "direct"
