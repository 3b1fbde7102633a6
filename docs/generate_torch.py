"""Writes docs/torch.md. Its table of what is supported is read from the tests: `python docs/generate_torch.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "torch.md"
TESTS = sorted((ROOT / "tests" / "torch_backend").glob("test_*.py"))

HEAD = """\
# hocket for torch.distributed

<!-- Written by docs/generate_torch.py; its table comes from the tests. Change those, not this. -->

On the CPUs of one host, `hocket` takes the place of `gloo`. What a program calls stays what it is:

```diff
+ import hocket.torch
- torch.distributed.init_process_group("gloo")
+ torch.distributed.init_process_group("hocket")
```

The import registers the backend. From torch 2.14 on torch finds it without. It needs torch 2.13 or newer
(`pip install 'hocket[torch]'`), no compiler, and no particular build of torch: it is written in Python before hocket's
own core. The tests run with torch 2.13.0. Start the program as before, with `torchrun --standalone`, or with
`hocket run`.
[examples/train_ddp.py](../examples/train_ddp.py) trains over either backend, by `--backend`.
`hocket bench all_reduce barrier ddp fsdp2 --api torch --vs gloo` measures both on your machine.

## What differs from gloo

- **Where the ranks are.** On one host, or on several where all ranks have one `HOCKET_SECRET` in their environment and
  `MASTER_ADDR` is an address of the first ([across hosts](hosts.md)). Without a secret a rank on another host raises
  RendezvousError, which says so.
- **A call that differs between ranks** (in shape, dtype, operator or root, or another call altogether) raises
  `MismatchError` on every rank. Its text holds both calls, and the line of the program of each rank. Gloo hangs, ends
  the process, or gives wrong numbers.
- **A rank that dies, or ends with an exception,** makes the others raise `PeerLost`, which names it and its exception,
  at once. They need not wait for a deadline.
- **After such an error the group is broken**: later calls raise `GroupBroken`, which carries the first error. All of
  hocket's errors are `RuntimeError`s.
- **The deadline** is torch's: the `timeout` of `init_process_group` and `new_group`, 30 minutes unless you say.
- **Results have the same bits on every rank and in every run**, whatever the sizes of the tensors.
- **`AVG`** exists for all numbers. Of integers it truncates toward zero. Sums of integers wrap around.
- **`bool`** is logical: `SUM` and `MAX` are "or", `PRODUCT` and `MIN` are "and". `AVG` of it is refused.
- **`PREMUL_SUM`** exists: `torch.distributed._make_nccl_premul_sum(factor)`.
- **Uneven** `all_to_all`, `all_gather`, `reduce_scatter` and `scatter` of lists work. In an all-to-all every rank sees
  all sizes, and that senders and receivers agree on them.
- **Sparse tensors** (`sparse_coo`) are summed by `all_reduce`, as over gloo; complex ones, too. All ranks get the same
  bits.
- **With HOCKET_PROTECT=1 a call that fails leaves its tensors as they were**, for the price of a copy of the result.
- **Tensors need not be contiguous.** What is written is written in place, without counting up autograd's version.
- **Messages** (`send`, `recv`) carry their dtype and number of elements: a receiver that expects others raises
  `MismatchError`.

- **The texts of timeouts** hold "timed out" as gloo's do, and then who did not come.
- **Profiles** have an event for each call, as gloo's: `hocket:all_reduce`, with the shapes of its inputs where the call
  is not asynchronous.

## When a rank is lost

The others go on, in the same processes and without it:

```python
while step < steps:
    try:
        step = caught_up(model, optimizer, step)  # from the rank that is furthest: one broadcast
        network = DistributedDataParallel(model)
        while step < steps:
            ...  # as ever
    except hocket.HocketError:
        hocket.torch.recover()
```

`hocket.torch.recover()` is called by all that are left: it forms hocket's group anew ([when something
fails](failures.md)), ends torch's groups without waiting for what is in flight in them, and begins `torch.distributed`
again over the new one. Ranks are renumbered; backend and timeout stay. Nothing of a lost rank is needed: the store in
which groups made later meet is a new TCPStore of the new rank 0, at one address of its host, and at loopback where all
ranks are on one. Wrappers of DDP let go of their parameters; subgroups and meshes are to be made anew.
`torch.distributed.group.WORLD.history` tells who was lost, and why.
It is for models that every rank has whole: of what is sharded (FSDP, tensor parallel), a lost rank's part is lost.
Of launchers, `torchrun` ends all ranks when one dies, and so does `hocket run` without `--min-ranks` or
`--max-restarts`; ranks that are started one by one go on.

Others come, new ones or those that were started again:

```python
hocket.torch.init()  # init_process_group("hocket"); who was started again by `hocket run` joins the others
...
if hocket.torch.pending():  # the same number on all ranks
    hocket.torch.grow()  # as recover(), but with those that wait, which get the ranks behind the present ones
```

`hocket.torch.join()` begins `torch.distributed` in a process that comes later: where the launcher's variables or
`HOCKET_RENDEZVOUS` say, and with the job's `HOCKET_SECRET` ([the details](failures.md#others-come)). Backend and
timeout are those of the others; the weights it gets from them, as who recovers does. `grow()` recovers first where an
error has ended the group, and `grow(4)` waits until there are four ranks.

[examples/elastic_ddp.py](../examples/elastic_ddp.py) loses a rank, takes it in again when it has been started anew, and
ends with what it would have learnt undisturbed:

```sh
hocket run -n 3 --max-restarts 3 examples/elastic_ddp.py --lose 40 --all
```

## Members that the program names

