import pytest
import torch

from edgewise import ConfigError, causal, complete
from edgewise.models import Features, Transformer, TransformerSettings


def test_a_class_node_needs_a_complete_graph():
    settings = TransformerSettings(width=8, depth=1, heads=2, readout="class")
    model = Transformer(settings, Features(4, 3, length=9, whole_graph=True))
    assert model(complete(9), torch.randn(2, 9, 4)).shape == (2, 1, 3)
    with pytest.raises(ConfigError, match="needs a complete graph, not"):
        model(causal(9), torch.randn(2, 9, 4))
