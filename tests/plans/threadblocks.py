"""What an XML of MSCCL computes, by doing it: the oracle for what is exported.

All threadblocks go on in turns, in an order drawn at random, over queues of a few messages: so what is not ordered by
the XML comes in another order each time, and a circle of waits stops it. It knows nothing of plans.
"""

from __future__ import annotations

import random
from typing import Any
from xml.etree import ElementTree

import numpy as np


def run(text: str, given: list[Any], widths: tuple[int, int], depth: int, rng: random.Random) -> list[dict[int, Any]]:
    """The chunks of each gpu's o. `given[gpu]` are the chunks of its i; `widths` limits what i and o may be."""
    top = ElementTree.fromstring(text)
    memory: list[dict[tuple[str, int], Any]] = []
    blocks = []
    for gpu, element in enumerate(top):
        assert int(element.get("id", "")) == gpu
        memory.append({("i", c): x for c, x in enumerate(given[gpu])})
        senders, receivers = [], []
        for tb in element:
            steps = [dict(step.attrib) for step in tb]
            assert [int(step["s"]) for step in steps] == list(range(len(steps)))
            blocks.append((gpu, int(tb.get("id", "")), int(tb.get("send", "")), int(tb.get("recv", "")), steps))
            senders.append(tb.get("send"))
            receivers.append(tb.get("recv"))
        for peers in (senders, receivers):  # one channel, so one threadblock for each peer
            real = [peer for peer in peers if peer != "-1"]
            assert len(real) == len(set(real))
    done = {(gpu, tb): 0 for gpu, tb, *_ in blocks}
    queues: dict[tuple[int, int], list[Any]] = {}
    sending = dict.fromkeys(done, False)  # the receiving half of a fused step is over
    while any(done[gpu, tb] < len(steps) for gpu, tb, _, _, steps in blocks):
        before = (dict(done), dict(sending))
        for gpu, tb, send, recv, steps in rng.sample(blocks, len(blocks)):
            if done[gpu, tb] == len(steps):
                continue
            step, mine = steps[done[gpu, tb]], memory[gpu]
            waits = int(step["depid"]), int(step["deps"])
            if waits[0] >= 0 and done[gpu, waits[0]] <= waits[1]:
                continue
            kind, count = step["type"], int(step["cnt"])
            src = [(step["srcbuf"], int(step["srcoff"]) + k) for k in range(count)]
            dst = [(step["dstbuf"], int(step["dstoff"]) + k) for k in range(count)]
            if kind[0] == "r" and kind != "re" and not sending[gpu, tb]:
                queue = queues.setdefault((recv, gpu), [])
                if not queue:
                    continue
                came = queue.pop(0)
                assert len(came) == count
                for at, own, x in zip(dst, src, came, strict=True):
                    assert at[0] != "i"
                    mine[at] = mine[own] + x if kind in ("rrc", "rrcs") else x
            elif kind in ("cpy", "re"):
                for at, own in zip(dst, src, strict=True):
                    assert at[0] != "i"
                    mine[at] = mine[at] + mine[own] if kind == "re" else mine[own]
            if kind in ("s", "rcs", "rrcs"):
                queue = queues.setdefault((gpu, send), [])
                if len(queue) >= depth:
                    sending[gpu, tb] = kind != "s"
                    continue
                queue.append([mine[at] for at in (src if kind == "s" else dst)])
            sending[gpu, tb] = False
            done[gpu, tb] += 1
        assert before != (done, sending), "deadlock"
    assert not any(queues.values())
    assert all(c < widths["io".index(buf)] for cells in memory for buf, c in cells if buf != "s")
    return [{c: np.asarray(x) for (buf, c), x in cells.items() if buf == "o"} for cells in memory]
