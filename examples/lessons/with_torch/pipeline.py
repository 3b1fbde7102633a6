"""A model in stages, one on each rank; micro-batches fill the pipeline, and autograd goes back through it.

    python examples/lessons/with_torch/pipeline.py 4

Stage r computes y = w x + r and sends y on. What comes to it is a leaf of its own graph: the gradient that `backward`
leaves there is what the stage before waits for. All micro-batches go there, then all come back (GPipe, Huang et al.
2019), so that of all time slots the share (S-1) / (M+S-1) stays empty, with S stages and M micro-batches. It is
measured twice: in slots, which each message carries along, and in seconds. A slot is a pause, as if an accelerator did
the work, so that ranks may be more than cores. torch.distributed.pipelining has other schedules, ready to be used.
"""

import time

import torch
import torch.distributed as dist
from start import everyone, say, start
from torch import nn

BATCH, SLOT = 16, 2e-3  # numbers in a batch, seconds


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1
        self.weight = nn.Parameter(torch.tensor(1 + self.rank / 4, dtype=torch.float64))
        self.clock, self.slots = 0, []

    def forward(self, x):
        return self.weight * x + self.rank

    def work(self, micro):
        time.sleep(SLOT)
        self.slots.append((self.clock, micro))
        self.clock += 1

    def send(self, x, dst):
        if 0 <= dst <= self.last:
            now = torch.tensor([self.clock], dtype=x.dtype)
            dist.send(torch.cat([x.detach(), now]), dst)  # with the slot from which on it is there

    def receive(self, like, src):
        message = torch.empty(len(like) + 1, dtype=like.dtype)
        dist.recv(message, src)
        self.clock = max(self.clock, int(message[-1]))
        return message[:-1].clone()

    def run(self, inputs):
        """A batch there and back. The sum of the squares of what comes out, on the last stage."""
        kept, loss = [], 0.0
        for micro, x in enumerate(inputs):
            x = self.receive(x, self.rank - 1) if self.rank > 0 else x.clone()
            y = self(x.requires_grad_())
            self.work(micro)
            self.send(y, self.rank + 1)
            kept.append((x, y))
        for micro, (x, y) in enumerate(kept):
            if self.rank < self.last:
                y.backward(self.receive(y, self.rank + 1))
            else:
                squares = y.square().sum()
                squares.backward()
                loss += squares.item()
            self.work(micro)
            self.send(x.grad, self.rank - 1)
        return loss


def main():
    inputs, n = torch.linspace(-1, 1, BATCH, dtype=torch.float64), dist.get_world_size()
    say(f"{'micro-batches':14}{'slots':>7}{'empty':>8}{'(S-1)/(M+S-1)':>15}{'seconds empty':>15}{'loss':>12}")
    for micros in 1, 2, 4, 8:
        stage = Stage()
        dist.barrier()
        begin = time.perf_counter()
        loss = stage.run(inputs.chunk(micros))
        taken = everyone([stage.clock, time.perf_counter() - begin, loss]).max(axis=0)
        empty = 1 - 2 * micros / taken[0]
        line = f"{micros:<14}{taken[0]:7.0f}{empty:8.4f}{(n - 1) / (micros + n - 1):15.4f}"
        say(f"{line}{1 - 2 * micros * SLOT / taken[1]:15.4f}{taken[2]:12.4f}")

    say("\nthe last of these: which micro-batch each stage has, there and back")
    line = torch.full([int(taken[0])], -1)
    for slot, micro in stage.slots:
        line[slot] = micro
    for r, row in enumerate(everyone(line)):
        say(f"r{r}  " + " ".join("·" if micro < 0 else str(micro) for micro in row))
    for r, gradient in enumerate(everyone(stage.weight.grad)):
        say(f"r{r}  the gradient of its weight is {gradient:.4f}")


if __name__ == "__main__":
    start(main)
