"""Train with DistributedDataParallel; go on with the ranks that are left when one is lost, and take in those that come.

    python examples/elastic_ddp.py                                           # alone
    hocket run -n 3 --min-ranks 1 examples/elastic_ddp.py --lose 40          # the third is lost
    hocket run -n 3 --max-restarts 3 examples/elastic_ddp.py --lose 40 --all # it is started again, and joins the others

`--lose 40` has the last rank kill itself in step 40, so that there is something to see; any rank may be killed at any
time, in whatever way. `--all` has the last step wait for those that are missing. A step learns from the same images
however many ranks share them: so the result is what it would have been. Needs torch and scikit-learn.
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hocket.torch

BATCH = 240


def load():
    """1797 images of 8 x 8 pixels in a fixed random order: 1440 to learn from, the rest to be tested on."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images, labels = torch.tensor(digits.data).float()[order] / 16, torch.tensor(digits.target)[order]
    return (images[:1440], labels[:1440]), (images[1440:], labels[1440:])


def loss(network, data, step):
    """That of a step's images, of which each rank has a part; DDP takes the mean over the ranks."""
    images, labels = data
    epoch, start = divmod(step * BATCH, len(labels))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))[start : start + BATCH]
    mine = order[dist.get_rank() :: dist.get_world_size()]
    sum_of_mine = nn.functional.cross_entropy(network(images[mine]), labels[mine], reduction="sum")
    return sum_of_mine * dist.get_world_size() / BATCH


def caught_up(model, optimizer, step):
    """The step that the furthest rank is at, whose state all have then: what failed on some may have ended well on
    others."""
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    state = [model.state_dict(), optimizer.state_dict()]
    dist.broadcast_object_list(state, src=steps.index(max(steps)))
    model.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    return max(steps)


def train(model, optimizer, data, steps, lose, size):
    """Every step once, whoever is lost meanwhile, and whoever comes; the last one by `size` ranks at least."""
    step = 0
    while step < steps:
        try:
            step = caught_up(model, optimizer, step)
            network = DistributedDataParallel(model)
            while step < steps:
                least = size if step == steps - 1 else 0
                if dist.get_world_size() < least or hocket.torch.pending():
                    hocket.torch.grow(least)
                    say(f"step {step}: others have come")
                    break
                optimizer.zero_grad()
                value = loss(network, data, step)
                if step in lose:
                    lose.remove(step)
                    if dist.get_rank() == dist.get_world_size() - 1 > 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                value.backward()
                optimizer.step()
                step += 1
        except hocket.HocketError:
            lost = hocket.torch.recover().history[-1]
            say(f"step {step}: lost {', '.join(lost.names)}")


def say(what):
    if dist.get_rank() == 0:
        print(f"{what}; ranks: {dist.get_world_size()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--lose", type=int, nargs="*", default=[], metavar="STEP", help="where the last rank dies")
    parser.add_argument("--all", action="store_true", help="the last step waits for as many ranks as began")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}.items():
        os.environ.setdefault(name, str(value))

    hocket.torch.init()
    lose = [] if int(os.environ.get("HOCKET_RESTARTS", 0)) else arguments.lose
    torch.manual_seed(0)
    data, (images, labels) = load()
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, data, arguments.steps, lose, arguments.all * int(os.environ["WORLD_SIZE"]))

    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, weights)
    if dist.get_rank() == 0:
        accuracy = (model(images).argmax(1) == labels).float().mean()
        same = "bit-identical" if all(torch.equal(theirs, weights) for theirs in everyones) else "DIFFERENT"
        print(f"test accuracy           {accuracy:.1%} of {len(labels)} images not seen before")
        print(f"weights of all ranks    {same}, ranks: {dist.get_world_size()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
