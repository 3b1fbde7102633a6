"""A model in stages, one on each rank; micro-batches fill the pipeline, and the bubble is what stays empty.

    hocket run -n 4 examples/lessons/pipeline.py

Stage r computes y = w x + r and hands y on; when all micro-batches of a batch are through, the gradients come back the
same way (GPipe, Huang et al. 2019). Of all time slots the share (S-1) / (M+S-1) stays empty, with S stages and M
micro-batches. It is measured twice: in slots, which each message carries along, and in seconds. A slot is a pause, as
if the work were done by an accelerator; so ranks may be more than cores.
"""

import time

import numpy as np
from by_hand import everyone, say

import hocket

BATCH, SLOT = 16, 2e-3  # numbers in a batch, seconds


class Stage:
    def __init__(self, group):
        self.group, self.weight = group, 1 + group.rank / 4
        self.clock, self.slots, self.gradient = 0, [], 0.0

    def work(self, micro):
        time.sleep(SLOT)
        self.slots.append((self.clock, micro))
        self.clock += 1

    def send(self, x, dst):
        if 0 <= dst < self.group.size:
            self.group.send(np.append(x, self.clock), dst)  # with the slot from which on it is there

    def receive(self, src):
        *x, clock = self.group.recv(src)
        self.clock = max(self.clock, int(clock))
        return np.array(x)

    def run(self, inputs):
        """A batch there and back. The sum of the squares of what comes out, on the last stage."""
        rank, last, kept, loss = self.group.rank, self.group.size - 1, [], 0.0
        for micro, x in enumerate(inputs):
            x = self.receive(rank - 1) if rank > 0 else x
            self.work(micro)
            kept.append((x, self.weight * x + rank))
            self.send(kept[-1][1], rank + 1)
        for micro, (x, y) in enumerate(kept):
            back = self.receive(rank + 1) if rank < last else 2 * y
            self.work(micro)
            self.gradient += back @ x
            self.send(back * self.weight, rank - 1)
            loss += y @ y if rank == last else 0
        return loss


def main(group):
    inputs = np.linspace(-1, 1, BATCH)
    say(group, f"{'micro-batches':14}{'slots':>7}{'empty':>8}{'(S-1)/(M+S-1)':>15}{'seconds empty':>15}{'loss':>12}")
    for micros in 1, 2, 4, 8:
        stage = Stage(group)
        group.barrier()
        start = time.perf_counter()
        loss = stage.run(np.split(inputs, micros))
        taken = group.all_reduce(np.array([stage.clock, time.perf_counter() - start]), op="max")
        empty = 1 - 2 * micros / taken[0]
        formula = (group.size - 1) / (micros + group.size - 1)
        loss = group.broadcast(np.array(loss), root=group.size - 1)
        line = f"{micros:<14}{taken[0]:7.0f}{empty:8.4f}{formula:15.4f}{1 - 2 * micros * SLOT / taken[1]:15.4f}"
        say(group, f"{line}{loss:12.4f}")

    say(group, "\nthe last of these: which micro-batch each stage has, there and back")
    line = np.full(int(taken[0]), -1)
    for slot, micro in stage.slots:
        line[slot] = micro
    for rank, row in enumerate(everyone(group, line)):
        say(group, f"r{rank}  " + " ".join("·" if micro < 0 else str(micro) for micro in row))
    for rank, gradient in enumerate(everyone(group, stage.gradient)):
        say(group, f"r{rank}  the gradient of its weight is {gradient:.4f}")


if __name__ == "__main__":
    with hocket.init() as group:
        main(group)
