"""Whether all that are left of a trial say the same, and went on in the same group."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from in_rank import Report, Verdict
from regroup import Onward
from scenario import Trial

OUT = "the others went on without"

Findings = list[tuple[str, str]]


def judge(trial: Trial, reports: list[Any], onward: list[Any], zombie: int | None, far: bool) -> Findings:
    findings: Findings = []
    played = {rank: report for rank, report in enumerate(reports) if isinstance(report, Report)}
    went = {rank: report for rank, report in enumerate(onward) if isinstance(report, Onward)}
    for rank, report in enumerate(onward):
        findings += getattr(report, "findings", [])
        mine = rank == trial.struck and trial.fault == "killed in recover"
        if report is not None and rank not in went and not mine:
            findings.append(("RAW", f"rank {rank}, going on: {report!r}"))
    if zombie is not None and zombie in played:
        findings += played[zombie].findings
    told = [(rank, report.verdict) for part in (played, went) for rank, report in part.items() if report.verdict]
    findings += same_verdicts(told, far)
    if told:
        counts = {rank: report.good for rank, report in played.items() if report.good is not None}
        inside = [verdict for rank, verdict in told if rank not in verdict.lost]
        if inside:
            findings += completed(inside[0], counts, set(range(trial.size)) - set(inside[0].lost) <= set(counts))
    return findings + (one_group(trial, went) if far else same_groups(trial, went, zombie))


def same_verdicts(told: list[tuple[int, Verdict]], far: bool) -> Findings:
    """Of those that are not lost, word for word; those that are know at least that they are. Between hosts only those
    are told the same that do not take each other for lost."""
    findings = []
    inside = [(rank, verdict) for rank, verdict in told if rank not in verdict.lost]
    for (a, one), (b, other) in combinations(inside, 2):
        apart = far and (b in one.lost or a in other.lost)
        if not apart and (one[2:] != other[2:] or (one.text and other.text and one[:2] != other[:2])):
            findings.append(("SPLIT", f"verdicts differ:\n    rank {a}: {one}\n    rank {b}: {other}"))
    for rank, verdict in told:
        if rank in verdict.lost and verdict.text and (OUT not in verdict.text or verdict.kind != "PeerLost"):
            findings.append(("SPLIT", f"rank {rank} is lost and was told {verdict}"))
    return findings


def completed(verdict: Verdict, counts: dict[int, int], all_of_them: bool) -> Findings:
    """What ranks have completed is what they are told."""
    counts = {rank: count for rank, count in counts.items() if rank not in verdict.lost}
    wrong = [
        f"rank {rank} has completed {count} calls"
        for rank, count in counts.items()
        if count < verdict.completed or (count > verdict.completed and not verdict.settled.startswith(f"call {count},"))
    ]
    if all_of_them and min(counts.values()) != verdict.completed:
        wrong.append(f"all have completed {min(counts.values())}")
    return [("SPLIT", f"{wrong}, but was told: {verdict}")] if wrong else []


def one_group(trial: Trial, went: dict[int, Onward]) -> Findings:
    """Between hosts a rank may be taken for lost and not be; but no two groups go on unless each was told to."""
    groups = {report.members for report in went.values() if report.outcome == "regrouped"}
    inside = [rank for members in groups for rank in members]
    findings = []
    if len(groups) > 1 and not (trial.few and len(set(inside)) == len(inside)):
        findings.append(("SPLIT", f"groups differ: {[(r, o.members, o.history) for r, o in went.items()]}"))
    for rank, report in went.items():
        expected = ("regrouped", "few", "PeerLost") if groups else ("few", "whole", "PeerLost")
        if report.outcome not in expected and rank != trial.second:
            findings.append(("SPLIT", f"rank {rank}: {report.outcome}: {report.text}"))
        if trial.fault == "killed" and trial.few and report.outcome != "regrouped":
            findings.append(("SPLIT", f"rank {rank} got {report.outcome}: {report.text}"))
    return findings


def same_groups(trial: Trial, went: dict[int, Onward], zombie: int | None) -> Findings:
    regrouped = {rank: report for rank, report in went.items() if report.outcome == "regrouped"}
    groups = {(report.members, report.history) for report in regrouped.values()}
    findings: Findings = []
    few = [rank for rank, report in went.items() if report.outcome == "few"]
    if few and regrouped and not trial.fault.endswith("in recover"):
        findings.append(("SPLIT", f"{few} are too few to go on, and {sorted(regrouped)} did"))
    if len(groups) > 1:
        findings.append(("SPLIT", f"groups differ: {[(r, o.members, o.history) for r, o in regrouped.items()]}"))
    for rank, report in went.items():
        if report.outcome in ("regrouped", "few") or (rank == trial.second and trial.fault.endswith("in recover")):
            continue
        out = rank == zombie or (report.verdict is not None and rank in report.verdict.lost)
        if any(rank in members for members, _ in groups):
            findings.append(("SPLIT", f"rank {rank} is in a group and got {report.outcome}: {report.text}"))
        elif out and (report.outcome != "PeerLost" or OUT not in report.text):
            findings.append(("SPLIT", f"rank {rank} was lost and got {report.outcome}: {report.text}"))
        elif not out and report.outcome != "whole":
            findings.append(("SPLIT", f"rank {rank} was left and got {report.outcome}: {report.text}"))
        elif report.outcome == "whole" and regrouped:
            findings.append(("SPLIT", f"rank {rank} is told that nothing ended the group; {sorted(regrouped)} recover"))
    if zombie is not None and zombie in regrouped:
        findings.append(("SPLIT", f"rank {zombie}, which was stopped, went on in {regrouped[zombie].members}"))
    return findings
