"""A neighbour sampler in numba: Floyd's algorithm for each row, rows in parallel, one random state per row."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.apps.bench.inputs import Inputs, Sampling


def refuses(inputs: Inputs) -> str | None:
    """Needs numba."""
    if find_spec("numba") is None:
        return "needs numba"
    return None if isinstance(inputs, Sampling) else "takes sampling"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """A hop's nodes are the senders drawn in the hop before, each once."""
    import numba

    assert isinstance(inputs, Sampling)
    numba.set_num_threads(min(torch.get_num_threads(), numba.get_num_threads()))
    offsets, senders = inputs.graph.offsets.numpy(), inputs.graph.senders.numpy()
    known = np.zeros(inputs.graph.num_senders, dtype=np.bool_)

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
    def distinct(found: Any, known: Any) -> Any:
        kept = np.empty(len(found), dtype=np.int64)
        count = 0
        for node in found:
            if not known[node]:
                known[node] = True
                kept[count] = node
                count += 1
        for place in range(count):
            known[kept[place]] = False
        return kept[:count]

    turn = [0]

    def sample() -> list[tuple[Tensor, Tensor]]:
        """(receivers, senders) of the edges drawn, hop by hop."""
        nodes, hops = inputs.seeds.numpy(), []
        for fanout in inputs.fanouts:
            turn[0] += 1
            counts = np.minimum(offsets[nodes + 1] - offsets[nodes], fanout)
            ends = np.cumsum(counts)
            found = np.empty(ends[-1] if len(ends) else 0, dtype=np.int64)
            draw(offsets, senders, nodes, fanout, turn[0] << 32, ends - counts, found)
            hops.append((torch.from_numpy(np.repeat(nodes, counts)), torch.from_numpy(found)))
            nodes = distinct(found, known)
        return hops

    return sample
