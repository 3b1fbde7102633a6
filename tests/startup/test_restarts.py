"""What becomes of a job in which ranks fail, as the ledger has it: no processes."""

from __future__ import annotations

import random

import pytest

from hocket.launch.restarts import Answer, Fate, Restarts
from hocket.rendezvous.store import MET, joined

AGAIN, WITHOUT, ALL, OVER = Fate


class Job:
    """Ranks that are only numbers, and their notes."""

    def __init__(self, size: int, most: int = 0, needed: int | None = None, *, met: bool = True) -> None:
        self.ledger, self.notes = Restarts(range(size), most, needed), {MET} if met else set()

    def fail(self, rank: int) -> Answer:
        answer = self.ledger.failed(rank, self.notes.__contains__)
        if answer.fate is ALL:
            self.notes.clear()
        return answer

    def join(self, rank: int) -> None:
        self.notes.add(joined(rank, self.ledger.of(rank)))


def test_what_nobody_asked_for_changes_nothing() -> None:
    assert Restarts(range(4)).is_strict
    assert Restarts(range(4), 0, 4).is_strict
    assert not Restarts(range(4), 1).is_strict
    assert not Restarts(range(4), 0, 3).is_strict


def test_one_is_started_again_and_joins_the_others() -> None:
    job = Job(4, most=3)
    assert job.fail(2) == (AGAIN, "; started again (1 of 3)", 0.0)
    assert [job.ledger.of(rank) for rank in range(4)] == [0, 0, 1, 0]
    assert job.fail(0) == (AGAIN, "; started again (2 of 3)", 0.0)
    assert job.fail(2) == (AGAIN, "; started again in 0.5 s (3 of 3)", 0.5)
    assert job.ledger.of(2) == 2
    words = "; all 3 restarts are used; too few are left (3 ranks, at least 4 are needed)"
    assert job.fail(1) == (OVER, words, 0.0)


def test_the_others_go_on_as_long_as_they_are_enough() -> None:
    job = Job(4, needed=2)
    assert job.fail(3) == (WITHOUT, "; the others go on (3 ranks, at least 2 are needed)", 0.0)
    job.ledger.ended(0)
    assert job.fail(1) == (WITHOUT, "; the others go on (2 ranks, at least 2 are needed)", 0.0)
    assert job.fail(2) == (OVER, "; too few are left (1 rank, at least 2 are needed)", 0.0)


def test_who_fails_when_enough_have_ended_well_is_not_missed() -> None:
    """Although there are restarts: whom should it join?"""
    job = Job(3, most=5, needed=1)
    job.ledger.ended(0)
    assert job.fail(2).fate is AGAIN
    job.ledger.ended(1)
    assert job.fail(2) == (WITHOUT, "; the others have ended well (2 ranks, at least 1 is needed)", 0.0)


def test_who_fails_when_too_few_have_ended_well_has_all_begin_anew() -> None:
    job = Job(2, most=1)
    job.ledger.ended(0)
    assert job.fail(1) == (ALL, "; nobody is left to join; all are started again (1 of 1)", 0.0)


def test_who_wants_to_join_when_all_others_have_ended_is_nobodys_peer() -> None:
    job = Job(3, most=5)
    assert job.fail(2).fate is AGAIN
    job.ledger.ended(0)
    job.ledger.came_late([1, 2])
    assert job.fail(1) == (ALL, "; nobody is left to join; all are started again in 0.5 s (2 of 5)", 0.5)
    job.notes.add(MET)
    assert job.fail(1).fate is AGAIN  # that was in an earlier life


def test_before_they_have_met_all_begin_anew() -> None:
    job = Job(3, most=2, needed=1, met=False)
    assert job.fail(1) == (ALL, ", before the ranks had met; all are started again (1 of 2)", 0.0)
    assert job.ledger.of(1) == 0
    assert job.fail(0) == (ALL, ", before the ranks had met; all are started again in 0.5 s (2 of 2)", 0.5)
    assert job.fail(1) == (OVER, ", before the ranks had met; all 2 restarts are used", 0.0)


