"""Point clouds of simple bodies, drawn on their surfaces and turned at random. Generated: no file is read."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.data.splits import cut
from edgewise.errors import ConfigError
from edgewise.graphs.make.neighbors import k_nearest
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs

Draw = Callable[[int, torch.Generator], Tensor]  # n points on the surface, [n, 3]


def clouds(
    points: int = 64, neighbors: int = 8, noise: float = 0.03, examples: int = 1600, seed: int = 0
) -> GraphClassification:
    """Classify which of six bodies a cloud of points was drawn from: sphere, cube, cylinder, cone, torus or helix.

    Points are uniform on the body's surface (on the line of a helix), stretched along each axis by 0.8 to 1.2, turned
    by a uniform rotation, moved by Gaussian noise, centred, and divided by their root mean square distance from there.
    A point's features are its three coordinates; it attends to its nearest neighbours. 5/8 of the clouds train, 1/8
    validate and 2/8 test.

    Args:
        points: Points of a cloud.
        neighbors: How many of the nearest points a point attends to.
        noise: Standard deviation of the noise, for bodies of radius about 1.
        examples: Number of clouds, all classes together.
        seed: Chooses all that is random.

    Example
        >>> task = clouds(points=16, examples=16)
        >>> task.signature.inputs, task.epoch_size, task.graphs.classes[0]
        (3, 10, 'sphere')
    """
    if points < 4 or examples < 8 or not 0 <= neighbors < points or not noise >= 0:
        raise ConfigError("clouds need at least 4 points, 8 examples, fewer neighbors than points and noise >= 0")
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(examples) % len(BODIES)
    x = [cloud(list(BODIES.values())[label], points, noise, generator) for label in labels.tolist()]
    order = torch.randperm(examples, generator=generator)
    splits = cut(order, (examples * 5 // 8, examples * 6 // 8))
    graphs = tuple(k_nearest(part, neighbors) for part in x)
    return GraphClassification("clouds", Graphs(graphs, torch.cat(x), labels, splits, tuple(BODIES)))


def cloud(draw: Draw, points: int, noise: float, generator: torch.Generator) -> Tensor:
    """One cloud, float32 [points, 3]."""
    x = draw(points, generator) * (0.8 + 0.4 * torch.rand(3, generator=generator))
    rotation, upper = torch.linalg.qr(torch.randn(3, 3, generator=generator))
    x = x @ (rotation * upper.diagonal().sign())  # uniform over the orthogonal group
    x = x + noise * torch.randn(points, 3, generator=generator)
    x = x - x.mean(0)
    return x / x.square().sum(-1).mean().sqrt()


def _sphere(n: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(n, 3, generator=generator)
    return x / x.norm(dim=-1, keepdim=True)


def _cube(n: int, generator: torch.Generator) -> Tensor:
    x = 2 * torch.rand(n, 3, generator=generator) - 1
    axis = torch.randint(3, (n,), generator=generator)
    return x.scatter(1, axis[:, None], torch.where(torch.rand(n, 1, generator=generator) < 0.5, -1.0, 1.0))


def _cylinder(n: int, generator: torch.Generator) -> Tensor:
    turn, height = _turn(n, generator), 2 * torch.rand(n, generator=generator) - 1
    cap = torch.rand(n, generator=generator) < 1 / 3  # the two caps have 2π of the surface's 6π
    radius = torch.where(cap, torch.rand(n, generator=generator).sqrt(), 1.0)
    return _around(radius, turn, torch.where(cap, height.sign(), height))


def _cone(n: int, generator: torch.Generator) -> Tensor:
    turn, radius = _turn(n, generator), torch.rand(n, generator=generator).sqrt()
    base = torch.rand(n, generator=generator) < 1 / (1 + math.sqrt(5))  # π of π + π √(1² + 2²)
    return _around(radius, turn, torch.where(base, -1.0, 1 - 2 * radius))


def _torus(n: int, generator: torch.Generator) -> Tensor:
    around, within = _turn(4 * n, generator), _turn(4 * n, generator)
    radius = 1 + 0.4 * within.cos()
    accepted = torch.rand(4 * n, generator=generator) < radius / 1.4  # the outside has more surface than the inside
    return _around(radius, around, 0.4 * within.sin())[accepted][:n]


def _helix(n: int, generator: torch.Generator) -> Tensor:
    place = torch.rand(n, generator=generator)
    return _around(torch.ones(n), 4 * math.pi * place, 2 * place - 1)


def _turn(n: int, generator: torch.Generator) -> Tensor:
    return 2 * math.pi * torch.rand(n, generator=generator)


def _around(radius: Tensor, turn: Tensor, height: Tensor) -> Tensor:
    return torch.stack([radius * turn.cos(), radius * turn.sin(), height], -1)


BODIES: dict[str, Draw] = {
    "sphere": _sphere,
    "cube": _cube,
    "cylinder": _cylinder,
    "cone": _cone,
    "torus": _torus,
    "helix": _helix,
}
