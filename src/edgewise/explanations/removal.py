"""Explanations by taking away: one edge or node after the other, or a learned mask over all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.explanations.attention import Scores
from edgewise.explanations.explained import Explained
from edgewise.explanations.reach import within_reach

STEPS, RATE = 60, 0.2  # of the learned masks, with Adam
SIZE, ENTROPY = 0.5, 0.1  # how much a mask's mean and its mean entropy weigh against the output's whole change


@torch.no_grad()
def leave_one_out(explained: Explained) -> Scores:
    """How much the output falls where an edge is removed, or a node's features become the baseline: F - F without.

    Cost        one evaluation for each edge and each node within reach of the explained node
    """
    edges, nodes = within_reach(explained)
    by_node = None if explained.baseline is None else _one_by_one(explained, nodes, False)
    return _one_by_one(explained, edges, True), by_node


def _one_by_one(explained: Explained, reach: Tensor, of_edges: bool) -> Tensor:
    scores = torch.zeros(len(reach), device=explained.device)
    gate = torch.ones_like(scores)
    for number in reach.nonzero()[:, 0].tolist():
        gate[number] = 0.0
        without = explained(None, gate, removing=True) if of_edges else explained(gate)
        scores[number] = explained.value - float(without)
        gate[number] = 1.0
    return scores


def learned(explained: Explained) -> Scores:
    """Learned masks: the fewest edges and nodes with which the output is still what it was.

    Equation    min over θ of (F - F(σ(θ)))⁺ / |F - F(0)| + λ mean σ(θ) + μ mean H(σ(θ)), for the edges' gates and then
                for the nodes'
    Symbols     λ = 0.5, μ = 0.1; H = entropy of a coin that falls on 1 with probability σ(θ); 60 steps of Adam
    Cost        60 forward and backward passes for the edges, as many for the nodes
    Differs     the loss is the output's own fall instead of a mutual information, so that it serves values as classes;
                masks start at 1/2 without noise: the result is always the same; a node's features are weighed together
    Reference   Ying et al., "GNNExplainer", 2019, eqs. 4-6
    """
    nodes = None if explained.baseline is None else _masked(explained, explained.num_nodes, False)
    return _masked(explained, explained.edges.num_edges, True), nodes


def _masked(explained: Explained, count: int, of_edges: bool) -> Tensor:
    def value(gate: Tensor) -> Tensor:
        return explained(None, gate) if of_edges else explained(gate)

    logits = torch.zeros(count, device=explained.device, requires_grad=True)
    with torch.no_grad():
        change = abs(explained.value - float(value(torch.zeros_like(logits))))
    optimizer = torch.optim.Adam([logits], lr=RATE)
    if change == 0 or not count:
        return torch.zeros_like(logits)
    for _ in range(STEPS):
        mask = logits.sigmoid()
        entropy = torch.special.entr(torch.stack([mask, 1 - mask])).sum(0).mean()
        loss = (explained.value - value(mask)).clamp(min=0) / change + SIZE * mask.mean() + ENTROPY * entropy
        (logits.grad,) = torch.autograd.grad(loss, logits)
        optimizer.step()
    return logits.detach().sigmoid()
