"""Block masks hold every edge and no other, in lists as FlexAttention's own builder makes them."""

import pytest
import torch
from torch.nn.attention import flex_attention as pytorch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from edgewise import Graph, window
from edgewise.kernels.backends.cuda import block_masks
from kernels.backends.cuda.test_flex import DEVICE, PATTERNS, random_ranges
from kernels.drawn import number


def drawn_graphs(count: int) -> list[Graph]:
    graphs = [random_ranges(number(1, 400), number(1, 400), number(1, 3)) for _ in range(count)]
    return [graph for graph in graphs if graph.num_edges]


def listed(count: torch.Tensor, indices: torch.Tensor) -> list[list[int]]:
    """The blocks of each row."""
    rows = zip(count.flatten().tolist(), indices.flatten(0, -2).tolist(), strict=True)
    return [row[:most] for most, row in rows]


def check(graph: Graph) -> None:
    """The mask is that of the graph, and its lists are those of PyTorch's own builder, which looks at all pairs."""
    graph = graph.to(DEVICE)
    dense = graph.dense_mask()
    mask = block_masks.block_mask(graph)
    i, j = torch.arange(graph.num_receivers, device=DEVICE), torch.arange(graph.num_senders, device=DEVICE)
    assert torch.equal(mask.mask_mod(None, None, i[:, None], j), dense)
    shape = (graph.num_receivers, graph.num_senders)
    expected = pytorch.create_block_mask(lambda b, h, i, j: dense[i, j], 1, 1, *shape, device=DEVICE)
    assert mask.shape == expected.shape == (1, 1, *shape)
    for name in ("kv", "full_kv", "q", "full_q"):
        found, theirs = (
            listed(getattr(x, f"{name}_num_blocks"), getattr(x, f"{name}_indices")) for x in (mask, expected)
        )
        assert found == [sorted(row) for row in theirs], name
    for name in ("kv", "q"):  # PyTorch's kernels read the lists of full blocks at the strides of the others
        assert getattr(mask, f"{name}_indices").stride() == getattr(mask, f"full_{name}_indices").stride(), name


@pytest.mark.parametrize("name", PATTERNS)
def test_the_mask_of_a_pattern_is_exact(name):
    check(PATTERNS[name])


def test_the_masks_of_random_graphs_are_exact():
    for graph in drawn_graphs(20):
        check(graph)


class Touched(TorchDispatchMode):
    """Counts the numbers that all operations read and write."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        tensors = tree_leaves((args, kwargs, result))
        self.count += sum(x.numel() for x in tensors if isinstance(x, torch.Tensor))
        return result


def test_building_a_mask_takes_work_in_proportion_to_the_nodes():
    def work(n):
        graph = window(n, 128)
        with Touched() as touched:
            mask = block_masks.block_mask(graph)
        assert mask.kv_indices.shape[-1] <= 2 and mask.full_q_indices.shape[-1] <= 2, "no list is as long as the graph"
        return touched.count

    assert 100 * 4096 < work(65_536) / 16 <= 1.01 * work(4096), "in proportion to pairs it would be 16 times as much"
