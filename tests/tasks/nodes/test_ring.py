import pytest

from edgewise.errors import ConfigError
from edgewise.tasks import ring


def test_a_ring_has_two_equal_halves():
    task = ring(12)
    assert task.nodes.labels.bincount().tolist() == [6, 6]
    assert task.graph().in_degrees().tolist() == [2] * 12


def test_a_ring_needs_six_nodes():
    with pytest.raises(ConfigError, match="at least 6 nodes, not 5"):
        ring(5)