Torch 2.14 has an interface for those that keep the book of who belongs to a job themselves, as torchft does; it is
experimental there:

```python
dist.init_process_group("hocket", enable_reconfigure=True)  # meets nobody yet; calls raise until there are members
uuid, handles = exchanged(dist._get_reconfigure_handle())  # however the program does that
dist._reconfigure(uuid=uuid, handles=handles).wait()  # ranks in the order of the handles; of a set, in any
```

Fewer, more, other members, two groups that were apart, one alone: each `_reconfigure` leaves the group that there was,
whatever is in flight in it, and forms another one. Rank and size are what they are in that. A handle is where this
process listens for the others, sealed with the job's secret: good for one `_reconfigure`, after which there is a new
one. No store is asked. Who has given its handle and does not come is named by the Work's error, at once where it has
died, else at the deadline; `abort()` leaves the group and keeps all that another one needs, and `get_error()` tells of
what kind the error was. It is for a group of hocket alone, not for one of several backends. The tests call it through
torch where that has it; they have passed with torch 2.14.1.

Torch's `shrink_group` is for backends that can do it, of which NCCL is the only one in torch, and hocket none.

## Beside a backend for GPUs

```python
torch.distributed.init_process_group("cpu:hocket,cuda:nccl")
```

What lies on the CPU goes through hocket, what is on the GPU through NCCL, in the same calls; so it is with every other
device and its backend. Torch takes a group that is written in Python for the group of all devices, so hocket's makes
torch's group for the others itself, and passes their calls on. `"cuda:hocket"` is a ValueError that says this.
That calls go where they belong is tested with a backend that writes them down, and with gloo in NCCL's place; it has
not run with a GPU yet.

## Asynchronous calls

`async_op=True` gives back a `Work` as ever. The call is made by a thread of the group, or by whoever waits for it.
`wait` raises the call's error.

`get_future()` of a collective waits for it: the future is done, and its callbacks run at once, in the caller. So they
come at the same place of the program on every rank. A callback may make calls itself, as that of DDP's PowerSGD hook
does; over gloo, several buckets of PowerSGD mix up their messages, and the process aborts. The price is that DDP does
not communicate behind the back of the backward pass. Where ranks keep all cores busy there is no behind.

The calls of one group are made in the order of the program, on every rank the same. A thread that communicates beside
the main one (as `async_save` of a checkpoint does) needs a group of its own: `process_group=dist.new_group()`.

## What is supported

Each line is a test, which trains or computes something at 2, 3 and 4 ranks where nothing else is said, and compares it
with gloo, with a single process, or with the definition.

{table}

## Torch's own tests

Torch's tests of a backend are in its wheel, for backends whose names they list. With hocket in gloo's place, over three
ranks and torch 2.13.0, without a GPU:

```sh
pip install expecttest
python tests/torch_backend/torchs_own.py hocket     # and gloo
```

| backend | run | pass | skipped by torch | fail |
|---|---|---|---|---|
| hocket | 285 | 86 | 195 | 4 |
| gloo | 285 | 90 | 195 | 0 |

The four ask for gloo by its name: `test_get_backend`, and three of `dist.monitored_barrier`, which 2.13 refuses to all
other backends. And many are skipped for a name alone: those of `all_to_all` are for MPI, and those of `all_gather` and
`reduce_scatter` of uneven parts, of coalescing, of bool tensors and of batched sends to oneself for NCCL. `--lift` runs
these too, over four ranks and for both backends alike: who asks for the name is told "gloo", and what is about CUDA
tensors gets tensors of the CPU. What then still wants a GPU is skipped, and so is what torch itself skips for an issue
of its own.

```sh
python tests/torch_backend/torchs_own.py hocket --lift     # and gloo
```

| backend | run | pass | skipped | fail |
|---|---|---|---|---|
| hocket | 285 | 164 | 121 | 0 |
| gloo | 285 | 151 | 121 | 13 |

Gloo fails in all eight tests of `all_to_all` of lists, in two of batched sends to oneself, and in three of `all_gather`
and `reduce_scatter` of tensors of other shapes.

## What is not, and why

- **Sparse tensors** elsewhere than in `all_reduce`, with other operators than `SUM`, or compressed (`sparse_csr`): give
  `tensor.to_dense()`.
- **`dist.monitored_barrier`** on torch 2.13, which asks for gloo by name. `group.monitored_barrier(timeout)` is there,
  and torch 2.14's `dist.monitored_barrier` calls it.
- **`dist.split_group`** wants an accelerator, whatever the backend.
- **Shard to Shard of a DTensor** never uses `all_to_all` on a CPU mesh, whatever the backend; torch gathers instead.
- **Tensors on other devices** than the CPU, without a backend for these beside hocket.
- **DDP's `mixed_precision` and its bfloat16 hooks** want CUDA, whatever the backend.
"""


def features() -> Iterator[tuple[str, str, str]]:
    """Area, feature and test of each mark, in the order of the files."""
    for path in TESTS:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.feature":
                        area, feature = (ast.literal_eval(argument) for argument in call.args)
                        yield area, feature, f"[{path.stem}](../tests/torch_backend/{path.name})::{node.name}"


def page() -> str:
    """The text of docs/torch.md."""
    rows: dict[str, list[str]] = {}
    for area, feature, test in features():
        rows.setdefault(area, []).append(f"| {area} | {feature} | {test} |")
    table = ["| | what | test |", "|---|---|---|", *(row for area in rows.values() for row in area)]
    return HEAD.replace("{table}", "\n".join(table))


if __name__ == "__main__":
    PAGE.write_text(page())
