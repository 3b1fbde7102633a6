"""Train a small neural network on handwritten digits with PyTorch's DistributedDataParallel.

    torchrun --standalone --nproc-per-node 2 examples/train_ddp.py                      # over hocket
    torchrun --standalone --nproc-per-node 2 examples/train_ddp.py --backend gloo       # over gloo
    hocket run -n 2 examples/train_ddp.py                                               # hocket's own launcher

The backend's name is all that differs. Needs torch and scikit-learn.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hocket.torch  # noqa: F401  # torch 2.14 finds hocket without this line


def load():
    """1797 images of 8 x 8 pixels in a fixed random order: 1440 to learn from, the rest to be tested on."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images, labels = torch.tensor(digits.data).float()[order] / 16, torch.tensor(digits.target)[order]
    return TensorDataset(images[:1440], labels[:1440]), (images[1440:], labels[1440:])


def train(network, data, epochs):
    """Seconds per step, the best of all epochs: the others had company on this machine."""
    sampler = DistributedSampler(data, seed=1)
    batches = DataLoader(data, batch_size=240 // dist.get_world_size(), sampler=sampler)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    best = float("inf")
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        for images, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
        best = min(best, (time.perf_counter() - start) / len(batches))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["hocket", "gloo"], default="hocket")
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}.items():
        os.environ.setdefault(name, str(value))  # hocket run and torchrun set all four

    dist.init_process_group(arguments.backend)
    torch.manual_seed(0)
    data, (images, labels) = load()
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    network = DistributedDataParallel(nn.Sequential(*layers))
    seconds = train(network, data, arguments.epochs)

    weights = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    everyones = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, weights)
    if dist.get_rank() == 0:
        accuracy = (network.module(images).argmax(1) == labels).float().mean()
        same = "bit-identical" if all(torch.equal(theirs, weights) for theirs in everyones) else "DIFFERENT"
        print(f"backend                 {dist.get_backend()}, ranks: {dist.get_world_size()}")
        print(f"test accuracy           {accuracy:.1%} of {len(labels)} images not seen before")
        print(f"weights of all ranks    {same}")
        print(f"time                    {seconds * 1e3:.2f} ms per step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
