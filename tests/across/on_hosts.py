"""What the ranks of these tests run, each in a process on some host: `python on_hosts.py NAME`, place in the variables.

What a rank says is one line of JSON; an error of hocket's is its kind and text, any other a traceback and code 1.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import hocket
from hocket.plans.algorithms import names


def data(rank: int, count: int) -> np.ndarray:
    """Exact in float64 whatever is summed."""
    return (np.arange(count) * 7 + rank * 3) % 1009.0


def collectives(group: hocket.Group) -> None:
    """All of them, short and long, against NumPy."""
    rank, n = group.rank, group.size
    for count in (1, 3, 1000, 70_001, 1_000_003):
        every = [data(r, count) for r in range(n)]
        total, x = np.sum(every, axis=0), every[rank]
        arena = group.empty(count, "float64")
        arena[:] = x
        for given in (x.copy(), arena):
            same(group.all_reduce(given), total)
            same(given, x)
            same(group.all_reduce(given, op=np.maximum), np.max(every, axis=0))
            same(group.all_reduce(given, out=given), total)
        for algorithm in names("all_reduce"):
            same(group.all_reduce(x, algorithm=algorithm, order="any"), total)
        for root in {0, n - 1}:
            same(group.broadcast(x if rank == root else None, root=root), every[root])
            got, gathered = group.reduce(x, root=root), group.gather(x, root=root)
            if rank == root:
                same(got, total)
                same(gathered, np.concatenate(every))
        same(group.all_gather(x), np.concatenate(every))
        block = np.concatenate([x + r for r in range(n)])
        same(group.all_to_all(block), np.concatenate([each + rank for each in every]))
        same(group.reduce_scatter(block), total + n * rank)
        same(group.all_to_all(block, algorithm="bruck"), np.concatenate([each + rank for each in every]))
        works = [group.all_reduce(x + i, async_op=True) for i in range(5)]
        for i in reversed(range(5)):
            same(works[i].wait(), total + n * i)
        after, before = (rank + 1) % n, (rank - 1) % n
        sent = group.send(x, after, tag=5, async_op=True)
        same(group.recv(before, tag=5), every[before])
        sent.wait()
        group.barrier()
    again = group.all_reduce_init(np.full(9, rank + 1.0))
    for _ in range(5):
        same(again(), np.full(9, n * (n + 1) / 2))


def falls_back(group: hocket.Group) -> None:
    """Calls and messages, in place and not, until the first way to somebody has broken, and for a while after."""
    rank, n = group.rank, group.size
    left, turn = 40, 0
    while left:
        every = [data(r, 1 + (turn * 7919) % 300_000) + turn for r in range(n)]
        x, total = every[rank].copy(), np.sum(every, axis=0)
        same(group.all_reduce(x), total)
        same(group.all_reduce(x, out=x), total)
        sent = group.send(every[rank], (rank + 1) % n, tag=3, async_op=True)
        same(group.recv((rank - 1) % n, tag=3), every[(rank - 1) % n])
        sent.wait()
        fallen = group.all_reduce(float("fallback" in group.transports))
        left -= bool(fallen)
        turn += 1
        if turn == 5 and rank == 0:
            say({"pid": os.getpid()})
    lost = [peer.fallbacks for peer in group.metrics().peers]
    assert lost == [int(name == "fallback") for name in group.transports], lost
    say({"by": group.transports})


def hierarchical(group: hocket.Group) -> None:
    """What knows where the ranks lie, and every root; in place, and with what is too long for one segment."""
    rank, n = group.rank, group.size
    for count in (1, 1000, 70_001, 600_000):
        every = [data(r, count) for r in range(n)]
        total, x = np.sum(every, axis=0), every[rank]
        for root in range(n):
            same(group.broadcast(x if rank == root else None, root=root, algorithm="hierarchical"), every[root])
            got = group.reduce(x, root=root, algorithm="hierarchical_chain")
            if rank == root:
                same(got, total)
        same(group.all_gather(x, algorithm="hierarchical"), np.concatenate(every))
        block = np.concatenate([x + r for r in range(n)])
        same(group.reduce_scatter(block, algorithm="hierarchical", order="any"), total + n * rank)
        for algorithm in ("hierarchical", "hierarchical_chain"):
            own = x.copy()
            same(group.all_reduce(own, out=own, algorithm=algorithm), total)
            same(own, total)
            same(group.all_reduce(x, op="mean", algorithm=algorithm), total / n)
            if algorithm == "hierarchical_chain" and is_in_blocks():
                same(group.all_reduce(x, op=lambda a, b, out: np.copyto(out, a), algorithm=algorithm), every[0])
                same(group.all_reduce(x, op=lambda a, b, out: np.copyto(out, b), algorithm=algorithm), every[-1])
        works = [group.all_reduce(x + i, algorithm="hierarchical_chain", async_op=True) for i in range(3)]
        for i in reversed(range(3)):
            same(works[i].wait(), total + n * i)
        group.barrier()


def is_in_blocks() -> bool:
    """Whether each host's ranks are neighbours: else the chain is none for operators that do not commute."""
    return list(os.environ["LAYOUT"]) == sorted(os.environ["LAYOUT"])


