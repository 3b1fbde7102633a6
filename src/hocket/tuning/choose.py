"""Which algorithm and which sizes: pure functions of the call, the host and the profile, the same on every rank.

All reductions chosen here fold in the order of ranks, whatever the size of the message, so that the choice never shows
in the bits of a result. `order="any"` would allow others too, where they were faster; on one host none is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from .topology import KIB, Host, Topology, this_host

# Between two ranks one round carries no more than two would, and two overlap better from here on: measured as
# `hocket bench --hosts 2x1 -a one_shot,two_shot` does.
PAIR = 256 * KIB
# A scan in one round lets the last of n ranks fold n vectors, where in a chain all fold one: so many bytes, of all n,
# are worth the chain's rounds. Measured with 3 and 4 ranks on 2 cores, 256 KiB and 1 MiB, roughly.
SCAN = 1024 * KIB
# Between hosts sizes are counted in wires: what a link carries in the time of a round.
CHAIN = 1  # for each hop from host to host: measured likewise, with 2 ranks on each of 2 and of 3 hosts
# A broadcast or an all-gather from here on is worth another round, for half on the wire: measured with 2 ranks on each
# of 2 hosts, `broadcast all_gather -a direct,hierarchical`, at 1 and 16 wires.
LONG = 4
# Within a host none of this was timed, for want of one with several cache domains: an all-reduce goes by them where so
# many ranks are in each that in two rounds four times as much would move between domains (decision 27).
ENOUGH = 4
SURE = 1.3  # times as long: predictions err by about a third (docs/tune.md), so what is nearer than that is not known
MOST_BESIDE = 8  # ranks with a core each of one third-level cache: on AMD's Zen 3 to 5, which most was measured on
# Second-level caches of more than so much are those of Intel's servers with 2 MiB, as far as any was measured: slots
# that a rank has not written for long have left it there, and those of another core are fetched from far (decision 35).
LARGE = 1024 * KIB
FEW = 16  # ranks that can all look at one another for less than further rounds would cost


class Choice(NamedTuple):
    """An algorithm's name, and why it was taken."""

    algorithm: str
    reason: str


def choose(
    collective: str, nbytes: int, size: int, topology: Topology | None = None, *, one_pass: bool = False
) -> Choice:
    """The algorithm for a vector of `nbytes` over `size` ranks, which lie as `topology` tells (by default all here).
    `one_pass`: each element is to be folded at once, since every pass rounds it.

    Sizes decide, which were measured once and for all; on one host a group's profile (`hocket tune`) overrules them
    where it knows one of the `candidates` that is clearly faster. (A chain over hosts lives by steps that overlap,
    which the model of a profile has not; barriers are another loop of the engine's.)"""
    topology = topology or Topology.of([0] * size)
    ruled = _ruled(collective, nbytes, size, topology, one_pass=one_pass)
    if topology.profile is None or topology.hosts > 1 or collective == "barrier":
        return ruled
    from .predict import predict  # what simulates is imported where there is a profile

    names = candidates(collective, topology, one_pass=one_pass)
    times = {name: predict(collective, name, _about(nbytes), topology) for name in names}
    told = {name: seconds for name, seconds in times.items() if seconds is not None}
    if len(told) < max(2, len(names)) or ruled.algorithm not in told:
        return ruled
    best = min(told, key=told.__getitem__)
    if told[ruled.algorithm] <= SURE * told[best]:
        return ruled
    beside = f"{told[best] * 1e6:.1f} µs, and {told[ruled.algorithm] * 1e6:.1f} µs for {ruled.algorithm}"
    return Choice(best, f"by the profile of this machine: {beside}")


def candidates(collective: str, topology: Topology, *, one_pass: bool = False) -> tuple[str, ...]:
    """The algorithms that are chosen among. Those of a reduction all give the same bits: they fold from the first rank
    to the last, and with `one_pass` at once."""
    size = len(topology.places)
    is_shared = 1 < topology.hosts < size
    if collective == "barrier":
        return ("direct", "dissemination")
    if collective in ("broadcast", "all_gather"):
        return ("direct", "hierarchical") if is_shared else ("direct",)
    if collective in ("scan", "exscan"):
        return ("direct",) if one_pass or size <= 2 else ("direct", "chain")
    if collective != "all_reduce":
        return ("direct",)
    chained = is_shared and topology.is_in_blocks and not one_pass
    return ("one_shot", "two_shot", "hierarchical_chain") if chained else ("one_shot", "two_shot")


def _about(nbytes: int) -> int:
    """Rounded down to three binary digits, so that calls of many sizes ask for few predictions."""
    below = max(0, nbytes.bit_length() - 3)
    return nbytes >> below << below


