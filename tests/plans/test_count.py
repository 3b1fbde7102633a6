"""What plans cost, against the formulas of the literature."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import pytest
from oracle import NAMES

from hocket.plans.algorithms import plan
from hocket.plans.count import Counts, count
from hocket.plans.plan import Plan, copy, inp, out, tmp

Row = tuple[int, int, Fraction | int]  # rounds, messages in total, bytes sent by the busiest rank


def log(n: int) -> int:
    """⌈log2 n⌉."""
    return (n - 1).bit_length()


def share(n: int) -> Fraction:
    return Fraction(n - 1, n)


def doubling(n: int) -> tuple[int, int]:
    """Rounds and messages of recursive doubling: two rounds more, and two messages per rank beyond a power of two."""
    two = 1 << (n.bit_length() - 1)
    extra = n - two
    return log(two) + 2 * (extra > 0), two * log(two) + 2 * extra


def sides(n: int) -> int:
    """The hops along both sides of a torus: of all that have n ranks, the one with the fewest."""
    return min(a + n // a - 2 for a in range(1, n + 1) if n % a == 0)


def players(n: int) -> list[int]:
    """Who plays each player of recursive halving: the last ranks play two."""
    alone = 2 * n - (1 << log(n))
    return [*range(alone), *(rank for rank in range(alone, n) for _ in range(2))]


def halving(n: int, to_root: bool = False) -> int:
    """Messages of recursive halving one way: one for each two ranks that have players who differ in one bit.

    `to_root`: only those that the players send who are not on the root's side of that bit, and are in all higher ones.
    """
    who = players(n)
    sent = {
        (bit, who[q], who[q ^ bit])
        for bit in (1 << k for k in range(log(n)))
        for q in (range(bit, 2 * bit) if to_root else range(len(who)))
    }
    return sum(here != there for _, here, there in sent)


class Halves(NamedTuple):
    """What hierarchical algorithms count over two hosts, the larger half on the first."""

    sizes: tuple[int, int]
    cut: int  # chunks
    inside: int  # messages, when each rank of each host speaks to each other one of its own
    lanes: int  # messages from one host to the other, when each rank speaks to those with a part of its own
    share: Fraction  # of the vector, that the rank with the most carries on the first host

    @staticmethod
    def of(n: int) -> Halves:
        sizes = n - n // 2, n // 2
        cut = min(math.lcm(*sizes), 4 * sizes[0])
        lanes = len({tuple(chunk * size // cut for size in sizes) for chunk in range(cut)})
        return Halves(sizes, cut, sum(k * (k - 1) for k in sizes), lanes, Fraction(-(-cut // sizes[0]), cut))

    def all_reduce(self, each_way: int) -> Row:
        """`each_way` of the two messages of a lane are sent both ways, the others one way."""
        most = max(1 + Fraction(-(-self.cut // k) * (k - 1), self.cut) for k in self.sizes)
        return 4 if self.inside else 2, 2 * (self.inside + each_way * self.lanes), most

    def reduce(self) -> Row:
        return 3 if self.inside else 2, self.inside + self.lanes + self.sizes[1], 1

    def broadcast(self) -> Row:
        near, far = self.sizes
        rounds = 1 + (near > 1) + (far > 1)
        return rounds, near - 1 + self.lanes + far * (far - 1), near - 1 + self.share

    def all_gather(self) -> Row:
        near, far = self.sizes
        most = max(1 + (near - 1) * 2, 1 + (far - 1) * (1 + -(-near // far)))
        return 2 if self.inside else 1, sum(self.sizes) + self.inside, Fraction(most, sum(self.sizes))

    def reduce_scatter(self) -> Row:
        rounds, messages, _ = self.all_gather()
        return rounds, messages, share(sum(self.sizes))

    def barrier(self) -> Row:
        n, most = sum(self.sizes), self.sizes[0]
        return 3 if self.inside else 1, 2 * (n - 2) + 2, Fraction(most, n) + most - 1


FORMULAS: dict[tuple[str, str], Callable[[int], Row]] = {
    ("all_reduce", "naive"): lambda n: (2, 2 * (n - 1), n - 1),
    ("all_reduce", "ring"): lambda n: (2 * (n - 1), 2 * n * (n - 1), 2 * share(n)),
    ("all_reduce", "one_shot"): lambda n: (1, n * (n - 1), n - 1),
    ("all_reduce", "two_shot"): lambda n: (2, 2 * n * (n - 1), 2 * share(n)),
    ("all_reduce", "binomial_tree"): lambda n: (2 * log(n), 2 * (n - 1), max(1, log(n))),
    ("all_reduce", "recursive_doubling"): lambda n: (*doubling(n), log(1 << (n.bit_length() - 1)) + (n & (n - 1) > 0)),
    ("all_reduce", "recursive_halving"): lambda n: (2 * log(n), 2 * halving(n), 2 * share(1 << log(n))),
    ("all_reduce", "circulant"): lambda n: (2 * log(n), 2 * n * log(n), 2 * share(n)),
    ("all_reduce", "double_binary_tree"): lambda n: (2 * log(n), 4 * (n - 1), {2: 1, 3: Fraction(3, 2)}.get(n, 2)),
    ("all_reduce", "torus"): lambda n: (2 * sides(n), 2 * n * sides(n), 2 * share(n)),
    ("all_reduce", "hierarchical"): lambda n: Halves.of(n).all_reduce(2),
    ("all_reduce", "hierarchical_chain"): lambda n: Halves.of(n).all_reduce(1),
    ("reduce", "direct"): lambda n: (1, n - 1, 1),
    ("reduce", "binomial_tree"): lambda n: (log(n), n - 1, 1),
    ("reduce", "recursive_halving"): lambda n: (
        2 * log(n),
        halving(n) + halving(n, to_root=True),
        share(1 << log(n)) + Fraction(1, 2),
    ),
    ("reduce", "double_binary_tree"): lambda n: (n.bit_length(), 2 * n - 1, 1),
    ("reduce", "hierarchical_chain"): lambda n: Halves.of(n).reduce(),
    ("broadcast", "direct"): lambda n: (1, n - 1, n - 1),
    ("broadcast", "binomial_tree"): lambda n: (log(n), n - 1, log(n)),
    ("broadcast", "double_binary_tree"): lambda n: (n.bit_length(), 2 * (n - 1), 1) if n > 2 else (1, 1, 1),
    ("broadcast", "scatter_all_gather"): lambda n: (log(n) + n - 1, n * (n - 1), 2 * share(n)),
    ("broadcast", "hierarchical"): lambda n: Halves.of(n).broadcast(),
    ("scatter", "direct"): lambda n: (1, n - 1, share(n)),
    ("scatter", "binomial_tree"): lambda n: (log(n), n - 1, share(n)),
    ("gather", "direct"): lambda n: (1, n - 1, Fraction(1, n)),
    ("gather", "binomial_tree"): lambda n: (log(n), n - 1, Fraction(largest(n), n)),
    ("all_gather", "direct"): lambda n: (1, n * (n - 1), share(n)),
    ("all_gather", "ring"): lambda n: (n - 1, n * (n - 1), share(n)),
    ("all_gather", "circulant"): lambda n: (log(n), n * log(n), share(n)),
    ("all_gather", "bruck"): lambda n: (log(n), n * log(n), share(n)),
    ("all_gather", "torus"): lambda n: (sides(n), n * sides(n), share(n)),
    ("all_gather", "hierarchical"): lambda n: Halves.of(n).all_gather(),
    ("reduce_scatter", "direct"): lambda n: (1, n * (n - 1), share(n)),
    ("reduce_scatter", "ring"): lambda n: (n - 1, n * (n - 1), share(n)),
    ("reduce_scatter", "recursive_halving"): lambda n: (log(n), halving(n), share(n)),
    ("reduce_scatter", "circulant"): lambda n: (log(n), n * log(n), share(n)),
    ("reduce_scatter", "torus"): lambda n: (sides(n), n * sides(n), share(n)),
    ("reduce_scatter", "hierarchical"): lambda n: Halves.of(n).reduce_scatter(),
    ("scan", "direct"): lambda n: (1, n * (n - 1) // 2, n - 1),
    ("scan", "chain"): lambda n: (n - 1, n - 1, 1),
    ("scan", "hillis_steele"): lambda n: (log(n), sum(n - (1 << k) for k in range(log(n))), log(n)),
    ("scan", "brent_kung"): lambda n: brent_kung(n),
    ("exscan", "direct"): lambda n: (1, n * (n - 1) // 2, n - 1),
    ("exscan", "chain"): lambda n: (n - 1, n - 1, 1),
    ("exscan", "hillis_steele"): lambda n: (
        1 + log(n - 1),
        n - 1 + sum(n - 1 - (1 << k) for k in range(log(n - 1))),
        1 + log(n - 1),
    ),
    ("exscan", "brent_kung"): lambda n: one_on(brent_kung(n - 1), n),
    ("all_to_all", "direct"): lambda n: (1, n * (n - 1), share(n)),
    ("all_to_all", "pairwise"): lambda n: (n - 1 + n % 2, n * (n - 1), share(n)),
    ("all_to_all", "bruck"): lambda n: (log(n), n * log(n), Fraction(sum(map(int.bit_count, range(n))), n)),
    ("barrier", "direct"): lambda n: (1, n * (n - 1), share(n)),
    ("barrier", "dissemination"): lambda n: (log(n), n * log(n), share(n)),
    ("barrier", "hierarchical"): lambda n: Halves.of(n).barrier(),
}


def brent_kung(n: int) -> Row:
    """Up, all but the ones of n; down, all that are not whole by then: all but powers of two."""
    return n.bit_length() - 1 + (n // 3).bit_length(), 2 * n - n.bit_count() - n.bit_length(), n.bit_length() - 1


def one_on(scan: Row, n: int) -> Row:
    """An exclusive scan: what is scanned has gone one rank on."""
    rounds, messages, most = scan
    return 1 + rounds, n - 1 + messages, 1 + most


def largest(n: int) -> int:
    """The ranks in the largest subtree below the root of a binomial tree."""
    return max(min(1 << k, n - (1 << k)) for k in range(log(n)))


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_the_literature_agrees(name: tuple[str, str]) -> None:
    for n in range(2, 34):
        got = count(plan(*name, n))
        assert (got.rounds, got.messages, got.bytes_per_rank) == FORMULAS[name](n), n


def test_alone_nothing_is_sent() -> None:
    for name in NAMES:
        got = count(plan(*name, 1))
        assert (got.rounds, got.messages, got.bytes_per_rank, got.reduced_per_rank) == (0, 0, 0, 0), name


def test_the_well_known_confusion() -> None:
    """2(n-1) messages: those of the naive algorithm in total, and those of a ring per rank."""
    for n in (2, 3, 8, 100):
        naive, ring, one_shot = (count(plan("all_reduce", name, n)) for name in ("naive", "ring", "one_shot"))
        assert naive.messages == 2 * (n - 1)
        assert one_shot.messages == n * (n - 1)
        assert ring.messages_sent == (2 * (n - 1),) * n
        assert ring.messages == 2 * n * (n - 1)


def test_nobody_hands_on_in_both_trees() -> None:
    """With one chunk of two for each tree: who sends it to somebody below is a leaf in the other."""
    for n in (2, 5, 8, 13, 64):
        *fronts, last = plan("broadcast", "double_binary_tree", n).fronts()
        below = [set(f.src_rank[f.dst_chunk == half].tolist()) for f in (*fronts, last) for half in (0, 1)]
        first, second = (set().union(*below[half::2]) - {0} for half in (0, 1))
        assert not first & second
        assert len(first | second) >= n - 3


def test_sums_are_shared_or_not() -> None:
    """The gamma count: who folds how much."""
    for n in (2, 5, 8):
        sums = {
            name: count(plan("all_reduce", name, n)).reduced_per_rank
            for name in ("naive", "one_shot", "two_shot", "ring")
        }
        assert sums == {"naive": n - 1, "one_shot": n - 1, "two_shot": share(n), "ring": share(n)}


def test_a_message_is_all_that_goes_from_one_to_one_in_a_step() -> None:
    two_moves = (copy(out(1, 0), inp(0, 0)), copy(out(1, 1, 2), inp(0, 1, 2)))
    got = count(Plan("broadcast", "x", 3, 0, 3, lambda: [two_moves, copy(out(2, 0, 3), out(1, 0, 3))]))
    assert got == Counts(3, 2, 2, (1, 1, 0), (3, 3, 0), (0, 0, 0))
    assert got.bytes_per_rank == 1


def test_rounds_are_chains_not_steps() -> None:
    """Steps that have nothing to do with each other are no chain; a rank that sends in both makes them one."""
    apart = [copy(tmp(1), inp(0)), copy(tmp(3), inp(2))]
    sender = [copy(tmp(1), inp(0)), copy(tmp(3), inp(0))]
    receiver = [copy(tmp(1, 0), inp(0)), copy(tmp(1, 1), inp(2))]
    carried = [copy(tmp(1), inp(0)), copy(tmp(1, 1), tmp(1, 0)), copy(tmp(2), tmp(1, 1))]
    for steps, rounds in ((apart, 1), (sender, 2), (receiver, 2), (carried, 2)):
        assert count(Plan("all_reduce", "x", 4, 0, 1, lambda steps=steps: steps)).rounds == rounds  # type: ignore[misc]
