"""A perceptron learns digits whose labels mean nothing as perfectly as true ones, and only the true ones generalise.

python -m benchmarks.studies.labels

A network of widths 64, 512, 10 takes 2,000 steps of Adam on batches of 64, without weight decay or dropout: once on the
labels of the 1,297 training images, once on classes drawn evenly. Accuracy on the images trained on (by the labels that
it learns) and on the 360 test images (by their true labels), over five seeds. Nothing is chosen: the weights are the
last.
"""

import torch
from torch import Tensor, nn

from edgewise.layers import MLP
from edgewise.tasks import digits

SIZES, BATCH, STEPS, EVERY, SEEDS = [64, 512, 10], 64, 2_000, 100, 5
Data = tuple[Tensor, Tensor]


def accuracy(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return (model(data[0]).argmax(-1) == data[1]).double().mean().item()


def curve(train: Data, test: Data, seed: int) -> list[tuple[float, float]]:
    """Accuracy on the training and on the test images, every so many steps from 0."""
    torch.manual_seed(seed)
    model = MLP(SIZES)
    optimizer, points = torch.optim.Adam(model.parameters(), 0.003), [(accuracy(model, train), accuracy(model, test))]
    for step in range(1, STEPS + 1):
        batch = torch.randint(len(train[0]), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train[0][batch]), train[1][batch]).backward()
        optimizer.step()
        if step % EVERY == 0:
            points.append((accuracy(model, train), accuracy(model, test)))
    return points


def parts(dtype: torch.dtype = torch.float32) -> list[Data]:
    """The training and the test digits: standardised pixels [N, 64] and classes."""
    task = digits(patch=0)
    numbers = (task.splits["train"], task.splits["test"])
    return [(task.prepared(task.images.pixels[n])[:, 0].to(dtype), task.images.labels[n]) for n in numbers]


def main() -> None:
    (train, test), means = parts(), dict[str, Tensor]()
    print("| labels | training accuracy | test accuracy |\n|---|---|---|")
    for name in ("true", "random"):
        curves = []
        for seed in range(SEEDS):
            drawn = torch.randint(10, train[1].shape, generator=torch.Generator().manual_seed(seed))
            curves.append(curve(train if name == "true" else (train[0], drawn), test, seed))
        measured = torch.tensor(curves, dtype=torch.float64)
        means[name] = measured.mean(0)
        cells = [f"{100 * v.mean():.1f} % ± {100 * v.std():.1f} %" for v in measured[:, -1].unbind(-1)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
