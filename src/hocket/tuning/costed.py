"""What the messages of one step cost, whenever they are sent: the half of the model (`simulate.py`) without clocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..plans.plan import REDUCE, Front
from .links import Column, Links, Times

TICKS = 2.0**42  # in a second


def whole(seconds: Times) -> Times:
    """Rounded to ticks, halves to even ones."""
    return np.asarray(np.rint(seconds * TICKS) / TICKS)


@dataclass(frozen=True)
class Tariff:
    """What a cluster charges: `chunk` bytes for each chunk; seconds of each rank for a message that it sends or gets,
    and per byte that it folds."""

    links: Links
    chunk: float
    send: Times
    receive: Times
    fold: Times

    @staticmethod
    def of(links: Links, chunk: float) -> Tariff:
        """That of these links."""
        costs, effort = links.cluster.costs, links.cluster.effort
        return Tariff(links, chunk, whole(costs.send * effort), whole(costs.receive * effort), costs.reduce * effort)

    def folds(self, rank: Column, chunks: Times) -> Times:
        """Seconds of ranks for folding so many chunks."""
        return whole(self.fold[rank] * (chunks * self.chunk))

    def transfers(self, src: Column, dst: Column, chunks: Times) -> tuple[Times, Times, Column]:
        """Of messages that are sent in one step: latency, transfer, and the link that is why it takes so long."""
        latency, message, link = self.links.paths(src, dst)
        count = np.bincount(link, minlength=len(self.links.rate))
        carried = np.bincount(link, chunks[message], minlength=len(self.links.rate))
        mine = chunks[message]
        share = np.minimum(count[link], carried[link] / mine)
        took = whole(self.alone(link, mine * self.chunk) * share)
        longest = np.zeros(len(src))
        np.maximum.at(longest, message, took)
        slowest = np.zeros(len(src), np.int64)
        (rows,) = np.nonzero(took[::-1] == longest[message[::-1]])
        slowest[message[::-1][rows]] = link[::-1][rows]  # of several, the first that is named
        return whole(latency), longest, slowest

    def alone(self, link: Column, nbytes: Times) -> Times:
        """Seconds that links take for a message of so many bytes, when they carry nothing else."""
        cluster = self.links.cluster
        near, seconds, below = link < cluster.ranks, np.zeros(len(link)), 0.0
        seconds[~near] = nbytes[~near] * self.links.rate[link[~near]]
        for limit, rate in cluster.costs.shm:
            seconds[near] += np.clip(nbytes[near] - below, 0, limit - below) * rate
            below = limit
        seconds[near] *= cluster.effort[link[near]]
        return seconds


@dataclass(frozen=True)
class Costed:
    """The messages of a step in the order in which ranks post them: who, to whom, and chunks; and seconds, each a whole
    number of ticks. `own` is what each rank folds of its own. All arrays have one entry per message or, where said,
    per rank."""

    src: Column
    dst: Column
    chunks: Times
    posting: Times  # until it leaves, from when its sender is ready
    latency: Times
    transfer: Times
    slowest: Column  # link
    receive: Times
    fold: Times
    posts: Times  # per rank: until it has posted all
    own: Times  # per rank
    is_round: bool  # it is the same seen from every rank

    @staticmethod
    def of(fronts: tuple[Front, ...], size: int, tariff: Tariff) -> Costed:
        """What happens in these fronts, all in one step, of `size` ranks."""
        key, chunks, folded, own = _messages(fronts, size)
        sender, apart = np.divmod(key, size)
        src = sender // len(fronts)
        dst = (src + apart) % size
        sent = np.bincount(src, minlength=size)
        turn = np.arange(1, len(src) + 1) - (np.cumsum(sent) - sent)[src]
        latency, transfer, slowest = tariff.transfers(src, dst, chunks)
        seen = np.stack((sender % len(fronts), apart, chunks, folded))
        is_round = _is_round(sent, seen, own) and all(getattr(front, "size", size) == size for front in fronts)
        fold, posts = tariff.folds(dst, folded), sent * tariff.send
        own = tariff.folds(np.arange(size), own)
        posting = turn * tariff.send[src]
        receive = tariff.receive[dst]
        return Costed(src, dst, chunks, posting, latency, transfer, slowest, receive, fold, posts, own, is_round)

    @cached_property
    def taking(self) -> Times:
        """Seconds of a receiver for each message."""
        return self.receive + self.fold

    @cached_property
    def sending(self) -> Times:
        """Seconds from when the sender is ready until a message is out."""
        return self.posting + self.transfer

    @cached_property
    def flight(self) -> Times:
        """Seconds from when the sender is ready until a message has arrived."""
        return self.posting + self.latency + self.transfer

    @cached_property
    def groups(self) -> tuple[Column, Column]:
        """Who gets messages, and where theirs begin when they are sorted by receiver."""
        to, first = np.unique(np.sort(self.dst), return_index=True)
        return to, first

    @property
    def is_single(self) -> bool:
        """Whether no rank gets more than one message."""
        return len(self.groups[0]) == len(self.dst)

    def order(self, arrives: Times) -> tuple[Column, Times, Times]:
        """The messages in the order in which they are taken, receiver by receiver; and what that receiver takes from
        each on until all are taken, in all and for receiving alone."""
        if self.is_single:
            return self._single
        order = np.lexsort((self.src, arrives, self.dst))
        return order, self._from_here_on(self.taking[order]), self._from_here_on(self.receive[order])

    @cached_property
    def _single(self) -> tuple[Column, Times, Times]:
        order = np.argsort(self.dst)
        return order, self.taking[order], self.receive[order]

    def _from_here_on(self, x: Times) -> Times:
        """The sum of each receiver's entries from each on."""
        _, first = self.groups
        sums = np.cumsum(x)
        ends = np.append(first[1:], len(x)) - 1
        return np.asarray(np.repeat(sums[ends], np.diff(first, append=len(x))) - sums + x)

    @cached_property
    def alone(self) -> npt.NDArray[np.float64]:
        """What comes to a rank that waits for nobody, [what, rank], as the simulator keeps it: seconds in all, their
        parts, and no messages. It takes what it gets, or sends, whichever is longer."""
        n = len(self.posts)
        receive, fold = np.bincount(self.dst, self.receive, n), np.bincount(self.dst, self.fold, n)
        sends, longest = np.zeros(n), np.zeros(n, np.int64)
        np.maximum.at(sends, self.src, self.sending)
        (last,) = np.nonzero(self.sending[::-1] == sends[self.src[::-1]])
        longest[self.src[::-1][last]] = len(self.src) - 1 - last  # of several, the first
        takes = self.posts + receive + fold
        (rank,) = np.nonzero(sends > takes)
        parts = np.stack((takes, *np.zeros((2, n)), self.posts + receive, fold, np.zeros(n)))
        message = longest[rank]
        nothing = np.zeros(len(rank))
        parts[:, rank] = sends[rank], nothing, self.transfer[message], self.posting[message], nothing, nothing
        parts[[0, 4]] += self.own
        return parts


