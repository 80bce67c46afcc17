"""The group-equivariant network: no pose of an image changes what it says, exactly."""

from functools import partial

import pytest
import torch

from edgewise import ConfigError, GraphError, complete, disc
from edgewise.models import Features, GroupCNN, GroupCNNSettings
from edgewise.models.vision.convolutional import halved
from edgewise.testing import assert_equivariant

SIDE = 12
SIGNATURE = Features(1, 10, length=SIDE * SIDE, whole_graph=True)
POSES = {f"{turns} quarter turns{', mirrored' * mirror}": (turns, mirror) for turns in range(4) for mirror in (0, 1)}


def network(**options):
    """A network with norms that have seen something."""
    torch.manual_seed(0)
    model = GroupCNN(GroupCNNSettings(**({"widths": (3, 4, 5), "halve": (1, 2)} | options)), SIGNATURE)
    model(disc(SIDE, SIDE, 2.3), torch.randn(8, SIDE * SIDE, 1))
    return model.eval()


def posed(x, turns, mirror):
    image = x.unflatten(-2, (SIDE, SIDE))
    return torch.rot90(image.flip(-2) if mirror else image, turns, (-3, -2)).flatten(-3, -2)


def assert_blind(model, turns, mirror, dtype=torch.float64, tolerance=1e-10):
    model, graph = model.to(dtype), disc(SIDE, SIDE, 2.3)
    x = torch.randn(2, SIDE * SIDE, 1, dtype=dtype)
    assert_equivariant(partial(model, graph), lambda x: (posed(x, turns, mirror),), lambda y: y, x, tolerance=tolerance)


@pytest.mark.parametrize("pose", POSES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_no_pose_of_p4m_changes_the_answer(pose, dtype, tolerance):
    assert_blind(network(rotations=4, reflections=True), *POSES[pose], dtype, tolerance)


@pytest.mark.parametrize("rotations", [4, 8])
def test_turns_do_not_change_the_answer_of_p4_and_mirrors_do(rotations):
    model = network(rotations=rotations)
    assert_blind(model, 1, 0)
    with pytest.raises(AssertionError, match="differ by"):
        assert_blind(model, 0, 1)


def test_translations_by_what_is_halved_do_not_change_the_answer_on_a_torus():
    model, torus = network().double(), disc(SIDE, SIDE, 2.3, torus=True)
    model.settings = GroupCNNSettings(widths=(3, 4, 5), halve=(1,))  # halved twice, a filter would reach around
    assert_equivariant(
        partial(model, torus),
        lambda x: (x.unflatten(1, (SIDE, SIDE)).roll((4, -2), (1, 2)).flatten(1, 2),),
        lambda y: y,
        torch.randn(2, SIDE * SIDE, 1, dtype=torch.float64),
        tolerance=1e-10,
    )


def test_halving_keeps_the_largest_of_four_pixels():
    x = torch.randn(3, 24, 2, 5)
    graph, y = halved(disc(4, 6, 2.3, torus=False), x)
    assert graph == disc(2, 3, 2.3)
    expected = x.view(3, 2, 2, 3, 2, 2, 5).amax((2, 4)).view(3, 6, 2, 5)
    assert torch.equal(y, expected)


@pytest.mark.parametrize("graph", [disc(3, 4), complete(16)], ids=str)
def test_what_cannot_be_halved_is_refused(graph):
    with pytest.raises(GraphError, match="only a disc of even height and width is halved"):
        halved(graph, torch.zeros(graph.num_receivers, 1, 1))


def test_impossible_networks_are_refused():
    with pytest.raises(ConfigError, match="halves after some of its 4: not"):
        GroupCNN(GroupCNNSettings(halve=(5,)), SIGNATURE)
