"""Muon against PyTorch's own on the same gradients, and the singular values that it makes."""

import pytest
import torch
from torch import nn

from edgewise.errors import ConfigError
from edgewise.training.optimizers.descent import Muon, OrthogonalMomentum, optimizer_for


class Stack(nn.Module):
    """An embedding, two stacked layers and an output layer: only the matrices in the stack are made orthogonal."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 4)])
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h).tanh()
        return self.head(h)


def test_matrices_go_where_pytorchs_muon_takes_them_and_others_where_adamw_does():
    ours, theirs = (nn.Parameter(torch.ones(8, 6)) for _ in range(2))
    b, c = (nn.Parameter(torch.ones(6)) for _ in range(2))
    groups = [{"params": [ours], "weight_decay": 0.1, "orthogonal": True}, {"params": [b], "weight_decay": 0.1}]
    muon = Muon(groups, 0.01, 0.95, (0.9, 0.99))
    peers = [
        torch.optim.Muon([theirs], 0.01, 0.1, 0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([c], 0.01, (0.9, 0.99), weight_decay=0.1),
    ]
    for _ in range(5):
        ours.grad, b.grad = torch.randn(8, 6), torch.randn(6)
        theirs.grad, c.grad = ours.grad.clone(), b.grad.clone()
        for optimizer in (muon, *peers):
            optimizer.step()
    assert torch.equal(b, c) and torch.equal(ours, theirs)


def test_all_singular_values_of_a_move_come_near_to_one_whatever_the_gradients():
    w = nn.Parameter(torch.zeros(7, 4))
    u, _, v = torch.linalg.svd(torch.randn(7, 4), full_matrices=False)
    w.grad = u @ torch.diag(torch.tensor([1e-3, 5e-4, 2e-4, 1e-4])) @ v
    Muon([{"params": [w], "orthogonal": True}], lr=1.0).step()
    singular = torch.linalg.svdvals(w.detach()) / (0.2 * 7**0.5)
    assert singular.min() > 0.6 and singular.max() < 1.25


def test_only_matrices_in_stacked_layers_are_made_orthogonal():
    model = Stack()
    muon = optimizer_for(model, OrthogonalMomentum(weight_decay=0.1, decay_matrices_only=True))
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {names[w]: (g["orthogonal"], g["weight_decay"]) for g in muon.param_groups for w in g["params"]}
    assert set(found) == set(names.values())
    assert {name for name, (kind, _) in found.items() if kind} == {"blocks.0.weight", "blocks.1.weight"}
    assert {name for name, (_, decay) in found.items() if decay} == {
        "embed.weight", "blocks.0.weight", "blocks.1.weight", "head.weight",
    }  # fmt: skip


def test_a_vector_cannot_be_orthogonal():
    with pytest.raises(ConfigError, match=r"only a matrix can be made orthogonal, not a weight of \[3\]"):
        Muon([{"params": [nn.Parameter(torch.ones(3))], "orthogonal": True}])
