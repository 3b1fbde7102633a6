"""The links of a cluster, numbered, and over which of them messages go.

0 .. n-1      shared memory, as rank r reads it          then, by the kind of the cluster:
then H        the memory of host h, for all its ranks    fat-tree  each leaf's way up, and its way down
then P, P     each NIC out, and each NIC in              rail      each rail's way up, and its way down
              (not in a torus, whose links end           torus     from each host along each side, forth and back
              at the hosts themselves)                   wan       from each site to each site
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .cluster import Cluster

Column: TypeAlias = "npt.NDArray[np.int64]"
Times: TypeAlias = "npt.NDArray[np.float64]"
Uses: TypeAlias = "list[tuple[Column, Column]]"  # which messages use which links, in pieces
Walk: TypeAlias = "list[tuple[int, int]]"  # from where to where, hop by hop


class Paths(NamedTuple):
    """Of some messages: seconds before the first byte arrives, and for each use of a link the message and the link."""

    latency: Times
    message: Column
    link: Column


class Links:
    """The links of `cluster`. Raises ValueError in `paths` for ranks between which there is no way left."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        n, hosts, nic = cluster.ranks, cluster.hosts, cluster.costs.nic
        each = [np.full(n, math.nan), np.full(hosts, cluster.costs.memory)]  # shared memory has pieces
        self.host_of = cluster.host_of
        self.first = np.concatenate(([0], np.cumsum(cluster.sizes)))[self.host_of]  # rank of its host
        self.port, self.ports = self._ports()
        self.slow = np.ones(hosts)
        for what, which, factor in cluster.slow:
            if what == "host":
                self.slow[which] *= factor
        at = self.host_of if cluster.nics == "rank" else np.arange(hosts)
        each += [nic * self.slow[at]] * 2 if self.ports else []
        self.fabric = sum(map(len, each))  # the number of the first link between NICs
        self.rate: Times = np.concatenate([*each, self._rates()])

    def _ports(self) -> tuple[Column, int]:
        """The NIC of each rank, -1 where none is left, and how many there are."""
        if self.cluster.kind == "torus":
            return np.zeros(0, np.int64), 0
        gone = [which for what, which, _ in self.cluster.cuts if what == "nic"]
        if self.cluster.nics == "host":
            return np.where(np.isin(self.host_of, gone), -1, self.host_of), self.cluster.hosts
        port = np.arange(self.cluster.ranks)
        for rank in gone:
            others = [r for r in np.flatnonzero(self.host_of == self.host_of[rank]).tolist() if r not in gone]
            port[rank] = min(others, key=lambda r: (r - rank) % len(port), default=-1)
        return port, len(port)

    # ---- what lies between NICs ----

    @cached_property
    def leaf_of(self) -> Column:
        """The switch that a NIC hangs on: of a host in a fat-tree, of a rank on rails."""
        n, c = np.arange(self.ports), self.cluster
        if c.kind == "rail":
            return n - self.first
        return (self.host_of if c.nics == "rank" else n) // c.leaf

    def _rates(self) -> Times:
        c, nic = self.cluster, self.cluster.costs.nic
        if c.kind in ("fat-tree", "rail"):
            return np.tile(c.oversubscription * nic / np.bincount(self.leaf_of), 2)
        if c.kind == "torus":
            return np.repeat(nic * self.slow, 2 * len(c.sides))
        return np.array(c.rates).ravel() if c.kind == "wan" else np.zeros(0)

    def paths(self, src: Column, dst: Column) -> Paths:
        """Those of messages from the ranks `src` to the ranks `dst`, which are others."""
        here, there, costs = self.host_of[src], self.host_of[dst], self.cluster.costs
        n, (near,), (far,) = self.cluster.ranks, np.nonzero(here == there), np.nonzero(here != there)
        latency = np.full(len(src), costs.local)
        uses: Uses = [(near, dst[near]), (near, n + here[near])]
        if len(far):
            hops, more = self._across(src[far], dst[far])
            latency[far] = costs.alpha + hops
            uses += [(far[rows], links) for rows, links in more]
        return Paths(latency, *(np.concatenate(column) for column in zip(*uses, strict=True)))

    def _across(self, src: Column, dst: Column) -> tuple[Times, Uses]:
        """Seconds beyond alpha, and the links."""
        c = self.cluster
        if c.kind == "torus":
            return self._through_torus(self.host_of[src], self.host_of[dst])
        out, in_ = self.port[src], self.port[dst]
        for rank in (*src[out < 0][:1].tolist(), *dst[in_ < 0][:1].tolist()):
            raise ValueError(
                f"rank {rank} cannot be reached from other hosts: its NIC is cut, and no other one is left"
            )
        rows, before = np.arange(len(src)), self.fabric - 2 * self.ports
        uses: Uses = [(rows, before + out), (rows, before + self.ports + in_)]
        more = np.zeros(len(src))
        if c.kind in ("fat-tree", "rail"):
            up, down = self.leaf_of[out], self.leaf_of[in_]
            (rows,) = np.nonzero(up != down)
            uses += [(rows, self.fabric + up[rows]), (rows, self.fabric + self.leaf_of.max() + 1 + down[rows])]
            more[rows] = 2 * c.costs.hop
        if c.kind == "wan":
            each = c.hosts // c.sites
            return _in_groups(
                self.host_of[src] // each, self.host_of[dst] // each, c.sites, self._between_sites, more, uses
            )
        return more, uses

    # ---- sites ----

    def _between_sites(self, a: int, b: int) -> tuple[float, Column]:
        c, gone = self.cluster, {cut[1:] for cut in self.cluster.cuts if cut[0] == "site"}

        def next_to(site: int) -> Iterable[int]:
            is_cut = (other for other in range(c.sites) if (min(site, other), max(site, other)) not in gone)
            return (other for other in is_cut if other != site and c.rates[site][other] < math.inf)

        walk = [] if a == b else _walk(a, b, next_to, "site")
        return sum(c.distances[x][y] for x, y in walk), np.array([self.fabric + x * c.sites + y for x, y in walk], int)

    # ---- a torus ----

    def _through_torus(self, here: Column, there: Column) -> tuple[Times, Uses]:
        """Side by side, each the shorter way round; where a link of that way is cut, the shortest way without any."""
        sides = self.cluster.sides
        at, to = (list(np.unravel_index(hosts, sides)) for hosts in (here, there))
        uses: Uses = []
        hops = np.zeros(len(here))
        for side, length in enumerate(sides):
            forth = (to[side] - at[side]) % length
            back = forth > length - forth
            left = np.where(back, length - forth, forth)
            hops += left
            while len(rows := np.flatnonzero(left)):
                host = np.ravel_multi_index([x[rows] for x in at], sides)
                uses.append((rows, self.fabric + (host * len(sides) + side) * 2 + back[rows]))
                at[side] = at[side].copy()
                at[side][rows] = (at[side][rows] + np.where(back[rows], -1, 1)) % length
                left[rows] -= 1
        gone = self._gone
        if len(gone) and uses:
            message, link = (np.concatenate(column) for column in zip(*uses, strict=True))
            bad = np.zeros(len(here), bool)
            bad[message[np.isin(link, gone)]] = True
            good, (rows,) = ~bad[message], np.nonzero(bad)
            other, around = _in_groups(
                here[rows], there[rows], self.cluster.hosts, self._around, np.zeros(len(rows)), []
            )
            hops[rows] = other
            uses = [(message[good], link[good]), *((rows[which], links) for which, links in around)]
        return (hops - 1) * self.cluster.costs.hop, uses

    @cached_property
    def _gone(self) -> Column:
        """The links that are cut, both ways."""
        cuts = {cut[1:] for cut in self.cluster.cuts if cut[0] == "link"}
        hosts = {host for cut in cuts for host in cut}
        gone = [link for host in hosts for to, link in self._ways(host) if (min(host, to), max(host, to)) in cuts]
        return np.array(sorted(gone), np.int64)

    def _ways(self, host: int) -> list[tuple[int, int]]:
        """The neighbours of a host, and the links to them."""
        sides = self.cluster.sides
        at, found = np.unravel_index(host, sides), list[tuple[int, int]]()
        for side, length in enumerate(sides):
            for back, step in enumerate((1, -1)):
                to = [int(x) for x in at]
                to[side] = (to[side] + step) % length
                if to[side] != at[side]:
                    link = self.fabric + (host * len(sides) + side) * 2 + back
                    found.append((int(np.ravel_multi_index(to, sides)), link))
        return found

    def _around(self, a: int, b: int) -> tuple[float, Column]:
        gone = set(self._gone.tolist())
        walk = _walk(a, b, lambda host: (to for to, link in self._ways(host) if link not in gone), "host")
        return float(len(walk)), np.array([dict(reversed(self._ways(x)))[y] for x, y in walk])

    # ---- words ----

    def name(self, link: int) -> str:
        """Such as "NIC of host 3, out"."""
        c, n = self.cluster, self.cluster.ranks
        if link < n:
            return f"shared memory, rank {link}"
        if link < n + c.hosts:
            return f"memory of host {link - n}"
        if link < self.fabric:
            way, port = divmod(link - n - c.hosts, self.ports)
            return f"NIC of {c.nics} {port}, {('out', 'in')[way]}"
        link -= self.fabric
        if c.kind == "wan":
            return "site {} to site {}".format(*divmod(link, c.sites))
        if c.kind == "torus":
            host, side = divmod(link // 2, len(c.sides))
            return f"link of host {host}, side {side} {('forth', 'back')[link % 2]}"
        way, leaf = divmod(link, len(self.rate[self.fabric :]) // 2)
        return f"{'rail' if c.kind == 'rail' else 'leaf'} {leaf}, {('up', 'down')[way]}"


def _in_groups(
    here: Column, there: Column, size: int, way: Callable[[int, int], tuple[float, Column]], cost: Times, uses: Uses
) -> tuple[Times, Uses]:
    """What `way` says of each pair that occurs, for all messages of that pair."""
    pairs, which = np.unique(here * size + there, return_inverse=True)
    for number, pair in enumerate(pairs.tolist()):
        (rows,) = np.nonzero(which == number)
        seconds, links = way(*divmod(pair, size))
        cost[rows] += seconds
        uses = [*uses, (np.tile(rows, len(links)), np.repeat(links, len(rows)))]
    return cost, uses


def _walk(a: int, b: int, next_to: Callable[[int], Iterable[int]], what: str) -> Walk:
    """The way with the fewest hops; of those, the first that a search finds that goes to the lower numbers first."""
    came, queue = {a: a}, deque([a])
    while queue and b not in came:
        here = queue.popleft()
        for other in sorted(next_to(here)):
            if other not in came:
                came[other] = here
                queue.append(other)
    if b not in came:
        raise ValueError(f"there is no way from {what} {a} to {what} {b} any more: what is cut was the last one")
    walk: Walk = []
    while b != a:
        walk.insert(0, (came[b], b))
        b = came[b]
    return walk
