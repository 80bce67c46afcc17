"""What the tests of tiles share: graphs of every form, drawn tensors, and results of a backend."""

import torch

from edgewise import Dot, EdgeBias, Graph, attend, use_backend
from edgewise.graphs import bipartite, blocks, causal, complete, grid, squares, strided, window
from edgewise.kernels.operator.dropout import drop_pairs


def random_ranges(receivers, senders, intervals, seed=0):
    """Ascending, disjoint intervals; about a quarter of the receivers have none."""
    generator = torch.Generator().manual_seed(seed)
    bounds = torch.randint(0, senders + 1, (receivers, 2 * intervals), generator=generator).sort(1).values
    bounds[torch.rand(receivers, generator=generator) < 0.25] = 0
    return Graph.from_ranges(bounds[:, ::2].contiguous(), bounds[:, 1::2].contiguous(), senders)


GRAPHS = {
    "causal": causal(70),
    "causal, offset": causal(20, offset=33),
    "causal, one row": causal(1, offset=100),
    "window": window(300, 20),
    "window, past": window(100, 7, sides="past"),
    "window, dilated": window(90, 2, dilation=9),
    "window, far": window(1500, 40),
    "strided": strided(60, 16),
    "blocks": blocks([25, 1, 9, 40, 17, 3, 3, 3, 64]),
    "blocks, empty": blocks([5, 0, 7, 2], senders=[0, 4, 90, 1]),
    "blocks of one": blocks([1] * 40),
    "complete": complete(97),
    "complete, other senders": complete(33, 150),
    "others": complete(50).remove_self_loops(),
    "bipartite": bipartite(20, 90),
    "grid": grid(7, 9),
    "squares": squares(14, 14, 7),
    "squares, shifted": squares(11, 13, 5, shift=2),
    "squares, many intervals": squares(9, 12, 9),
    "ranges": random_ranges(120, 90, 1),
    "ranges, three": random_ranges(100, 130, 3),
    "no receivers": complete(0, 5),
    "no senders": complete(5, 0),
}
SHAPES = [(3, 16, 16), (1, 32, 32), (2, 5, 11), (1, 64, 24), (2, 1, 130), (4, 128, 128)]


def draw(graph, heads, channels, values, batch=(), dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(graph.num_receivers, heads, channels), (graph.num_senders, heads, channels)]
    shapes.append((graph.num_senders, heads, values))
    return [torch.randn(*batch, *shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def results(graph, tensors, backend, score=None):
    """The output and its gradients to q, k and v."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    with use_backend(backend):
        y = attend(graph, *leaves, Dot() if score is None else score)
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return [y.detach(), *torch.autograd.grad(y, leaves, weight.to(y.dtype))]


def largest_error(found, expected):
    return max(
        [float((a.double() - b.double()).abs().max()) for a, b in zip(found, expected, strict=True) if a.numel()]
    )


def biased(graph, tensors, bias, backend):
    """The output and its gradients to q, k, v and a bias on edges."""
    leaves = [x.detach().requires_grad_() for x in (*tensors, bias)]
    with use_backend(backend):
        y = attend(graph, *leaves[:3], Dot() + EdgeBias(leaves[3]))
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return [y.detach(), *torch.autograd.grad(y, leaves, weight.to(y.dtype))]


def dropped(graph, tensors, bias, p, backend):
    """The same with dropout, by the kernel or with its mask written out; and how often it kept a weight."""
    leaves = [x.detach().requires_grad_() for x in (*tensors, bias)]
    score = Dot() + EdgeBias(leaves[3])
    torch.manual_seed(3)
    if backend == "tiled":
        with use_backend("tiled"):
            y, share = attend(graph, *leaves[:3], score, dropout=p), None
    else:
        seed = torch.randint(2**62, (1,))
        _, w_ij = attend(graph, *leaves[:3], score, return_weights=True)
        survivors = drop_pairs(graph, torch.ones_like(w_ij), p, seed)
        share = float((survivors != 0).double().mean())
        m_ij = (w_ij * survivors).unsqueeze(-1) * leaves[2].index_select(-3, graph.senders)
        shape = *m_ij.shape[:-3], graph.num_receivers, *m_ij.shape[-2:]
        y = m_ij.new_zeros(shape).index_add(-3, graph.receivers, m_ij)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [y.detach(), *torch.autograd.grad(y, leaves, weight.to(y.dtype))], share