def _messages(fronts: tuple[Front, ...], size: int) -> tuple[Column, Times, Times, Times]:
    """The messages as (sender, front, how far round the circle), sorted; the chunks of each, and those of them that are
    folded; and the chunks that each rank folds of its own."""
    keys, counts, folds, own = list[Column](), list[Column](), list[Column](), np.zeros(size)
    for number, front in enumerate(fronts):
        here, there, folded = front.src_rank, front.dst_rank, front.count * (front.verb == REDUCE)
        stays = here == there
        if stays.any():
            own += np.bincount(there[stays], folded[stays], size)
            here, there, folded, count = (x[~stays] for x in (here, there, folded, front.count))
        else:
            count = front.count
        keys.append((here * len(fronts) + number) * size + (there - here) % size)
        counts.append(count)
        folds.append(folded)
    key = np.concatenate(keys)
    key, which = np.unique(key, return_inverse=True)
    chunks, folded = (np.asarray(np.bincount(which, np.concatenate(x), len(key)), np.float64) for x in (counts, folds))
    return key, chunks, folded, own


def _is_round(sent: Column, seen: Times, own: Times) -> bool:
    """Whether every rank sends the same as the first, to those as far round the circle, and folds the same."""
    if (sent != sent[0]).any() or (own != own[0]).any():
        return False
    rows = seen.reshape(len(seen), len(sent), -1)
    return bool((rows == rows[:, :1]).all())
