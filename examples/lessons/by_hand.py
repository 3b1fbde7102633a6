"""What the lessons share: a send that counts, any plan carried out with send and recv, and printing.

A plan says what moves ("rank 3's chunk 2 is reduced into rank 4's"). Here each rank looks for the moves that begin or
end at itself, sends the ones and receives the others. hocket's engine does the same through shared memory, faster.
"""

import time

import numpy as np

from hocket.plans.plan import COPY


class Counted:
    """A group's send and recv; what is sent is counted."""

    def __init__(self, group):
        self.group, self.rank, self.size = group, group.rank, group.size
        self.messages_sent = 0
        self.sent_to = np.zeros(group.size, np.int64)  # bytes, by rank

    @property
    def bytes_sent(self):
        return int(self.sent_to.sum())

    def send(self, x, dst):
        """Begin to send; the work that comes back is waited for before `x` is changed."""
        self.messages_sent += 1
        self.sent_to[dst] += x.nbytes
        return self.group.send(x, dst, async_op=True)

    def recv(self, src):
        return self.group.recv(src)


def cut(x, plan):
    """Views of the chunks of `x`: its ranks' blocks, where it falls into these, and each of them in pieces."""
    blocks = plan.size if plan.chunks % plan.size == 0 else 1
    return [c for block in np.array_split(x, blocks) for c in np.array_split(block, plan.chunks // blocks)]


def carry_out(plan, link, x, op=np.add):
    """This rank's share of `plan`, over a `Counted`. `x` and the result are as long as the whole vector, whatever part
    of them is this rank's to give and to get."""
    me, y = link.rank, x.copy()
    inp, out = cut(x, plan), cut(y, plan)
    memory = inp, out, [np.empty_like(inp[t % plan.chunks]) for t in range(plan.tmp_chunks)]
    for front in plan.fronts():  # a step: all that is read is read before anything is written
        moves = list(zip(*(column.tolist() for column in front.singles()[1].columns()), strict=True))
        going = {}  # by rank: the chunks that make one message
        for _, _, dst, _, buf, src, chunk, _ in moves:
            if src == me:
                going.setdefault(dst, []).append(memory[buf][chunk].copy())
        sending = [link.send(np.concatenate(parts), dst) for dst, parts in going.items() if dst != me]
        coming = {}  # by rank: its message, from whose front each move takes its chunk
        for verb, buf, dst, chunk, _, src, _, _ in moves:
            if dst == me:
                if src not in coming:
                    coming[src] = np.concatenate(going[me]) if src == me else link.recv(src)
                slot = memory[buf][chunk]
                value, coming[src] = np.split(coming[src], [slot.size])
                slot[...] = value if verb == COPY else op(slot, value)
        for work in sending:
            work.wait()
    return y


def moved(group, call):
    """What `call` made hocket's own engine send and receive on this rank, in bytes, and the algorithms that it took."""
    before = group.metrics()
    call()
    after = group.metrics()
    sent, received = (
        sum(getattr(peer, way) for peer in after.peers) - sum(getattr(peer, way) for peer in before.peers)
        for way in ("bytes_sent", "bytes_received")
    )
    known = {(c.collective, c.algorithm, c.calls) for c in before.calls}
    return sent, received, {c.algorithm for c in after.calls if (c.collective, c.algorithm, c.calls) not in known}


def say(group, *words):
    """Print, on rank 0 only."""
    if group.rank == 0:
        print(*words)


def everyone(group, x):
    """What `x` is on each rank: one row per rank, on all of them."""
    return group.all_gather(np.asarray(x)[None])


def seconds(group, call, rounds=5):
    """Of one call: the slowest rank's, the median of some rounds after a first one that is not counted."""
    times = []
    for _ in range(rounds + 1):
        group.barrier()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(group.all_reduce(np.array(np.median(times[1:])), op="max"))
