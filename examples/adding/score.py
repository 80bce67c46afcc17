"""Cosine attention: only the direction of queries and keys counts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from edgewise.kernels.scores import Score


@dataclass(frozen=True, eq=False)
class Cosine(Score):
    """Scaled cosine: s_ij = scale · qᵢ·kⱼ / (‖qᵢ‖ ‖kⱼ‖).

    Shapes      q [*, I, H, C], k [*, J, H, C]
    Edge cases  a query or key of length 0 gives the score 0
    Reference   Liu et al. 2022 (Swin V2), eq. 2
    """

    scale: float = 10.0

    def pairwise(self, q_i: Tensor, k_j: Tensor) -> Tensor:
        """s_ij = scale · cos(qᵢ, kⱼ)."""
        return self.scale * functional.cosine_similarity(q_i, k_j, dim=-1)
