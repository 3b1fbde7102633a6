"""Where two ranks exchange parts and get the sums back: these can come home in the slots that the parts went out in.

    r0  ──c1──▶  r1      rank 1 folds its own c1 into the slot where it lies,
    r0  ◀──c1──  r1      and rank 0, whose slot it is, finds the sum there: the answer need not be sent.

Each line of the slot goes to the other core and back once, and is written by the core that has read it last, which is
what costs least. Derived from the shares of both ranks and never authored.
"""

from __future__ import annotations

from .program import LOCAL, NOTHING, Share, Span


def partner(share: Share) -> int:
    """The rank with which this one exchanges parts, if that is all its share does, else NOTHING.

    sends      a part, and in the next step what was folded of a part that came: the answer
    receives   that part, to be folded with one of this rank's own, and in the next step an answer
    """
    if len(share.sends) != 2 or len(share.receives) != 2:
        return NOTHING
    (part, answer), (fold, sums) = share.sends, share.receives
    own = [source.span for source in fold.sources if source.peer == LOCAL]
    peers = {*part.peers, *answer.peers, *(source.peer for source in fold.sources + sums.sources)} - {LOCAL}
    is_exchange = (
        (len(peers), len(own), len(fold.sources), len(sums.sources)) == (1, 1, 2, 1)
        and sums.sources[0].peer != LOCAL
        and part.step == fold.step == answer.step - 1 == sums.step - 1
        and part.after == NOTHING
        and (answer.after, answer.span) == (0, fold.span)
        and part.span[1:] == sums.span[1:]
        and not any(_share_chunks(sums.span, span) for span in (fold.span, *own))
    )
    return peers.pop() if is_exchange else NOTHING


def _share_chunks(one: Span, other: Span) -> bool:
    """Whether they may share memory, in whichever buffers they are."""
    return one.chunk < other.chunk + other.chunks and other.chunk < one.chunk + one.chunks


def join(share: Share, own: list[Share], others: list[Share]) -> None:
    """Mark in `share` what goes out, comes home and is an answer, where all of `own`, the shares that this rank may
    have, are one half of the exchange, and all of `others`, those that its partner may have, the other one: who lends
    must know that who folds expects it."""
    (part, answer), (fold, sums) = share.sends, share.receives
    if any(partner(mine) != partner(share) for mine in own):
        return
    for other in others:
        if partner(other) != share.rank:
            return
        marks = {source.mark for source in other.receives[0].sources if source.peer != LOCAL}
        if marks != {part.mark} or other.sends[1].mark != sums.sources[0].mark:
            return
    part.home = share.receives.index(sums)
    fold.answer = share.sends.index(answer)
