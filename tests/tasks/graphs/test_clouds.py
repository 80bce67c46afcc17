import math

import pytest
import torch

from edgewise import ConfigError
from edgewise.tasks import clouds
from edgewise.tasks.graphs.clouds import BODIES, cloud


def draw(name):
    return BODIES[name](20_000, torch.Generator().manual_seed(0)).double()


def test_points_lie_on_their_bodies():
    assert torch.allclose(draw("sphere").norm(dim=1), torch.tensor(1.0).double(), atol=1e-5)
    assert torch.allclose(draw("cube").abs().max(1).values, torch.tensor(1.0).double())
    x, y, z = draw("torus").T
    assert torch.allclose((torch.hypot(x, y) - 1) ** 2 + z**2, torch.tensor(0.16).double(), atol=1e-5)
    x, y, z = draw("cone").T
    radius = torch.hypot(x, y)
    assert torch.allclose(torch.where(z == -1, 0, radius - (1 - z) / 2), torch.tensor(0.0).double(), atol=1e-5)
    x, y, z = draw("cylinder").T
    assert ((torch.hypot(x, y) - 1).abs().lt(1e-5) | (z.abs() == 1)).all()
    x, y, z = draw("helix").T
    assert torch.allclose(
        torch.stack([x, y]), torch.stack([(2 * math.pi * (z + 1)).cos(), (2 * math.pi * (z + 1)).sin()]), atol=1e-4
    )


def test_points_are_uniform_on_the_surface():
    """Shares of parts whose area is known; 20,000 draws are within 4 standard errors of 0.0035."""

    def share(part):
        return part.double().mean().item()

    assert share(draw("sphere")[:, 2] > 0.5) == pytest.approx(0.25, abs=0.014)  # a zone's area is that of its height
    assert share(draw("cube")[:, 0].abs() == 1) == pytest.approx(1 / 3, abs=0.014)
    assert share(draw("cylinder")[:, 2].abs() == 1) == pytest.approx(1 / 3, abs=0.014)
    assert share(draw("cone")[:, 2] == -1) == pytest.approx(1 / (1 + math.sqrt(5)), abs=0.014)
    outside = torch.hypot(*draw("torus").T[:2]) > 1
    assert share(outside) == pytest.approx(0.5 + 0.4 / math.pi, abs=0.014)


def test_a_cloud_is_centred_scaled_and_a_function_of_the_seed():
    generator = torch.Generator().manual_seed(3)
    x = cloud(BODIES["cube"], 50, 0.05, generator)
    assert x.mean(0).abs().max() < 1e-6
    assert x.square().sum(-1).mean().item() == pytest.approx(1)
    a, b, c = (clouds(points=8, neighbors=2, examples=16, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.graphs.x, b.graphs.x)
    assert not torch.equal(a.graphs.x, c.graphs.x)


def test_splits_are_disjoint_and_classes_even():
    task = clouds(points=8, neighbors=2, examples=48)
    parts = [set(part.tolist()) for part in task.graphs.splits.values()]
    assert [len(part) for part in parts] == [30, 6, 12]
    assert len(set.union(*parts)) == 48
    assert task.graphs.targets.bincount().tolist() == [8] * 6
    assert all(graph.num_edges == 16 for graph in task.graphs.members)


@pytest.mark.parametrize("options", [{"points": 3}, {"examples": 2}, {"neighbors": 64}, {"noise": -1.0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError):
        clouds(**options)
