"""torch.distributed over hocket and over gloo, in one run: the same processes take turns with the two.

    python benchmarks/torch_vs_gloo.py                    # 2 and 4 ranks, all cases
    python benchmarks/torch_vs_gloo.py -n 2 --only barrier,all_reduce
    python benchmarks/torch_vs_gloo.py --json times.jsonl

Every time is that of one call or step on rank 0: the best of several rounds, and their median, in microseconds. Rounds
of the two backends alternate, so that both see the same company on the machine.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hocket
import hocket.torch

BACKENDS = ("hocket", "gloo")
ROUND = 0.05  # seconds of one round
CASES = ("all_reduce", "barrier", "all_gather", "reduce_scatter", "ddp", "fsdp2")

Step = Callable[[], Any]


def small_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(20)))


def training_step(network: nn.Module, *shape: int) -> Step:
    optimizer, data = torch.optim.SGD(network.parameters(), lr=1e-3), torch.randn(*shape)

    def step() -> None:
        optimizer.zero_grad()
        network(data).square().mean().backward()
        optimizer.step()

    return step


def transformer(group: Any) -> Step:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True) for _ in range(4)]
    network, mesh = nn.Sequential(*layers), DeviceMesh.from_group(group, "cpu")
    for layer in network:
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return training_step(network, 4, 16, 128)


def cases(wanted: list[str], size: int, groups: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Step]]]:
    """Name, bytes, and by backend what one measurement repeats."""

    def each(make: Callable[[Any], Step]) -> dict[str, Step]:
        return {backend: make(group) for backend, group in groups.items()}

    if "all_reduce" in wanted:
        for nbytes in (4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20):
            tensor = torch.zeros(nbytes // 4)
            yield "all_reduce", nbytes, each(lambda group, t=tensor: lambda: dist.all_reduce(t, group=group))
    if "barrier" in wanted:
        yield "barrier", 0, each(lambda group: lambda: dist.barrier(group))
    for nbytes in (1 << 10, 64 << 10, 1 << 20):
        part, whole = torch.zeros(nbytes // 4), torch.zeros(size * nbytes // 4)
        if "all_gather" in wanted:
            make = lambda group, p=part, w=whole: lambda: dist.all_gather_into_tensor(w, p, group=group)  # noqa: E731
            yield "all_gather_into_tensor", nbytes, each(make)
        if "reduce_scatter" in wanted:
            make = lambda group, p=part, w=whole: lambda: dist.reduce_scatter_tensor(p, w, group=group)  # noqa: E731
            yield "reduce_scatter_tensor", nbytes, each(make)
    if "ddp" in wanted:
        steps = each(lambda group: training_step(DistributedDataParallel(small_network(), process_group=group), 8, 32))
        yield "DDP step, 20 small layers", 0, {"alone": training_step(small_network(), 8, 32), **steps}
    if "fsdp2" in wanted:
        yield "FSDP2 step, small transformer", 0, each(transformer)


def repeat(step: Step, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count * 1e6


def agreed(steps: dict[str, Step], group: Any) -> dict[str, int]:
    """How often each is repeated in a round, the same on all ranks."""
    counts = []
    for step in steps.values():
        repeat(step, 3)
        counts.append(max(3, min(20_000, int(ROUND * 1e6 / repeat(step, 5)))))
    together = torch.tensor(counts)
    dist.broadcast(together, 0, group=group)
    return dict(zip(steps, together.tolist(), strict=True))


def measure(wanted: list[str], rounds: int, store: str) -> list[dict[str, Any]]:
    """The results of one rank."""
    torch.set_num_threads(1)
    group = hocket.init()
    rank, size = group.rank, group.size
    timeout = timedelta(seconds=120)
    dist.init_process_group("hocket", store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timeout)
    groups = {"hocket": dist.group.WORLD, "gloo": dist.new_group(backend="gloo", timeout=timeout)}
    found = []
    for name, nbytes, steps in cases(wanted, size, groups):
        counts = agreed(steps, dist.group.WORLD)
        times: dict[str, list[float]] = {who: [] for who in steps}
        for _ in range(rounds):
            for who, step in steps.items():
                dist.barrier()
                repeat(step, 2)
                times[who].append(repeat(step, counts[who]))
        best = {who: min(t) for who, t in times.items()}
        median = {who: statistics.median(t) for who, t in times.items()}
        found.append({"case": name, "bytes": nbytes, "ranks": size, "best_us": best, "median_us": median})
    dist.destroy_process_group()
    group.close()
    atexit.register(os._exit, 0)  # gloo's threads now and then abort a process that ends by itself
    return found


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The table; of DDP it shows what communication adds to a step, too."""
    table = Table("case", "ranks", *(f"{who} {what}" for who in BACKENDS for what in ("best", "median")), "ratio")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        name = f"{row['case']} {row['bytes']:,} B" if row["bytes"] else row["case"]
        best, median = row["best_us"], row["median_us"]
        lines = [(name, best, median)]
        if "alone" in best:
            cost = [{who: t[who] - t["alone"] for who in BACKENDS} for t in (best, median)]
            lines.append((f"  beyond the step alone ({best['alone']:.0f})", *cost))
        for label, low, middle in lines:
            times = [f"{value[who]:,.1f}" for who in BACKENDS for value in (low, middle)]
            table.add_row(label, str(row["ranks"]), *times, f"{middle['gloo'] / middle['hocket']:.1f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--ranks", default="2,4", help="numbers of ranks, with commas between")
    parser.add_argument("--only", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write one line of JSON per case to this file")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size in map(int, arguments.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            wanted = arguments.only.split(",")
            rows += hocket.spawn(measure, size, (wanted, arguments.rounds, f"{folder}/store"), timeout=None)[0]
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    show(rows, Console(width=130))


if __name__ == "__main__":
    main()
