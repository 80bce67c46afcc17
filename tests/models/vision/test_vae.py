import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

from edgewise import ConfigError, ShapeError
from edgewise.models import Features, VariationalAutoencoder, VariationalAutoencoderSettings
from edgewise.models.vision.vae import kl_from_normal

SIGNATURE = Features(12, 12, length=1, whole_graph=True)


def _model(latent: int = 3) -> VariationalAutoencoder:
    settings = VariationalAutoencoderSettings(latent, hidden=(10, 7), activation="tanh")
    model = VariationalAutoencoder(settings, SIGNATURE).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def test_the_kl_is_the_one_of_torch_forward_and_gradient() -> None:
    mean, log_variance = (torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    found = kl_from_normal(mean, log_variance)
    q = Independent(Normal(mean, (log_variance / 2).exp()), 1)
    p = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
    expected = kl_divergence(q, p)
    assert torch.allclose(found, expected, atol=1e-12)
    mine, theirs = (torch.autograd.grad(value.sum(), [mean, log_variance]) for value in (found, expected))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-12)
    assert torch.autograd.gradcheck(kl_from_normal, (mean, log_variance))


def test_training_is_the_equation_written_out_forward_and_gradient() -> None:
    model, x = _model(), torch.rand(6, 1, 12, dtype=torch.float64)
    torch.manual_seed(3)
    found = model(None, x)
    torch.manual_seed(3)
    noise = torch.randn(6, 3, dtype=torch.float64)

    def layers(mlp: nn.Module, h: torch.Tensor) -> torch.Tensor:
        *hidden, last = mlp.linears
        for linear in hidden:
            h = torch.tanh(h @ linear.weight.T + linear.bias)
        return h @ last.weight.T + last.bias

    both = layers(model.encoder, x[:, 0])
    mean, variance = both[:, :3], both[:, 3:].exp()
    z = mean + variance.sqrt() * noise
    logits = layers(model.decoder, z)
    kl = 0.5 * (mean**2 + variance - 1 - variance.log()).sum(1).mean()
    assert (found.outputs[:, 0] - logits).abs().max() <= 1e-10
    assert abs(float((found.penalty - kl).detach())) <= 1e-10
    weights = list(model.parameters())
    fit = nn.functional.binary_cross_entropy_with_logits
    mine = torch.autograd.grad(fit(found.outputs, x, reduction="sum") / 6 + found.penalty, weights)
    p = torch.sigmoid(logits)
    written = -(x[:, 0] * p.log() + (1 - x[:, 0]) * (1 - p).log()).sum() / 6 + kl
    theirs = torch.autograd.grad(written, weights)
    for a, b in zip(mine, theirs, strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= 1e-10 * max(1, b.abs().max())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="gives back what it reads"):
        VariationalAutoencoder(VariationalAutoencoderSettings(), Features(12, 10, length=1, whole_graph=True))
    with pytest.raises(ShapeError, match="images of 12 pixels are read"):
        _model()(None, torch.zeros(2, 1, 9, dtype=torch.float64))
