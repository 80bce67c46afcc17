"""Pictures of section C: attention in less than quadratic time, and associative memories."""

import torch
from canvas import BLUE, COLOURS, GREY, RED, Axes, Canvas
from optimisation import digits
from torch.nn import functional

from edgewise import Kernel, attend, causal, fixed, strided
from edgewise.kernels.scores import Dot
from edgewise.layers import AngularHash, PositiveFeatures, sinkhorn
from edgewise.layers.attention.hopfield import ContinuousHopfield
from edgewise.layers.attention.routing import Centroids


def sparse() -> Canvas:
    """The Sparse Transformer's two patterns on 36 positions: a row for each position, blue where it attends. Strided:
    the last six and every sixth; fixed: its own block and the last of each block before."""
    canvas = Canvas()
    for k, (name, graph) in enumerate((("strided", strided(36, 6)), ("fixed", fixed(36, 6)))):
        canvas.heat(graph.dense_mask().float(), (14 + 156 * k, 20, 136, 136))
        canvas.text(82 + 156 * k, 172, name, colour=GREY)
    return canvas


def hashing() -> Canvas:
    """Reformer: random directions cut the plane into sectors, and vectors of one sector (one colour) attend to each
    other. At the right, who attends to whom, sorted by sector."""
    torch.manual_seed(1)
    x = functional.normalize(torch.randn(90, 2), dim=-1) * (0.5 + 0.5 * torch.rand(90, 1))
    labels = AngularHash(2, buckets=6, rounds=1)(x)[0]
    canvas = Canvas()
    axes = Axes(canvas, (12, 20, 140, 150), (-1.1, 1.1), (-1.1, 1.1))
    for bucket in range(6):
        chosen = x[labels == bucket]
        axes.dots(chosen[:, 0].tolist(), chosen[:, 1].tolist(), COLOURS[bucket], 2.2)
    order = labels.argsort(stable=True)
    canvas.heat((labels[order][:, None] == labels[order]).float(), (170, 22, 140, 140))
    return canvas


def routing() -> Canvas:
    """Routing Transformer: centres (crosses) follow the vectors by k-means, and each vector attends within its
    cluster. At the right, who attends to whom, sorted by cluster."""
    torch.manual_seed(0)
    kinds = torch.tensor([[2.0, 0.2, -1.4], [-1.2, 2.0, 0.1], [0.2, -1.5, 2.0]])
    x = kinds[torch.randint(3, (90,))] + 0.7 * torch.randn(90, 3)
    x = functional.layer_norm(x, (3,))
    centroids = Centroids(1, 3, count=3, decay=0.8)
    centroids.means.copy_(x[None, :3])
    for _ in range(40):
        centroids.follow(x[None], x[None])
    labels = centroids(x[None])[0].argmax(0)
    plane = torch.linalg.svd(torch.eye(3) - 1 / 3)[0][:, :2]
    flat, means = x @ plane, functional.layer_norm(centroids.means[0], (3,)) @ plane
    canvas = Canvas()
    axes = Axes(canvas, (12, 20, 140, 150), (-2.2, 2.2), (-2.2, 2.2))
    jitter = 1 + 0.12 * torch.randn(90, 1)
    for c in range(3):
        chosen = (flat * jitter)[labels == c]
        axes.dots(chosen[:, 0].tolist(), chosen[:, 1].tolist(), COLOURS[c], 2)
        x0, y0 = axes.at(*means[c].tolist())
        canvas.lines([((x0 - 5, y0 - 5), (x0 + 5, y0 + 5)), ((x0 - 5, y0 + 5), (x0 + 5, y0 - 5))], "currentColor", 1.6)
    order = labels.argsort(stable=True)
    canvas.heat((labels[order][:, None] == labels[order]).float(), (170, 22, 140, 140))
    return canvas


def sorting() -> Canvas:
    """Sinkhorn: scores of blocks (left) become a soft permutation as rows and columns are scaled in turn, here after
    1, 3 and 20 rounds: each row and each column then adds up to 1."""
    torch.manual_seed(4)
    scores = 3 * torch.randn(10, 10)
    allowed = torch.ones(10, 10, dtype=torch.bool)
    canvas = Canvas()
    panels = [("scores", scores)] + [(f"{k} round{'s' * (k > 1)}", sinkhorn(scores, allowed, k)) for k in (1, 3, 20)]
    for k, (name, matrix) in enumerate(panels):
        canvas.heat(matrix, (8 + 78 * k, 56, 70, 70))
        canvas.text(43 + 78 * k, 142, name, colour=GREY)
    return canvas


def performer() -> Canvas:
    """Performer estimates exp(q·k) by random positive features: estimates of 120 pairs with 16 features (grey) and
    with 512 (blue) over the exact value."""
    torch.manual_seed(0)
    q, k = 0.9 * torch.randn(120, 4), 0.9 * torch.randn(120, 4)
    exact = (q * k).sum(-1).exp()
    canvas = Canvas()
    axes = Axes(canvas, (70, 10, 180, 176), (0.02, 60), (0.02, 60), "xy")
    axes.line((0.02, 60), (0.02, 60), RED, 0.8)
    for count, colour in ((16, GREY), (512, BLUE)):
        features = PositiveFeatures(4, count)
        axes.dots(exact.tolist(), (features(q) * features(k)).sum(-1).tolist(), colour, 1.8, 0.85)
    axes.labels("exp(q·k)", "estimate")
    return canvas


def linear() -> Canvas:
    """The same queries and keys of 28 positions, weighed by the softmax of their products (left) and by linear
    attention's feature map elu + 1 (right), which spreads weights more evenly and costs linear time."""
    torch.manual_seed(0)
    q, k = 1.4 * torch.randn(28, 1, 8), 1.4 * torch.randn(28, 1, 8)
    k = 0.6 * k + 0.8 * q.roll(1, 0)
    identity = torch.eye(28)[:, None]
    canvas = Canvas()
    for n, (name, score) in enumerate((("softmax", Dot()), ("elu + 1", Kernel(lambda x: functional.elu(x) + 1)))):
        weights = attend(causal(28), q, k, identity, score)[:, 0]
        canvas.heat(weights.sqrt(), (14 + 156 * n, 20, 136, 136))
        canvas.text(82 + 156 * n, 172, name, colour=GREY)
    return canvas


def memories() -> Canvas:
    """A modern Hopfield network that stores one example of each digit recalls them from damaged ones: the lower half
    is missing (middle row), one step of attention to the stored patterns brings it back (last row)."""
    x, y = digits()
    stored = torch.stack([x[(y == c).nonzero()[0, 0]] for c in range(8)])
    damaged = stored.clone()
    damaged[:, 32:] = 0
    network = ContinuousHopfield(stored, beta=4.0)
    canvas = Canvas()
    for row, (name, images) in enumerate(
        (("stored", stored), ("damaged", damaged), ("recalled", network.recall(damaged, steps=2)))
    ):
        for k, image in enumerate(images):
            canvas.heat(image.reshape(8, 8), (54 + 33 * k, 14 + 58 * row, 29, 52 - 8), ("currentColor", RED), 1.0)
        canvas.text(48, 40 + 58 * row, name, anchor="end", colour=GREY)
    return canvas
