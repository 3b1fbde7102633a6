"""The protocols by which survivors agree, in all interleavings; and each rule of them left out, which must be seen."""

from __future__ import annotations

import pytest
from between_hosts import BetweenHosts, World
from explorer import Step, Walk, explore
from grow import Grow
from recover import Recover
from within_host import WithinHost

EVERYTHING = 6  # each of three ranks suspects both others


def between_hosts(suspicions: int, mistake: str = "") -> Walk:
    protocol = BetweenHosts(3, mistake)
    return explore(protocol.starts(suspicions), protocol.after, protocol.wrong)


def deaf(mistake: str = "") -> Walk:
    """The last of three ranks hears nobody; in the end the other two must go on."""
    protocol = BetweenHosts(3, mistake)

    def wrong(world: World, steps: list[Step[World]]) -> str:
        over = not steps and not protocol.goes_on([values[-1] for values, _ in world[1]], lost=0b100)
        return protocol.wrong(world, steps) or ("it takes the others along" if over else "")

    return explore([protocol.deaf(2)], protocol.after, wrong)


def test_between_hosts_all_who_trust_one_another_decide_the_same() -> None:
    walk = between_hosts(EVERYTHING)
    assert not walk.complaint, walk
    assert walk.worlds > 10_000


MIXED = [(0, 0, 1), (0, 1, 0), (0, 1, 1)]  # the hosts of three ranks, two of which share memory


def on_hosts(hosts: tuple[int, ...], suspicions: int, mistake: str = "") -> Walk:
    protocol = BetweenHosts(3, mistake, hosts)
    return explore(protocol.starts(suspicions), protocol.after, protocol.wrong)


@pytest.mark.parametrize("hosts", MIXED)
def test_of_two_on_one_host_only_one_goes_on_without_the_other(hosts: tuple[int, ...]) -> None:
    walk = on_hosts(hosts, EVERYTHING)
    assert not walk.complaint, walk
    assert walk.worlds > 10_000


@pytest.mark.parametrize("hosts", MIXED[:2])  # else who is alone on its host is the lowest rank, which counts for two
def test_they_need_a_duel(hosts: tuple[int, ...]) -> None:
    walk = on_hosts(hosts, 2, "no duels")
    assert "go on, each with its own" in walk.complaint, walk


@pytest.mark.parametrize(
    ("mistake", "suspicions", "complaint"),
    [
        ("first set seen", 1, "1 and 2 decide differently"),
        ("adopts from the lost", 1, "0 and 2 decide differently"),
        ("facts change", 0, "decide differently"),
        ("goes on at once", 1, "go on, each with its own"),
        ("no union", 1, "wait for ever"),
        ("waits", 2, "[0, 1, 2] wait for ever"),
    ],
)
def test_between_hosts_each_rule_is_needed(mistake: str, suspicions: int, complaint: str) -> None:
    walk = between_hosts(suspicions, mistake)
    assert complaint in walk.complaint, walk


def test_between_hosts_who_hears_nobody_takes_nobody_along() -> None:
    assert not deaf().complaint, deaf()
    assert deaf("anybody evicts").complaint == "it takes the others along"


def within_host(protocol: WithinHost | Recover | Grow) -> Walk:
    return explore([protocol.start()], protocol.after, protocol.wrong)  # type: ignore[arg-type]


def test_within_a_host_all_report_the_same() -> None:
    walk = within_host(WithinHost(3))
    assert not walk.complaint, walk
    assert walk.worlds > 50_000


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ("plain store", "other than the report says"),
        ("raised before shut", "with arrays of the next"),
        ("looks, then stores", "reports differ"),
        ("gates shut first", "nothing was found"),
        ("the loser reports its own", "reports differ"),
        ("proposed before written", "nothing was found"),
        ("shuts only its own", "a gate is read that is open"),
        ("nobody helps", "needs another rank"),
    ],
)
def test_within_a_host_each_rule_is_needed(mistake: str, complaint: str) -> None:
    walk = within_host(WithinHost(2, mistake))
    assert complaint in walk.complaint, walk


def test_recover_forms_one_group_or_none() -> None:
    walk = within_host(Recover(3))
    assert not walk.complaint, walk
    assert walk.worlds > 20_000


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ("no commit", "is a member, and has no links"),
        ("hasty", "is a member, and has no links"),
        ("keeps its own", "two groups"),
        ("plain store", "goes its own way"),
    ],
)
def test_recover_needs_each_rule(mistake: str, complaint: str) -> None:
    walk = within_host(Recover(2, mistake))
    assert complaint in walk.complaint, walk


def test_all_that_are_left_are_in_the_new_group_or_none_is() -> None:
    walk = within_host(Grow(4))
    assert not walk.complaint, walk
    assert walk.worlds > 1_000


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ("the vote decides", "is in the new group, and"),
        ("asks only itself", "is in the new group, and"),
        ("turns back at once", "is in the new group, and"),
    ],
)
def test_of_growth_each_rule_is_needed(mistake: str, complaint: str) -> None:
    walk = within_host(Grow(3, mistake))
    assert complaint in walk.complaint, walk
