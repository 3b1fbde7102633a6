"""MSCCL's XML as values: what MSCCL's own loader takes, checked attribute by attribute.

    <algo name= coll= ngpus= nchunksperloop= nchannels= proto= inplace= ...>
      <gpu id= i_chunks= o_chunks= s_chunks=>
        <tb id= send= recv= chan=>
          <step s= type= srcbuf= srcoff= dstbuf= dstoff= cnt= depid= deps= hasdep=/>

A **threadblock** does its steps one after the other. It sends to at most one gpu and receives from at most one, over
the channel `chan`: a queue from one threadblock of one gpu to one of the other, in order. A step waits for step `deps`
of threadblock `depid` on the same gpu, where that is not -1; the step that is waited for has `hasdep="1"`.

    s     send src                     re    dst = dst op src
    r     receive into dst             rrc   receive x; dst = src op x
    cpy   dst = src                    rrs   receive x; send src op x
    nop   only wait                    rrcs  receive x; dst = src op x, which is sent
                                       rcs   receive into dst, which is sent

(Cowan et al., MSCCLang: Microsoft Collective Communication Language, ASPLOS 2023.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from ...errors import PlanError
from ..plan import MOST_MOVES

COLLECTIVES = {
    "allreduce": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
}
SENDS, RECEIVES = {"s", "rcs", "rrs", "rrcs"}, {"r", "rcs", "rrc", "rrs", "rrcs"}
READS, WRITES = {"s", "cpy", "re", "rrc", "rrs", "rrcs"}, {"r", "cpy", "re", "rcs", "rrc", "rrcs"}
TYPES = SENDS | READS | WRITES | {"nop"}
MOST = 1 << 20  # of anything that an attribute counts
NOBODY = -1


class Span(NamedTuple):
    """`count` chunks of a buffer of one gpu: "i", "o" or "s"."""

    buf: str
    chunk: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


class Step(NamedTuple):
    """One step. `src` and `dst` are of its own gpu, and None where it has none there."""

    gpu: int
    tb: int
    number: int
    type: str
    src: Span | None
    dst: Span | None
    count: int  # type: ignore[assignment]
    waits: tuple[int, int] | None  # a threadblock, and the number of a step there
    tells: bool

    def __str__(self) -> str:
        return f"gpu {self.gpu}, tb {self.tb}, step {self.number} ({self.type})"


class Block(NamedTuple):
    """A threadblock; NOBODY is no peer."""

    gpu: int
    tb: int
    send: int
    recv: int
    chan: int
    steps: list[Step]


class Algo(NamedTuple):
    """A whole file. `blocks[gpu]` are the threadblocks of a gpu, by their numbers."""

    name: str
    collective: str
    size: int
    root: int
    chunks: int
    in_place: bool
    blocks: list[dict[int, Block]]


def parse(text: str, root: int | None = None) -> Algo:
    """The algorithm that an XML says, whose root is `root` where it does not tell.

    Raises PlanError for what MSCCL would not take, with the place.
    """
    try:
        if "<!DOCTYPE" in text:
            raise PlanError("an XML of MSCCL has no document type")
        top = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise PlanError(f"this is no XML: {error}") from error
    if top.tag != "algo":
        raise PlanError(f"the element is <{top.tag}>, not <algo>")
    coll = _word(top, "coll", "algo").replace("_", "")
    if coll not in COLLECTIVES:
        raise PlanError(f"algo: coll={coll!r} is none of {', '.join(COLLECTIVES)}")
    size = _number(top, "ngpus", "algo", 1)
    out_of_place = _number(top, "outofplace", "algo", 0, 1, default=0)
    in_place = _number(top, "inplace", "algo", 0, 1, default=0) and not out_of_place
    blocks: dict[int, dict[int, Block]] = {}
    wide = 0
    for gpu in _children(top, "gpu", "algo"):
        number = _number(gpu, "id", "gpu", 0, size - 1)
        if number in blocks:
            raise PlanError(f"gpu {number} is there twice")
        widths = {buf: _number(gpu, f"{buf}_chunks", f"gpu {number}", 0) for buf in "ios"}
        wide = max(wide, widths["i"], widths["o"])
        blocks[number] = _blocks(gpu, number, size, widths)
    if len(blocks) < size:
        missing = next(number for number in range(size) if number not in blocks)
        raise PlanError(f"algo: ngpus={size}, and there is no gpu {missing}")
    rooted = _number(top, "root", "algo", 0, size - 1, default=root or 0)
    if not 0 <= rooted < size:
        raise PlanError(f"root {rooted} is none of the gpus 0 to {size - 1}")
    chunks = _number(top, "nchunksperloop", "algo", 1, default=max(1, wide))
    if size * chunks > MOST_MOVES:
        raise PlanError(f"algo: {chunks} chunks on each of {size} gpus are more than can be meant")
    name = top.get("name") or "msccl"
    if not name.isprintable():
        raise PlanError(f"algo has a name that cannot be printed: {name!r}")
    return Algo(name, COLLECTIVES[coll], size, rooted, chunks, bool(in_place), [blocks[r] for r in range(size)])


def _blocks(element: ElementTree.Element, gpu: int, size: int, widths: dict[str, int]) -> dict[int, Block]:
    blocks: dict[int, Block] = {}
    for each in _children(element, "tb", f"gpu {gpu}"):
        tb = _number(each, "id", f"gpu {gpu}, tb", 0)
        where = f"gpu {gpu}, tb {tb}"
        if tb in blocks:
            raise PlanError(f"{where} is there twice")
        send, recv = (_number(each, name, where, NOBODY, size - 1) for name in ("send", "recv"))
        if gpu in (send, recv):
            raise PlanError(f"{where}: its peer is gpu {gpu} itself")
        block = Block(gpu, tb, send, recv, _number(each, "chan", where, 0), [])
        for number, said in enumerate(_children(each, "step", where)):
            if _number(said, "s", f"{where}, step {number}", 0) != number:
                raise PlanError(f"{where}: step {said.get('s')} is where step {number} belongs")
            block.steps.append(_step(said, block, number, widths))
        blocks[tb] = block
    for step in (step for block in blocks.values() for step in block.steps):
        if step.waits is not None and not any(other.number == step.waits[1] for other in _steps(blocks, step.waits[0])):
            raise PlanError(f"{step} waits for tb {step.waits[0]}, step {step.waits[1]}, which is not there")
    return blocks


def _steps(blocks: dict[int, Block], tb: int) -> list[Step]:
    return blocks[tb].steps if tb in blocks else []


def _step(element: ElementTree.Element, block: Block, number: int, widths: dict[str, int]) -> Step:
    where, kind = f"gpu {block.gpu}, tb {block.tb}, step {number}", element.get("type", "")
    if kind not in TYPES:
        raise PlanError(f"{where}: type={kind!r} is none of {', '.join(sorted(TYPES))}")
    where += f" ({kind})"
    for kinds, peer, word in ((SENDS, block.send, "send"), (RECEIVES, block.recv, "recv")):
        if kind in kinds and peer == NOBODY:
            raise PlanError(f"{where}: its threadblock has no peer: {word}=-1")
    count = _number(element, "cnt", where, 1) if kind != "nop" else 0
    ends = list[Span | None]()
    for kinds, end in ((READS, "src"), (WRITES, "dst")):
        if kind not in kinds:
            ends.append(None)
            continue
        buf, chunk = _word(element, f"{end}buf", where), _number(element, f"{end}off", where, 0)
        if buf not in widths:
            raise PlanError(f"{where}: {end}buf={buf!r} is none of i, o and s")
        if chunk + count > widths[buf]:
            raise PlanError(f"{where}: {buf}[{chunk}:{chunk + count}] is beyond {buf}_chunks={widths[buf]}")
        ends.append(Span(buf, chunk, count))
    depid = _number(element, "depid", where, NOBODY, default=NOBODY)
    waits = None if depid == NOBODY else (depid, _number(element, "deps", where, 0))
    tells = bool(_number(element, "hasdep", where, 0, 1, default=0))
    src, dst = ends
    return Step(block.gpu, block.tb, number, kind, src, dst, count, waits, tells)


def _children(element: ElementTree.Element, tag: str, where: str) -> Iterator[ElementTree.Element]:
    for child in element:
        if child.tag != tag:
            raise PlanError(f"{where} holds <{child.tag}>, not <{tag}>")
        yield child


def _word(element: ElementTree.Element, name: str, where: str) -> str:
    text = element.get(name)
    if text is None:
        raise PlanError(f"{where} has no {name}")
    return text


def _number(
    element: ElementTree.Element, name: str, where: str, least: int, most: int = MOST, default: int | None = None
) -> int:
    """A whole number from `least` to `most`."""
    text = element.get(name)
    if text is None and default is not None:
        return default
    text = _word(element, name, where)
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else least - 1
    if not least <= number <= most:
        raise PlanError(f"{where}: {name}={text!r} is no whole number from {least} to {most}")
    return number