def bits(group: hocket.Group) -> None:
    """However long the vector and wherever the ranks lie, they are those of a sum from the first rank to the last."""
    for count in (7, 50_000, 200_003, 1_500_000):
        every = [np.random.default_rng(r).standard_normal(count).astype(np.float32) for r in range(group.size)]
        total = every[0].copy()
        for x in every[1:]:
            total += x
        same(group.all_reduce(every[group.rank]), total)
        for kind in (np.float16, ml_dtypes.bfloat16):  # summed in float32, and rounded once
            short = [x.astype(kind) for x in every]
            total = short[0].astype(np.float32)
            for x in short[1:]:
                total += x.astype(np.float32)
            same(group.all_reduce(short[group.rank]), total.astype(kind))


def wire(group: hocket.Group) -> None:
    """How many bytes this rank's host sends in one all-reduce of 32 MiB by each algorithm."""
    x, sent = np.ones(1 << 23, np.float32), {}
    for algorithm in ("two_shot", "hierarchical", "hierarchical_chain"):
        group.all_reduce(x, algorithm=algorithm)
        group.barrier()
        before = transmitted()
        group.barrier()
        group.all_reduce(x, algorithm=algorithm)
        group.barrier()
        sent[algorithm] = (transmitted() - before) / x.nbytes
        group.barrier()
    say({"sent": sent})


def transmitted() -> int:
    """Bytes that have left this host."""
    (row,) = (line.split() for line in Path("/proc/net/dev").read_text().splitlines() if "eth0:" in line)
    return int(row[9])


