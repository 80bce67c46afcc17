import torch

from edgewise import Dot, attend, causal, plan
from edgewise.kernels import Cosine


def test_cosine_attention_is_a_dot_product_of_unit_vectors():
    q, k, v = torch.randn(3, 6, 2, 4, dtype=torch.float64)
    unit = attend(causal(6), q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True), v, Dot(scale=10.0))
    assert torch.allclose(attend(causal(6), q, k, v, Cosine()), unit, atol=1e-12)
    assert torch.allclose(attend(causal(6), q, k, v, Cosine(), backend="reference"), unit, atol=1e-12)


def test_a_backend_that_cannot_read_it_says_so():
    refusals = {one.backend: one.refusal for one in plan(causal(6), Cosine()).candidates}
    assert "Cosine" in refusals["native"]
