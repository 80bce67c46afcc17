"""The variational auto-encoder: images as points of a space in which near points look alike, and new images from it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Settings
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.layers import MLP
from edgewise.models.parts import Activation
from edgewise.models.signature import Features, Penalised, Signature, accepted


@dataclass(frozen=True)
class VariationalAutoencoderSettings(Settings):
    """What a variational auto-encoder can be.

    Args:
        latent: Dimensions of the space of codes.
        hidden: Width of each hidden layer of the encoder; the decoder has them in reverse.
        activation: The activation of the hidden layers.
    """

    latent: Count = 2
    hidden: tuple[Count, ...] = (256,)
    activation: Activation = "relu"


class VariationalAutoencoder(nn.Module):
    """An encoder from an image to a normal distribution of codes, and a decoder from a code to an image.

    Equation    q(z | x) = N(μ(x), diag σ²(x));  log p(x | z) = Σ_n x_n log p_n(z) + (1 − x_n) log(1 − p_n(z));
                log p(x) ≥ ELBO = E_q[log p(x | z)] − KL[q(z | x) ‖ N(0, I)],  z = μ + σ ⊙ ε, ε ~ N(0, I)
    Symbols     encoder -> (μ, log σ²); decoder -> the logits of p; x_n = a grey value from 0 to 1
    Shapes      x [*, 1, pixels] -> logits [*, 1, pixels] of z = μ; in training mode `Penalised`: those of a drawn z,
                and the mean KL of an image; `encode` -> μ, log σ² [*, latent]; `decode`: z [*, latent] -> [*, pixels]
    Differs     a grey value counts as the probability that a pixel is on: the ELBO is the mean over images in black
                and white that are drawn by it
    Reference   Kingma & Welling, "Auto-encoding variational Bayes", 2014

    Example
        >>> signature = Features(64, 64, length=1, whole_graph=True)
        >>> model = VariationalAutoencoder(VariationalAutoencoderSettings(hidden=(8,)), signature)
        >>> model.eval()(None, torch.zeros(5, 1, 64)).shape, model.decode(torch.zeros(3, 2)).shape
        (torch.Size([5, 1, 64]), torch.Size([3, 64]))
    """

    def __init__(self, settings: VariationalAutoencoderSettings, signature: Signature) -> None:
        super().__init__()
        self.settings, self.signature = settings, accepted(self, signature, Features, whole_graph=True, length=True)
        if signature.length != 1 or signature.outputs != signature.inputs:
            raise ConfigError("an auto-encoder gives back what it reads: choose a task of one node, as many outputs")
        pixels, hidden = signature.inputs, settings.hidden
        self.encoder = MLP([pixels, *hidden, 2 * settings.latent], settings.activation)
        self.decoder = MLP([settings.latent, *reversed(hidden), pixels], settings.activation)

    def forward(self, graph: Graph | None, x: Tensor) -> Tensor | Penalised:
        mean, log_variance = self.encode(x.squeeze(-2))
        if not self.training:
            return self.decode(mean).unsqueeze(-2)
        z = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        return Penalised(self.decode(z).unsqueeze(-2), kl_from_normal(mean, log_variance).mean())

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ² of the codes of images [*, pixels]."""
        if x.shape[-1] != self.signature.inputs:
            raise ShapeError(f"images of {self.signature.inputs} pixels are read, got x {list(x.shape)}")
        mean, log_variance = self.encoder(x).chunk(2, -1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """The logits of images from codes."""
        return self.decoder(z)


def kl_from_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """How far a normal distribution of independent dimensions is from the standard one: [*, D], [*, D] -> [*].

    Equation    KL[N(μ, diag σ²) ‖ N(0, I)] = ½ Σ_d μ_d² + σ_d² − 1 − log σ_d²
    Reference   Kingma & Welling, 2014, appendix B
    """
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1) / 2