def _ruled(collective: str, nbytes: int, size: int, topology: Topology, *, one_pass: bool) -> Choice:
    """What is chosen where nobody has measured this machine."""
    host = topology.host
    if collective == "barrier":
        if size <= FEW:
            return Choice("direct", f"few ranks: each sees all others arrive (up to {FEW})")
        return Choice("dissemination", "many ranks: rounds grow with the logarithm of their number")
    by_host = "the wire carries it for each host, not for each rank"
    is_shared = 1 < topology.hosts < size  # some ranks of several hosts share one
    if collective in ("broadcast", "all_gather") and is_shared and nbytes >= (limit := LONG * topology.wire):
        return Choice("hierarchical", f"long, over {topology.hosts} hosts: {by_host} (from {limit} bytes on)")
    if collective in ("scan", "exscan") and size > 2 and not one_pass:
        limit = SCAN // size
        if topology.hosts > 1 and topology.is_in_blocks:
            limit = min(limit, CHAIN * topology.wire * (topology.hosts - 1))
        if nbytes > limit:
            return Choice("chain", f"long: each rank folds only its own (from {limit + 1} bytes on)")
    if collective != "all_reduce":
        return Choice("direct", "what one rank stages, all that want it read; each part moves once")
    may_chain = topology.is_in_blocks and not one_pass
    if may_chain and is_shared and nbytes >= (limit := CHAIN * topology.wire * (topology.hosts - 1)):
        return Choice("hierarchical_chain", f"long, over {topology.hosts} hosts: {by_host} (from {limit} bytes on)")
    in_each = Counter(topology.parts).values()  # ranks
    is_divided = topology.hosts == 1 < len(in_each) and min(in_each) >= ENOUGH
    if may_chain and is_divided and nbytes >= (limit := CHAIN * topology.wire * (len(in_each) - 1)):
        why = "between them it moves once for each, not for each rank"
        return Choice("hierarchical_chain", f"long, over {len(in_each)} cache domains: {why} (from {limit} bytes on)")
    if topology.hosts > 1:
        more = topology.crossing * (size - 2)  # times nbytes / size goes over the busiest link than in two rounds
        limit = size * topology.wire // more if more else PAIR
        why = "small: one round over the wire instead of two"
    elif size <= 2:
        limit = (4 if host.l2 > LARGE else 2) * KIB
        why = "two ranks: one round, and each reads little more of the other than in two"
    elif size > host.cores:
        limit = 24 * KIB
        why = "small: one round instead of two, in each of which ranks change places on their cores"
    else:
        limit = 4 * KIB
        why = "small: one round instead of two"
    if nbytes <= limit:
        return Choice("one_shot", f"{why} (up to {limit} bytes)")
    return Choice("two_shot", f"large: each rank reduces its own part only (from {limit + 1} bytes on)")


def segment_bytes(
    size: int,
    host: Host | None = None,
    breadth: int = 1,
    *,
    exchange: bool = False,
    rooted: int = 0,
    copied: bool = False,
    lent: bool = False,
) -> int:
    """Bytes of one message of a long vector in a group of `size`, where a rank sends up to `breadth` messages in one
    step.

    Small enough that what is in flight stays in the second-level cache, and that a whole step fits into half of the
    slots, so that no rank waits in a circle for others to read; large enough that ranks seldom wait, or, where they
    share a core, change places.

    In a single round of ranks with a core each, two things differ. In an `exchange` all write and then all read: there
    is nothing to wait for in the middle. And where a vector of so many bytes is `rooted`, in that one rank alone folds
    what others give, or gets a part from each, or gives one, who reads has some while another one writes the next. So
    it is where the whole is `copied` from a root, on processors with a large second-level cache. There two ranks have
    short messages for what is short, and else such as are worth reading several pages at once (decision 36).

    Slots that two ranks may have `lent` come home, and are lent again. On processors with a large second-level cache
    their messages are so short that half of the slots will do: more of the cache is for vectors then (decision 26).
    """
    host = host or this_host()
    slots, large = slots_bytes(size, host), host.l2 > LARGE
    fitting, cache = slots // (2 * breadth), host.l2 or slots
    usual = max(16 * KIB, min(256 * KIB, cache // 8, slots // 8))
    if lent and large and size == 2:
        usual = min(usual, slots // 16)
    elif exchange:
        usual = max(usual, min(256 * KIB, cache // (4 * breadth)))
    elif rooted and large and size == 2:
        if (rooted if copied else rooted // size) < 256 * KIB:
            usual = min(usual, 16 * KIB)
    elif rooted and (large or not copied):
        usual = min(usual, max((16 if large else 32) * KIB, rooted // 8))
    return max(64, min(fitting, usual) // 64 * 64)


def writers(topology: Topology, rank: int, receivers: Iterable[int]) -> int:
    """How many ranks fill the third-level cache of `rank` by what they receive at the same time: the `receivers` in its
    domain, or on its host, and at least itself.

    No more than `MOST_BESIDE`: ranks that are bound to no cores may be anywhere on their host, and not all beside it.
    """
    caches = topology.domains or topology.places
    beside = sum(caches[other] == caches[rank] for other in receivers)
    return max(1, min(MOST_BESIDE, beside))


def slots_bytes(size: int, host: Host | None = None) -> int:
    """Bytes of the ring that each rank of a group of `size` stages its messages in: as much as its second-level cache
    has, within reason; of a `LARGE` one a half, or, where few ranks send one another few and long messages, a quarter.
    """
    host = host or this_host()
    if host.l2 == 0:
        return 2048 * KIB
    part = 1 if host.l2 <= LARGE else 4 if size <= 4 else 2
    return max(512 * KIB, min(1024 * KIB, host.l2 // part))
