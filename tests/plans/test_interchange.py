"""Plans that leave as MSCCL's XML, JSON and GOAL, and come back: equal in effect, and wrong ones with what is wrong."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from oracle import NAMES, expected, given, numbers, same
from threadblocks import run

import hocket
from hocket.errors import PlanError
from hocket.plans.algorithms import plan
from hocket.plans.check import check
from hocket.plans.collectives import COLLECTIVES as SPECS
from hocket.plans.collectives import layout
from hocket.plans.count import count
from hocket.plans.interchange import read_plan
from hocket.plans.interchange.goal import goal
from hocket.plans.interchange.msccl import COLLECTIVES, parse
from hocket.plans.interchange.msccl_read import interpreted
from hocket.plans.interchange.msccl_write import msccl_xml
from hocket.plans.interpret import interpret
from hocket.plans.plan import Plan, copy, inp, out

THEIRS = [name for name in NAMES if name[0] in COLLECTIVES.values()]
SIZES = (1, 2, 3, 5, 8)


def made(name: tuple[str, str]) -> list[Plan]:
    rooted = SPECS[name[0]].rooted
    return [plan(*name, n, root) for n in SIZES for root in sorted({0, (n - 1) * rooted})]


def ring(n: int, in_place: bool = True) -> str:
    """The ring all-reduce as an MSCCL program has it, written here by hand: one threadblock on each gpu."""
    lines = [
        f'<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="{n}" ngpus="{n}" coll="allreduce" '
        f'inplace="{int(in_place)}">'
    ]
    for r in range(n):
        lines.append(f'<gpu id="{r}" i_chunks="{n}" o_chunks="{n}" s_chunks="0">')
        lines.append(f'<tb id="0" send="{(r + 1) % n}" recv="{(r - 1) % n}" chan="0">')
        kinds = ["s", *["rrs"] * (n - 2), "rrcs", *["rcs"] * (n - 2), "r"]
        for s, kind in enumerate(kinds):
            c = (r - s) % n
            lines.append(
                f'<step s="{s}" type="{kind}" srcbuf="i" srcoff="{c}" dstbuf="{"i" if in_place else "o"}" dstoff="{c}" '
                'cnt="1" depid="-1" deps="-1" hasdep="0"/>'
            )
        lines.append("</tb></gpu>")
    return "\n".join([*lines, "</algo>"])


def effect(a: Plan) -> None:
    """It does what its collective promises, on random numbers, by NumPy."""
    rng = np.random.default_rng(a.size)
    arrays = given(a.collective, a.size, 3 * a.chunks, a.root, lambda k: numbers(rng, k))
    assert same(interpret(a, arrays, np.add), expected(a.collective, arrays, a.root, np.add))


@pytest.mark.parametrize("name", THEIRS, ids="-".join)
def test_an_xml_does_what_the_plan_does_and_comes_back(name: tuple[str, str]) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng, numpy_rng = random.Random(seed), np.random.default_rng(seed)
    for each in made(name):
        text = msccl_xml(each)
        back = interpreted(parse(text))
        check(back)
        effect(back)
        assert (back.collective, back.algorithm, back.size, back.root) == (*name, each.size, each.root)
        promise = layout(each.collective, each.size, each.chunks, each.root)
        vectors = given(each.collective, each.size, each.chunks, each.root, lambda k: numbers(numpy_rng, k))
        wanted = expected(each.collective, vectors, each.root, np.add)
        widths = int(promise.inp.sum(1).max()), int(promise.out.sum(1).max())
        for depth in (1, 3):
            got = run(text, [() if x is None else x.reshape(-1, 1) for x in vectors], widths, depth, rng)
            for o, w in zip(got, wanted, strict=True):
                assert [int(o[c][0]) for c in sorted(o)] == ([] if w is None else w.tolist())


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_ring_of_msccl_is_proved(n: int, in_place: bool) -> None:
    back = interpreted(parse(ring(n, in_place)))
    facts, counts = check(back), count(back)
    assert facts.same_everywhere
    assert (counts.rounds, counts.messages) == (2 * n - 2, n * (2 * n - 2))
    effect(back)


def test_a_ring_is_one_threadblock_of_fused_steps() -> None:
    text = msccl_xml(plan("all_reduce", "ring", 8))
    assert text.count("<tb ") == 8
    assert re.findall(r'type="(\w+)"', text)[:15] == ["s", *["rrcs"] * 7, *["rcs"] * 6, "r"]


def line(text: str, gpu: int, step: int) -> str:
    return [x for x in text.split(f'<gpu id="{gpu}"')[1].splitlines() if "<step " in x][step]


def changed(gpu: int, step: int, old: str, new: str) -> str:
    text = ring(3)
    head, tail = text.split(f'<gpu id="{gpu}"')
    at = line(text, gpu, step)
    assert old in at
    return f'{head}<gpu id="{gpu}"{tail.replace(at, at.replace(old, new), 1)}'


TWO = """<algo name="x" nchannels="1" nchunksperloop="1" ngpus="2" coll="broadcast" inplace="{place}">
<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="1">{zero}</gpu>
<gpu id="1" i_chunks="0" o_chunks="1" s_chunks="1">{one}</gpu></algo>"""


def step(s: int, kind: str, src: str = "i", dst: str = "o", waits: tuple[int, int] = (-1, -1), tells: int = 0) -> str:
    return (
        f'<step s="{s}" type="{kind}" srcbuf="{src}" srcoff="0" dstbuf="{dst}" dstoff="0" cnt="1" depid="{waits[0]}" '
        f'deps="{waits[1]}" hasdep="{tells}"/>'
    )


def two(zero: str, one: str, place: int = 0) -> str:
    return TWO.format(zero=zero, one=one, place=place)


def tb(number: int, send: int, recv: int, *steps: str) -> str:
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="0">{"".join(steps)}</tb>'


COPIES, GETS = tb(0, 1, -1, step(0, "cpy"), step(1, "s")), tb(0, -1, 0, step(0, "r"))

WRONG = {
    "deleted": (ring(3).replace(line(ring(3), 1, 4) + "\n", ""), "channel 0 from gpu 0 to gpu 1; 4 sends, 3 receives"),
    "numbers": (ring(3).replace(line(ring(3), 1, 2) + "\n", ""), "gpu 1, tb 0: step 3 is where step 2 belongs"),
    "missing": (changed(1, 1, "rrs", "rcs"), "rank 1's contribution (chunk 0) is missing"),
    "doubled": (changed(1, 3, "rcs", "rrcs"), "came twice"),
    "peer": (
        ring(3).replace('send="1" recv="2"', 'send="2" recv="2"'),
        "no step receives this on channel 0 from gpu 0",
    ),
    "itself": (ring(3).replace('send="1" recv="2"', 'send="0" recv="2"'), "gpu 0, tb 0: its peer is gpu 0 itself"),
    "circle": (
        two(tb(0, 1, 1, step(0, "r"), step(1, "s")), tb(0, 0, 0, step(0, "r"), step(1, "s", "o"))),
        "deadlock: gpu 0, tb 0, step 0 (r) waits for gpu 1, tb 0, step 0 (r) waits for gpu 0, tb 0, step 0 (r)",
    ),
    "unwritten": (
        two(tb(0, 1, -1, step(0, "s", "s")), GETS),
        "gpu 0, tb 0, step 0 (s) reads s[0], and nothing was written there before",
    ),
    "never": (two(tb(0, 1, -1, step(0, "s")), GETS), "gpu 0: o[0] is never written"),
    "race": (
        two(tb(0, -1, -1, step(0, "cpy")) + tb(1, 1, -1, step(0, "s", "o")), GETS),
        "gpu 0, tb 1, step 0 (s) and gpu 0, tb 0, step 0 (cpy): nothing says which of them comes first at o[0]",
    ),
    "untold": (
        two(tb(0, -1, -1, step(0, "cpy")) + tb(1, 1, -1, step(0, "s", "o", waits=(0, 0))), GETS),
        "gpu 0, tb 1, step 0 (s) waits for tb 0, step 0, which has hasdep=0",
    ),
    "waits": (two(COPIES, tb(0, -1, 0, step(0, "r", waits=(7, 0)))), "waits for tb 7, step 0, which is not there"),
    "caller's": (two(COPIES.replace("</tb>", step(2, "cpy", "o", "i") + "</tb>"), GETS), "step 2 (cpy) writes i[0]"),
    "beyond": (changed(0, 0, 'srcoff="0"', 'srcoff="3"'), "i[3:4] is beyond i_chunks=3"),
    "type": (changed(0, 1, 'type="rrs"', 'type="rrx"'), "gpu 0, tb 0, step 1: type='rrx' is none of"),
    "count": (changed(0, 1, 'cnt="1"', 'cnt="0"'), "cnt='0' is no whole number from 1"),
    "number": (changed(0, 1, 'srcoff="2"', 'srcoff="two"'), "srcoff='two' is no whole number"),
    "collective": (ring(3).replace("allreduce", "allconfuse"), "coll='allconfuse' is none of allreduce"),
    "gpu": (ring(3).replace('ngpus="3"', 'ngpus="4"'), "there is no gpu 3"),
    "chunks": (ring(3).replace("allreduce", "allgather").replace('loop="3"', 'loop="4"'), "4 chunks do not make 3"),
    "many": (ring(64).replace('perloop="64"', 'perloop="1048576"'), "are more than can be meant"),
    "torn": (ring(3)[:-3], "this is no XML"),
    "other": ("<graph/>", "the element is <graph>, not <algo>"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told(case: str) -> None:
    text, words = WRONG[case]
    with pytest.raises(PlanError, match=re.escape(words)):
        check(interpreted(parse(text)))


def test_an_order_that_is_told_is_none_to_complain_of() -> None:
    ordered = tb(0, -1, -1, step(0, "cpy", tells=1)) + tb(1, 1, -1, step(0, "s", "o", waits=(0, 0)))
    check(interpreted(parse(two(ordered, GETS))))
    both = tb(0, -1, -1, step(0, "cpy", tells=1)) + tb(1, 1, -1, step(0, "nop", waits=(0, 0)), step(1, "s", "o"))
    check(interpreted(parse(two(both, GETS))))


def test_what_is_overwritten_before_it_is_received_is_put_aside() -> None:
    """Two gpus swap what they hold, in place: each sends, then receives over it."""
    gpus = "".join(
        f'<gpu id="{r}" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="{1 - r}" recv="{1 - r}" chan="0">'
        + step(0, "s").replace('srcoff="0"', f'srcoff="{1 - r}"')
        + step(1, "r").replace('dstoff="0"', f'dstoff="{1 - r}"')
        + "</tb></gpu>"
        for r in (0, 1)
    )
    text = f'<algo name="x" nchunksperloop="2" ngpus="2" coll="alltoall" inplace="1">{gpus}</algo>'
    back = interpreted(parse(text))
    check(back)
    effect(back)


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_json_is_read_by_its_ending_or_not(name: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "plan"
    for each in made(name):
        file.write_text(each.to_json())
        assert read_plan(file) == each


def test_a_collective_that_msccl_has_not() -> None:
    with pytest.raises(PlanError, match="MSCCL has no scan; it has all_reduce, reduce,"):
        msccl_xml(plan("scan", "chain", 4))


def test_a_plan_of_a_file_runs(tmp_path: Path) -> None:
    file = tmp_path / "one.xml"
    one = Plan("broadcast", "mine", 1, 0, 1, lambda: [copy(out(0), inp(0))])
    file.write_text(msccl_xml(one))
    with hocket.init() as group:
        assert group.broadcast(np.arange(3), algorithm=hocket.read_plan(file)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", NAMES, ids="-".join)
def test_a_schedule_is_the_messages(name: tuple[str, str]) -> None:
    """Each send has its receive, bytes and all; what is required was said before; and it can be played to its end."""
    for each in made(name):
        text = goal(each, 1000, fold=0.5)
        assert text.startswith(f"num_ranks {each.size}\n")
        sent, got = [], []
        for rank, block in enumerate(re.findall(r"rank \d+ \{\n(.*?)\}", text, re.DOTALL)):
            labels = set()
            for row in block.splitlines():
                if said := re.fullmatch(r"  l(\d+): (?:(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)|calc \d+)", row):
                    labels.add(said[1])
                    if said[2]:
                        ends = (rank, int(said[4])) if said[2] == "send" else (int(said[4]), rank)
                        (sent if said[2] == "send" else got).append((*ends, said[3], said[5]))
                else:
                    after = re.fullmatch(r"  l(\d+) requires l(\d+)", row)
                    assert after
                    assert {after[1], after[2]} <= labels
        assert sorted(sent) == sorted(got)
        assert len(sent) == count(each).messages
        if each.collective not in ("barrier", "scan", "exscan"):
            most = max((sum(int(b) for s, _, b, _ in sent if s == r) for r in range(each.size)), default=0)
            assert abs(most - 1000 * count(each).bytes_per_rank) <= 3 * each.chunks
