"""The model of hocket.tuning.simulate once more, event by event: loops over moves, dictionaries, and nothing shared
with it but the values of a cluster's fields and the words of a plan."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import Any

from hocket.plans.plan import REDUCE, Plan
from hocket.tuning.cluster import Cluster

Link = tuple[Any, ...]


def ticks(seconds: float) -> float:
    return round(seconds * 2**42) / 2**42


class World:
    """A cluster, rank by rank."""

    def __init__(self, cluster: Cluster) -> None:
        self.c = cluster
        self.host = [h for h, size in enumerate(cluster.sizes) for _ in range(size)]
        self.effort, self.path = cache(self._effort), cache(self._path)  # for as long as this one lives
        self.place = [i for size in cluster.sizes for i in range(size)]

    def _effort(self, rank: int) -> float:
        size, times = self.c.sizes[self.host[rank]], 1.0
        if self.c.cores:
            times = max(1.0, size / self.c.cores)
        for what, which, factor in self.c.slow:
            times *= factor if (what, which) == ("rank", rank) else 1
        return times

    def slow(self, host: int) -> float:
        return math.prod(factor for what, which, factor in self.c.slow if (what, which) == ("host", host))

    def _path(self, src: int, dst: int) -> tuple[float, list[Link]]:
        c, a, b = self.c, self.host[src], self.host[dst]
        if a == b:
            return c.costs.local, [("shm", dst), ("memory", a)]
        if c.kind == "torus":
            links = self.walk(a, b)
            return c.costs.alpha + (len(links) - 1) * c.costs.hop, links
        ends = (src, dst) if c.nics == "rank" else (a, b)
        links: list[Link] = [("out", ends[0]), ("in", ends[1])]
        if c.kind == "wan":
            one, other = (h // (c.hosts // c.sites) for h in (a, b))
            far = c.distances[one][other] if one != other else 0.0
            return c.costs.alpha + far, links + [("site", one, other)] * (one != other)
        switch = {
            "flat": (0, 0),
            "fat-tree": (a // c.leaf, b // c.leaf),
            "rail": (self.place[src], self.place[dst]),
        }[c.kind]
        if switch[0] == switch[1]:
            return c.costs.alpha, links
        return c.costs.alpha + 2 * c.costs.hop, [*links, ("up", switch[0]), ("down", switch[1])]

    def coordinates(self, host: int) -> list[int]:
        found = []
        for side in reversed(self.c.sides):
            host, x = divmod(host, side)
            found.insert(0, x)
        return found

    def walk(self, a: int, b: int) -> list[Link]:
        at, to, links = self.coordinates(a), self.coordinates(b), list[Link]()
        for k, side in enumerate(self.c.sides):
            way = 1 if (to[k] - at[k]) % side <= (at[k] - to[k]) % side else -1
            while at[k] != to[k]:
                links.append(("side", tuple(at), k, way))
                at[k] = (at[k] + way) % side
        return links

    def alone(self, link: Link, nbytes: float) -> float:
        c = self.c
        if link[0] == "shm":
            seconds, below = 0.0, 0.0
            for limit, rate in c.costs.shm:
                seconds += max(0.0, min(nbytes, limit) - below) * rate
                below = limit
            return seconds * self.effort(link[1])
        if link[0] == "memory":
            return nbytes * c.costs.memory
        if link[0] in ("out", "in"):
            host = self.host[link[1]] if c.nics == "rank" else link[1]
            return nbytes * (c.costs.nic * self.slow(host))
        if link[0] == "side":
            host = 0
            for x, side in zip(link[1], c.sides, strict=True):
                host = host * side + x
            return nbytes * (c.costs.nic * self.slow(host))
        if link[0] == "site":
            return nbytes * c.rates[link[1]][link[2]]
        if c.kind == "rail":
            below = sum(place == link[1] for place in self.place)
        else:
            hosts = [h for h in range(c.hosts) if h // c.leaf == link[1]]
            below = sum(c.sizes[h] for h in hosts) if c.nics == "rank" else len(hosts)
        return nbytes * (c.oversubscription * c.costs.nic / below)


def by_events(plan: Plan, nbytes: float, cluster: Cluster, segments: int = 1) -> dict[str, Any]:
    """Seconds, parts (latency, bandwidth, processor, reduction), messages of the critical path, and that path."""
    world, n, chunk = World(cluster), plan.size, nbytes / (plan.chunks * segments)
    costs = cluster.costs
    send, receive = ([ticks(cost * world.effort(r)) for r in range(n)] for cost in (costs.send, costs.receive))
    steps = [list(zip(*(column.tolist() for column in front.columns()), strict=True)) for front in plan.fronts()]
    ready, parts, chain = [0.0] * n, [(0.0, 0.0, 0.0, 0.0)] * n, list[list[tuple[int, int]]]([] for _ in range(n))
    sent_chunks = [0] * n
    for time in range(len(steps) + segments - 1):
        size, folded, own = defaultdict[Any, int](int), defaultdict[Any, int](int), [0] * n
        for step in range(max(0, time - segments + 1), min(time, len(steps) - 1) + 1):
            for verb, _, dst, _, _, src, _, count in steps[step]:
                if src == dst:
                    own[dst] += count * (verb == REDUCE)
                else:
                    size[src, step, dst] += count
                    folded[src, step, dst] += count * (verb == REDUCE)
        carried, load = defaultdict[Link, int](int), defaultdict[Link, int](int)
        for (src, _, dst), count in size.items():
            sent_chunks[src] += count
            for link in world.path(src, dst)[1]:
                carried[link] += 1
                load[link] += count
        posted, inbox, outbox = [0] * n, list[list[Any]]([] for _ in range(n)), list[list[Any]]([] for _ in range(n))
        for src, step, dst in sorted(size, key=lambda m: (m[0], m[1], (m[2] - m[0]) % n)):
            posted[src] += 1
            count, (latency, links) = size[src, step, dst], world.path(src, dst)
            transfer = max(
                ticks(world.alone(link, count * chunk) * min(carried[link], load[link] / count)) for link in links
            )
            fold = ticks(costs.reduce * world.effort(dst) * (folded[src, step, dst] * chunk))
            leaves = posted[src] * send[src]
            arrives = ready[src] + leaves + ticks(latency) + transfer
            outbox[src].append((leaves, transfer))
            inbox[dst].append((arrives, src, step, leaves, ticks(latency), transfer, fold))
        after, after_parts, after_chain = list(ready), list(parts), list(chain)
        for r in range(n):
            clock = ready[r] + posted[r] * send[r]
            told, path = (0.0, 0.0, posted[r] * send[r], 0.0), None
            was = r
            for arrives, src, _, leaves, latency, transfer, fold in sorted(inbox[r]):
                if arrives > clock:
                    clock, was, path, told = arrives, src, (src, r), (latency, transfer, leaves, 0.0)
                clock += receive[r] + fold
                told = (told[0], told[1], told[2] + receive[r], told[3] + fold)
            sends = [(ready[r] + leaves + transfer, leaves, transfer) for leaves, transfer in outbox[r]]
            out = max(sends, key=lambda each: each[0], default=(0.0, 0.0, 0.0))
            if out[0] > clock or (path and out[0] == clock):
                clock, was, path, told = out[0], r, None, (0.0, out[2], out[1], 0.0)
            last = ticks(costs.reduce * world.effort(r) * (own[r] * chunk))
            told = (*told[:3], told[3] + last)
            after[r] = clock + last
            after_parts[r] = tuple(x + y for x, y in zip(parts[was], told, strict=True))
            after_chain[r] = chain[was] + [path] * (path is not None)
        ready, parts, chain = after, after_parts, after_chain
    last = ready.index(max(ready))
    return {
        "seconds": ready[last],
        "parts": parts[last],
        "path": chain[last],
        "bytes_per_rank": max(sent_chunks) * chunk,
    }
