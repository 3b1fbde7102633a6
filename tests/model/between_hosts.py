"""How ranks of several hosts agree on who is lost.

Each rank has a register that only it writes. The others see its past values: in their order, some left out, late, or
from some moment on no more. Anybody may take anybody for lost, rightly or not.

    rank 0   idle ── settling {2} ─────────────────────── decided {2}
                         │    ▲  (the same set, shown by all who are not in it)
                         ▼    │
    rank 1   idle ── settling {2} ─── decided {2}
    rank 2   idle ─ ✕

- Who finds an error, takes a rank for lost, or sees another that is not idle, *settles*: it completes no more calls,
  and says once and for all what it knows (its finding, the last call that it completed). Its set of the lost only
  grows: by its own suspicions, and by the sets of those whom it does not take for lost itself.
- It *decides* when all who are not in its set show exactly this set; or it *adopts* what such a one has decided. What
  is decided never changes. Sets grow, so that two who each showed both sets cannot have decided differently.
- Who sees itself in the set of q, whom it trusts: if those whom q still trusts are too few to go on, q is lost, and
  takes nobody along. If q has decided, this rank is *evicted*, and says so. Else it keeps its own view; and when
  nothing else is left, at its deadline, it takes q for lost. (0 may have given up 1, 1 have given up 2, 2 given up 0.)
- A decision is not yet the right to *go on*. Somebody may decide, and those who made it possible may then take it for
  lost and decide again, without it. So they go on all of whom have decided the same, and who are more than those on
  hosts of which they have nobody, or as many with the lowest rank.
- On one host there is no majority: one of two may go on when the other has died. So two who share memory have a word,
  the *duel*, by which each may put out the other, once and for all: who takes the other for lost, on whatever grounds,
  must have won it, and who has lost it is evicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from explorer import Step

IDLE, SETTLING, DECIDED, EVICTED = range(4)
STAGES = ("idle", "settling", "decided", "evicted")

Register = tuple[int, int, tuple[int, ...]]  # stage, set of the lost (bits), what is known of each rank that counts
Rank = tuple[tuple[Register, ...], tuple[int, ...]]  # values that somebody may still see; which one it has seen of each
Duels = frozenset[tuple[int, int]]  # who has put out whom
World = tuple[int, tuple[Rank, ...], Duels]  # how many suspicions may still come; the ranks; what those of a host share


def can_go_on(lost: int, size: int) -> bool:
    """Whether those who are not lost are more than half, or half of them with the lowest rank."""
    members = size - lost.bit_count()
    return 2 * members > size or (2 * members == size and not lost & 1)


@dataclass(frozen=True)
class BetweenHosts:
    """The protocol; or one with one mistake, which has a name. `hosts` of the ranks: by default each has its own."""

    size: int
    mistake: str = ""
    hosts: tuple[int, ...] = ()

    def share(self, one: int, other: int) -> bool:
        """Whether these two share memory."""
        return bool(self.hosts) and self.hosts[one] == self.hosts[other]

    def starts(self, suspicions: int) -> list[World]:
        """Rank 0 is the first to find anything: ranks are alike."""
        idle: World = (suspicions, (((((IDLE, 0, ()),), (0,) * self.size)),) * self.size, frozenset())
        return [self.write(idle, 0, self.settled(0, 0)), self.write(idle, 0, self.settled(0, 2))]

    def deaf(self, rank: int) -> World:
        """This rank hears nobody, and takes all others for lost; nobody else suspects anybody."""
        idle: World = (0, (((((IDLE, 0, ()),), (0,) * self.size)),) * self.size, frozenset())
        return self.write(idle, rank, self.settled(rank, ~(1 << rank) & ((1 << self.size) - 1)))

    def settled(self, rank: int, lost: int, finding: int = 1) -> Register:
        return SETTLING, lost, tuple(finding if other == rank else -1 for other in range(self.size))

    # ── what may happen ──────────────────────────────────────────────────────────────────────────────────────────────

    def after(self, world: World) -> Iterator[Step[World]]:
        left, ranks, duels = world
        for me, (values, _) in enumerate(ranks):
            stage, lost, facts = values[-1]
            if stage >= DECIDED:
                continue
            if any(loser == me for _, loser in duels):
                yield (me, "is put out"), self.write(world, me, (EVICTED, lost, facts))
            others = [other for other in range(self.size) if other != me and not lost >> other & 1]
            quiet = True
            for step in self.looks(world, me, others):
                quiet = False
                yield step
            if decision := self.decision(world, me, others):
                quiet = False
                yield (me, "decides", decision), self.write(world, me, decision)
            if stage == IDLE:
                yield (me, "finds an error"), self.write(world, me, self.settled(me, 0))
            elif self.mistake == "facts change" and facts[me] == 0:
                yield (me, "finds an error"), self.write(world, me, self.settled(me, lost))
            for other in others:
                bit = 1 << other
                new = (SETTLING, lost | bit, facts) if stage == SETTLING else self.settled(me, bit)
                if left:
                    spent = (left - 1, ranks, duels)
                    yield (me, "suspects", other), self.write(spent, me, new)
                if quiet and stage == SETTLING and self.seen(world, me, other)[1] >> me & 1 and self.mistake != "waits":
                    yield (me, "gives up", other, "who gave it up"), self.write(world, me, new)

    def looks(self, world: World, me: int, others: list[int]) -> Iterator[Step[World]]:
        """It sees a newer value of another, and acts on it in the same step: who acts later might look later."""
        left, ranks, duels = world
        values, views = ranks[me]
        if self.mistake == "adopts from the lost":
            others = [other for other in range(self.size) if other != me]
        for other in others:
            for index in range(views[other] + 1, len(ranks[other][0])):
                seen = ranks[other][0][index]
                new = self.reaction(me, values[-1], other, seen)
                mine = (values, (*views[:other], index, *views[other + 1 :]))
                looked = (left, (*ranks[:me], mine, *ranks[me + 1 :]), duels)
                yield (
                    (me, "sees", other, STAGES[seen[0]], f"{seen[1]:b}"),
                    self.write(looked, me, new) if new != values[-1] else self.tidy(looked),
                )

    def reaction(self, me: int, mine: Register, other: int, seen: Register) -> Register:
        """What the register of a rank becomes when it sees that of another."""
        stage, lost, facts = mine
        theirs, set_of_theirs, their_facts = seen
        if lost >> other & 1 and (theirs != DECIDED or set_of_theirs >> me & 1):
            return mine  # only with a mistake it looks there at all
        if stage == IDLE:
            facts = self.settled(me, 0, finding=0)[2]
        if theirs == EVICTED:
            return SETTLING, lost | 1 << other, facts
        if set_of_theirs >> me & 1:
            if (
                not can_go_on(set_of_theirs, self.size)
                and not self.share(me, other)
                and self.mistake != "anybody evicts"
            ):
                return SETTLING, lost | 1 << other, facts
            return (EVICTED if theirs == DECIDED else SETTLING), lost, facts
        if theirs == DECIDED:
            return DECIDED, set_of_theirs, their_facts
        return SETTLING, lost | (0 if self.mistake == "no union" else set_of_theirs), facts

    def decision(self, world: World, me: int, others: list[int]) -> Register | None:
        stage, lost, facts = world[1][me][0][-1]
        shown = [self.seen(world, me, other) for other in others]
        same = (SETTLING,) if self.mistake == "first set seen" else (SETTLING, lost)
        if stage != SETTLING or any(register[: len(same)] != same for register in shown):
            return None
        known = list(facts)
        for other, register in zip(others, shown, strict=True):
            known[other] = register[2][other]
        return DECIDED, lost, tuple(known)

    def seen(self, world: World, me: int, other: int) -> Register:
        return world[1][other][0][world[1][me][1][other]]

    def write(self, world: World, me: int, register: Register) -> World:
        left, ranks, duels = world
        values, views = ranks[me]
        if register[0] != EVICTED and self.mistake != "no duels":
            against = {other for other in range(self.size) if register[1] >> other & 1 and self.share(me, other)}
            if any((other, me) in duels for other in against):
                register = (EVICTED, *values[-1][1:])
            else:
                duels |= {(me, other) for other in against}
        return self.tidy((left, (*ranks[:me], ((*values, register), views), *ranks[me + 1 :]), duels))

    def tidy(self, world: World) -> World:
        """The same world in fewest words: forget values that nobody will look at any more."""
        left, ranks, duels = world
        views = []
        for me, (values, view) in enumerate(ranks):
            stage, lost, _ = values[-1]
            if self.mistake == "adopts from the lost":
                lost = 0
            views.append(
                [
                    len(ranks[other][0]) - 1 if other == me or stage >= DECIDED or lost >> other & 1 else index
                    for other, index in enumerate(view)
                ]
            )
        oldest = [min(column) for column in zip(*views, strict=True)]
        return (
            left,
            tuple(
                (values[old:], tuple(index - first for index, first in zip(view, oldest, strict=True)))
                for (values, _), view, old in zip(ranks, views, oldest, strict=True)
            ),
            duels,
        )

    # ── what must not happen ─────────────────────────────────────────────────────────────────────────────────────────

    def wrong(self, world: World, steps: list[Step[World]]) -> str:
        registers = [values[-1] for values, _ in world[1]]
        decided = [(me, lost, facts) for me, (stage, lost, facts) in enumerate(registers) if stage == DECIDED]
        for me, lost, facts in decided:
            if not lost and 1 not in facts:
                return f"{me} decides that nothing was found, and nobody lost"
            for other, theirs, known in decided:
                apart = lost >> other & 1 or theirs >> me & 1
                if not apart and (lost, facts) != (theirs, known):
                    return f"{me} and {other} decide differently"
                if lost != theirs and self.goes_on(registers, lost) and self.goes_on(registers, theirs):
                    return f"{me} and {other} go on, each with its own"
        return f"{stuck} wait for ever" if (stuck := self.stuck(world, steps)) else ""

    def goes_on(self, registers: list[Register], lost: int) -> bool:
        members = [register for rank, register in enumerate(registers) if not lost >> rank & 1]
        all_say = all(register[:2] == (DECIDED, lost) for register in members)
        return self.is_majority(lost) and (all_say or self.mistake == "goes on at once")

    def is_majority(self, lost: int) -> bool:
        """Whether who is not lost is more than those on hosts of which all are, or as many, with the lowest rank."""
        members = [rank for rank in range(self.size) if not lost >> rank & 1]
        apart = [rank for rank in range(self.size) if not any(rank == one or self.share(rank, one) for one in members)]
        return (len(members), min(apart, default=self.size)) > (len(apart), min(members))

    def stuck(self, world: World, steps: list[Step[World]]) -> list[int]:
        """Who waits, though no news are on their way to it, for ranks that wait likewise. It may wait for a dead one or
        for one that it hears no more: those it will suspect."""
        _, ranks, _ = world
        busy = {label[0] for label, _ in steps if label[1] != "suspects"}
        waiting = {me for me in range(self.size) if ranks[me][0][-1][0] == SETTLING and me not in busy}
        while True:
            for me in waiting:
                lost = ranks[me][0][-1][1]
                others = {other for other in range(self.size) if other != me and not lost >> other & 1}
                if any(ranks[other][0][-1][:2] != (SETTLING, lost) for other in others - waiting):
                    waiting.remove(me)
                    break
            else:
                return sorted(waiting)