def subgroups(group: hocket.Group) -> None:
    """Within a host and across, of some ranks and of all; then all at once."""
    for turn in range(3):
        for color in (group.rank % 2, group.rank // 2, 0, None if group.rank else 1):
            part = group.split(color, -group.rank)
            if part is None:
                continue
            with part:
                size = part.size
                ranks = part.all_gather(np.array([group.rank])).tolist()
                assert ranks == sorted(ranks, reverse=True)
                same(part.all_reduce(np.full(50_000, group.rank + turn)), np.full(50_000, sum(ranks) + turn * size))


def both_ways(group: hocket.Group) -> None:
    """Everybody sends all others more than any buffer holds before it receives anything, and a collective beside it."""
    count = 4_000_000
    others = [r for r in range(group.size) if r != group.rank]
    sends = [group.send(data(group.rank, count), r, async_op=True) for r in others]
    total = group.all_reduce(data(group.rank, 300_000), async_op=True)
    for r in others:
        same(group.recv(r), data(r, count))
    for send in sends:
        send.wait()
    same(total.wait(), np.sum([data(r, 300_000) for r in range(group.size)], axis=0))


def lossy(group: hocket.Group) -> None:
    """Short calls, so many that some of their packets are lost, long ones, and messages."""
    for turn in range(100):
        assert group.all_reduce(group.rank + turn) == turn * group.size + sum(range(group.size))
    for count in (1000, 100_000):
        every = [data(rank, count) for rank in range(group.size)]
        same(group.all_reduce(every[group.rank]), np.sum(every, axis=0))
        sent = group.send(every[group.rank], (group.rank + 1) % group.size, async_op=True)
        same(group.recv((group.rank - 1) % group.size), every[group.rank - 1])
        sent.wait()


def narrow(group: hocket.Group) -> None:
    """A message, which goes one way only, and a call, of which one frame takes longer than links may be silent."""
    count = int(os.environ["COUNT"])
    if group.rank == 0:
        group.send(data(0, count // 8), 1)
    else:
        same(group.recv(0), data(0, count // 8))
    every = [data(rank, count) for rank in range(2)]
    same(group.all_reduce(every[group.rank], algorithm="one_shot"), every[0] + every[1])


def last_word(group: hocket.Group) -> None:
    """What rank 0 sends last. It leaves when its kernel has it, or its memory."""
    count = int(os.environ["COUNT"])
    x = data(0, count) if group.rank == 0 else np.empty(count)
    same(group.broadcast(x), data(0, count))


def at_once(group: hocket.Group) -> None:
    """Each of two ranks sends more than any buffer holds, and only then does either of them receive."""
    count = int(os.environ["MIB"]) << 18
    mine, theirs = (np.arange(rank, rank + count, dtype=np.uint32) for rank in (group.rank, 1 - group.rank))
    sent, got = group.send(mine, 1 - group.rank, async_op=True), np.empty_like(mine)
    group.barrier()
    group.recv(1 - group.rank, out=got)
    sent.wait()
    assert np.array_equal(got, theirs)


def slow_reader(group: hocket.Group) -> None:
    """Rank 2 reads nothing of what is sent to it, for longer than links may be silent, and until the others have spoken
    of a lot beside it. Nobody's memory grows by what waits."""
    count, done, other = 3 << 20, Path(os.environ["DONE"]), 1 - group.rank

    def speak(turns: int) -> None:
        for turn in range(turns):
            sent = group.send(data(group.rank, 50_000 + turn), other, tag=1, async_op=True)
            same(group.recv(other, tag=1), data(other, 50_000 + turn))
            sent.wait()

    if group.rank != 2:
        speak(3)  # what that takes does not count
    sends = [group.send(data(group.rank, count), 2, async_op=True)] if group.rank != 2 else []
    before = resident()
    if group.rank == 2:
        end = time.monotonic() + 3
        while time.monotonic() < end or not done.exists():
            sum(range(10_000))
    else:
        speak(100)
        if group.rank == 0:
            done.touch()
        assert not any(send.done() for send in sends)
    grown = resident() - before
    assert grown < 4 << 20, f"{grown} bytes more, of {count * 8} that wait"
    if group.rank == 2:
        for rank in range(2):
            same(group.recv(rank), data(rank, count))
    for send in sends:
        send.wait()
    group.barrier()


def resident() -> int:
    """Bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def unclaimed(group: hocket.Group) -> None:
    """Messages that nobody asks for do not stand in the way of collectives."""
    if group.rank == 0:
        sends = [group.send(np.arange(300_000), group.size - 1, tag=tag, async_op=True) for tag in range(4)]
    for _ in range(20):
        assert group.all_reduce(1) == group.size
        same(group.all_reduce(np.ones(500_000)), np.full(500_000, float(group.size)))
    if group.rank == group.size - 1:
        for tag in reversed(range(4)):
            same(group.recv(0, tag=tag), np.arange(300_000))
    elif group.rank == 0:
        for send in sends:
            send.wait()
    group.barrier()


def busy(group: hocket.Group) -> None:
    """A rank that computes for longer than links may be silent, and holds Python's lock, is not suspected."""
    if group.rank == group.size - 1:
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            sum(range(100_000))
    assert group.all_reduce(1, timeout=20) == group.size


def cut_off(group: hocket.Group) -> None:
    """Rank 0 computes, and looks at its sockets alone, until one is no more connected, and then for longer than links
    may be silent; rank 1 only waits."""
    say({"pid": os.getpid()})
    if group.rank == 0:
        begin, connected = time.monotonic(), bytes([1])
        sockets = group._links.all(1)
        while all(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == connected for sock in sockets):
            sum(range(10_000))
        end = time.monotonic() + 1.2
        say({"took": end - 1.2 - begin})
        while time.monotonic() < end:
            sum(range(10_000))
    group.recv(1 - group.rank, timeout=15)


def again(group: hocket.Group) -> None:
    """Groups come and go at one address."""
    place = {"rank": group.rank, "size": group.size}
    address = os.environ["HOCKET_RENDEZVOUS"]
    for turn in range(4):
        group.close()
        group = hocket.init(rendezvous=address, secret=os.environ["HOCKET_SECRET"], **place)
        assert group.all_reduce(turn) == turn * group.size
    group.close()


def places(group: hocket.Group) -> None:
    """Where this rank is, and how many hosts there are."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    hosts = group.all_gather(np.frombuffer(os.uname().nodename.encode().ljust(64), np.uint8)[None])
    say({"place": [int(os.environ[name]) for name in names], "hosts": len({row.tobytes() for row in hosts})})


def marked(group: hocket.Group) -> None:
    """What lies in these arrays, and in this message, is seen by whoever can read what goes between the hosts."""
    mark = np.frombuffer(b"not for others!!" * 4000, np.uint8)
    same(group.broadcast(mark if group.rank == 0 else None), mark)
    if group.rank == 0:
        group.send(mark, 1)
    if group.rank == 1:
        same(group.recv(0), mark)
    same(group.split(0, -group.rank).all_gather(mark), np.tile(mark, group.size))


def endless(group: hocket.Group) -> None:
    """Calls until one fails."""
    x = np.ones(int(os.environ.get("COUNT", "1000")))
    if "FORKED" in os.environ and group.rank and os.fork() == 0:
        os.closerange(0, 3)  # or who reads our output would wait for this one's
        time.sleep(20)
        os._exit(0)
    say({"pid": os.getpid()})
    while True:
        group.all_reduce(x, timeout=30)


def recovers(group: hocket.Group) -> None:
    """Calls until one fails; then with those that are left, if they may go on."""
    say({"pid": os.getpid()})
    me, x = group.rank, np.ones(1000)
    try:
        while True:
            group.all_reduce(x)
    except hocket.HocketError as error:
        verdict = [type(error).__name__, str(error), list(error.lost), error.completed, error.settled]
    if "GO_ON" in os.environ:
        say({"lost": verdict[2]})
        while not Path(os.environ["GO_ON"]).exists():
            time.sleep(0.005)
        if group.rank == group.size - 1:
            tell_of_tries()
    try:
        left = group.recover(allow_minority="MINORITY" in os.environ)
    except hocket.HocketError as error:
        say({"verdict": verdict, "refused": str(error)})
        return
    members = left.all_gather(me).tolist()
    for count in (3, 100_001):
        same(left.all_reduce(data(me, count)), np.sum([data(r, count) for r in members], axis=0))
    say({"verdict": verdict, "members": members, "rank": left.rank, "history": [loss.ranks for loss in left.history]})
    left.close()


def same(got: Any, expected: Any) -> None:
    assert np.asarray(got).dtype == np.asarray(expected).dtype or np.ndim(expected) == 0
    np.testing.assert_array_equal(got, expected)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def tell_of_tries() -> None:
    """Say when this rank has tried five times to reach somebody, or to find the way there."""
    tried = itertools.count(1)

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect" and isinstance(args[1], tuple) and next(tried) == 5:
            say({"tried": 5})

    sys.addaudithook(heard)


def place() -> dict[str, Any]:
    """What is told to `init`, where the variables do not tell it all."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if "PEERS" in os.environ:
        return {"rank": rank, "peers": [urls.split() for urls in os.environ["PEERS"].split(",")]}
    if "STORE" in os.environ:
        from torch.distributed import TCPStore

        store = TCPStore(os.environ["STORE"], 4699, size, is_master=rank == 0)
        return {"rank": rank, "size": size, "rendezvous": store}
    return {}


def main() -> None:
    begin = time.monotonic()
    if os.environ.get("TRIES") == os.environ["RANK"]:
        tell_of_tries()
    try:
        with hocket.init(float(os.environ.get("SECONDS", "20")), **place()) as group:
            begin = time.monotonic()
            globals()[sys.argv[1]](group)
    except hocket.HocketError as error:
        say(
            {
                "error": type(error).__name__,
                "text": str(error),
                "at": time.monotonic(),
                "took": time.monotonic() - begin,
            }
        )
    else:
        say({"good": True})


if __name__ == "__main__":
    main()
