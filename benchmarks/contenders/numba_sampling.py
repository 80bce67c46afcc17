"""A neighbour sampler in numba: Floyd's algorithm for each row, rows in parallel, one random state per row.

It returns what a network's layers need: the sample's nodes, and graphs whose senders are places among them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.inputs import Inputs, Sampling


def refuses(inputs: Inputs) -> str | None:
    """Needs numba."""
    if find_spec("numba") is None:
        return "needs numba"
    return None if isinstance(inputs, Sampling) else "takes sampling"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """A hop's receivers are all nodes known by then, as in Algorithm 2 of GraphSAGE."""
    import numba

    assert isinstance(inputs, Sampling)
    numba.set_num_threads(min(torch.get_num_threads(), numba.get_num_threads()))
    offsets, senders = inputs.graph.offsets.numpy(), inputs.graph.senders.numpy()
    place = np.full(inputs.graph.num_senders, -1, dtype=np.int32)  # of a node in the sample

    @numba.njit(parallel=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
    def draw(offsets: Any, senders: Any, nodes: Any, fanout: int, seed: int, starts: Any, found: Any) -> None:
        for row in numba.prange(len(nodes)):
            first = offsets[nodes[row]]
            degree = offsets[nodes[row] + 1] - first
            out = starts[row]
            if degree <= fanout:
                for d in range(degree):
                    found[out + d] = senders[first + d]
                continue
            state = np.uint64(seed) + np.uint64(row + 1) * np.uint64(0x9E3779B97F4A7C15)
            taken = np.empty(fanout, dtype=np.int64)
            for d in range(fanout):
                state += np.uint64(0x9E3779B97F4A7C15)  # splitmix64
                z = state
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                z = z ^ (z >> np.uint64(31))
                last = degree - fanout + d
                pick = np.int64(z % np.uint64(last + 1))
                for before in range(d):
                    if taken[before] == pick:
                        pick = last
                        break
                taken[d] = pick
                found[out + d] = senders[first + pick]

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
    def relabel(found: Any, place: Any, nodes: Any, count: int) -> int:
        for e in range(len(found)):
            node = found[e]
            known = place[node]
            if known < 0:
                known = count
                place[node] = count
                nodes[count] = node
                count += 1
            found[e] = known
        return count

    turn = [0]

    def sample() -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The nodes, and (offsets, senders) of each hop's graph."""
        count, hops = len(inputs.seeds), []
        nodes = inputs.seeds.numpy()
        place[nodes] = np.arange(count)
        for fanout in inputs.fanouts:
            turn[0] += 1
            starts = np.zeros(count + 1, dtype=np.int64)
            np.cumsum(np.minimum(offsets[nodes + 1] - offsets[nodes], fanout), out=starts[1:])
            found = np.empty(starts[-1], dtype=np.int64)
            draw(offsets, senders, nodes, fanout, turn[0] << 32, starts, found)
            room = np.empty(count + len(found), dtype=np.int64)
            room[:count] = nodes
            count = relabel(found, place, room, count)
            nodes = room[:count]
            hops.append((torch.from_numpy(starts), torch.from_numpy(found)))
        place[nodes] = -1
        return torch.from_numpy(nodes), hops

    return sample
