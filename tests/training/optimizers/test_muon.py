"""Muon against its equations in float64, the singular values that it makes, and PyTorch's own on the same gradients."""

import pytest
import torch
from torch import nn

from edgewise.errors import ConfigError
from edgewise.training.optimizers.descent import OrthogonalMomentum, optimizer_for, optimizer_tensors, restore_optimizer
from edgewise.training.optimizers.muon import COEFFICIENTS, SIZE, Muon, orthogonal


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


def scaled(singular: torch.Tensor) -> torch.Tensor:
    """What five steps of the iteration make of singular values."""
    a, b, c = COEFFICIENTS
    s = singular / singular.norm()
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    return s


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (1, 5)])
def test_the_iteration_keeps_singular_vectors_and_raises_singular_values(shape):
    g = 1e-3 * torch.randn(shape, dtype=torch.float64)
    u, s, v = torch.linalg.svd(g, full_matrices=False)
    made = orthogonal(g)
    assert torch.allclose(made, u @ torch.diag(scaled(s)) @ v, atol=1e-10)
    assert torch.allclose(made, orthogonal(1e5 * g), atol=1e-10)  # the gradient's scale does not matter


def test_singular_values_from_a_fiftieth_of_the_length_on_come_near_to_one():
    s = torch.linspace(0.02, 1.0, 997, dtype=torch.float64)  # as shares of the length
    a, b, c = COEFFICIENTS
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    assert s.min() > 0.65 and s.max() < 1.22


def test_steps_are_the_equations():
    rate, decay, mu, (first, second), eps = 0.03, 0.2, 0.8, (0.7, 0.9), 1e-6
    w, b = nn.Parameter(torch.randn(3, 5).double()), nn.Parameter(torch.randn(4).double())
    groups = [{"params": [w], "weight_decay": decay, "orthogonal": True}, {"params": [b]}]
    muon = Muon(groups, rate, mu, (first, second), eps)
    W, B, momentum, m, v = w.detach().clone(), b.detach().clone(), 0, 0, 0
    for t in range(1, 5):
        w.grad, b.grad = torch.randn(3, 5).double(), torch.randn(4).double()
        momentum = mu * momentum + w.grad
        W = (1 - rate * decay) * W - SIZE * 5**0.5 * rate * orthogonal(w.grad + mu * momentum)
        m, v = first * m + (1 - first) * b.grad, second * v + (1 - second) * b.grad**2
        B = B - rate * (m / (1 - first**t)) / ((v / (1 - second**t)).sqrt() + eps)
        muon.step()
    assert torch.allclose(w, W, atol=1e-12)
    assert torch.allclose(b, B, atol=1e-12)


def test_matrices_go_where_pytorchs_muon_takes_them_and_others_where_adamw_does():
    """PyTorch's iterates in bfloat16, so that a move agrees to its two or three digits."""
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
    assert torch.allclose(b, c, atol=1e-7)
    assert torch.allclose(ours, theirs, atol=5e-4) and not torch.allclose(ours, torch.ones(8, 6), atol=5e-3)


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


def test_a_restored_muon_goes_on_to_the_same_bits():
    models, x = [Stack(), Stack()], torch.arange(5)
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [optimizer_for(model, OrthogonalMomentum(0.01)) for model in models]

    def step(which: int) -> None:
        optimizers[which].zero_grad()
        nn.functional.cross_entropy(models[which](x), x.flip(0)).backward()
        optimizers[which].step()

    for _ in range(3):
        step(0)
    models[1].load_state_dict(models[0].state_dict())
    memory = {name: value.clone() for name, value in optimizer_tensors(optimizers[0], models[0]).items()}
    restore_optimizer(optimizers[1], models[1], memory)
    for _ in range(3):
        step(0), step(1)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_zeros_move_nothing():
    w = nn.Parameter(torch.ones(2, 3))
    muon = Muon([{"params": [w], "orthogonal": True}], 0.1)
    w.grad = torch.zeros(2, 3)
    muon.step()
    assert torch.equal(w, torch.ones(2, 3))


def test_a_vector_cannot_be_orthogonal():
    with pytest.raises(ConfigError, match=r"only a matrix can be made orthogonal, not a weight of \[3\]"):
        Muon([{"params": [nn.Parameter(torch.ones(3))], "orthogonal": True}])