def test_a_single_rank_is_nobodys_peer() -> None:
    job = Job(1, most=1, met=False)
    assert job.fail(0) == (ALL, "; started again (1 of 1)", 0.0)
    assert job.fail(0) == (OVER, ", before the ranks had met; the restart is used", 0.0)


def test_where_all_have_failed_all_begin_anew() -> None:
    """That is one restart, and those of ranks that were to join the others are none."""
    job = Job(4, most=3)
    assert [job.fail(rank).fate for rank in (2, 0, 1)] == [AGAIN] * 3
    assert job.fail(3) == (ALL, "; nobody is left to join; all are started again (1 of 3)", 0.0)
    assert [job.ledger.of(rank) for rank in range(4)] == [0] * 4
    job.notes.add(MET)
    assert job.fail(2) == (AGAIN, "; started again in 0.5 s (2 of 3)", 0.5)


def test_they_begin_anew_though_restarts_ran_out_on_the_way() -> None:
    job = Job(4, most=1)
    assert [job.fail(rank).fate for rank in (2, 0, 1, 3)] == [AGAIN, OVER, OVER, ALL]


def test_who_has_joined_belongs_to_the_others() -> None:
    job = Job(2, most=3)
    assert job.fail(0).fate is AGAIN
    job.join(0)
    assert job.fail(1).fate is AGAIN
    assert job.fail(0).fate is ALL  # rank 1 has nobody to join


def test_on_several_hosts_there_may_always_be_somebody_elsewhere() -> None:
    ledger = Restarts(range(2, 4), 3)
    assert [ledger.failed(rank, None).fate for rank in (2, 3, 2, 3)] == [AGAIN, AGAIN, AGAIN, OVER]
    assert (ledger.of(2), ledger.of(3)) == (2, 1)


def test_who_fails_at_once_each_time_is_started_ever_later() -> None:
    job = Job(2, most=2000)
    delays = [job.fail(1).delay for _ in range(2000)]
    assert delays[:9] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert set(delays[9:]) == {30}
    assert job.fail(1).fate is OVER


@pytest.mark.parametrize("seed", range(200))
def test_any_job_comes_to_its_end(seed: int) -> None:
    """Whoever fails, ends and joins when: restarts are never more than were given, nobody is started alone who has
    nobody to join, nobody is missed where too few are left, and the job is ended only where nothing else is left."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    size, most = dice.randint(1, 6), dice.randint(0, 5)
    needed = dice.randint(1, size)
    job = Job(size, most, needed, met=False)
    members, joiners, done, lost, meetings = set(range(size)), set[int](), 0, 0, 1
    alone = 0  # restarts of one rank since all were started last
    while members or joiners:
        rank = dice.choice(sorted(members | joiners))
        what = dice.choice(["meet", "join", "end", "fail", "fail", "late"])
        if what == "meet" and not joiners:
            job.notes.add(MET)
        elif what == "join" and rank in joiners and members:
            joiners.remove(rank)
            members.add(rank)
            job.join(rank)
        elif what == "end" and rank in members and MET in job.notes:
            members.remove(rank)
            job.ledger.ended(rank)
            done += 1
        elif what == "late" and MET in job.notes:  # all others were given up by those that have ended, and woke up
            job.ledger.came_late(members | joiners)
            joiners, members = joiners | members, set()
        elif what == "fail":
            members.discard(rank)
            joiners.discard(rank)
            met = MET in job.notes
            left = size - lost - 1
            answer = job.fail(rank)
            if answer.fate is AGAIN:
                assert met
                assert members
                alone += 1
                joiners.add(rank)
                assert f"of {most})" in answer.words
            elif answer.fate is ALL:
                assert not (met and members)
                members, joiners, done, lost, alone = set(range(size)), set(), 0, 0, 0
                meetings += 1
            elif answer.fate is WITHOUT:
                assert left >= needed
                assert met
                lost += 1
            else:
                assert not met or left < needed
                break
            assert meetings - 1 <= most
            assert alone <= most
    else:
        assert done >= needed
        assert done + lost == size
