"""What learned positions have learned: can a linear map read the position from its vector, and are near ones alike?

python -m benchmarks.studies.claims.learned

The vectors of 64 positions: as drawn, of sinusoids, and of the recipe shakespeare-positions after 1,000 steps with
learned positions (seed 0). A ridge regression predicts each position from its vector, fitted on seven eighths of the
positions and read on the others: the mean distance, and the share of pairs of left-out positions that it orders
rightly. Then the mean cosine of neighbours and of positions far apart.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from edgewise import causal, training
from edgewise.apps import options, recipes
from edgewise.layers import Sinusoidal

LENGTH, WIDTH, STEPS, FOLDS = 64, 64, 1_000, 8
NEAR, FAR = 1, 32


def drawn() -> Tensor:
    return 0.02 * torch.randn(LENGTH, WIDTH, generator=torch.Generator().manual_seed(0))


def sinusoids() -> Tensor:
    return Sinusoidal(WIDTH)(causal(LENGTH), torch.zeros(LENGTH, WIDTH))


def learned(steps: int = STEPS) -> Tensor:
    """The vectors of a small GPT's positions."""
    chosen = [("model.positions", "learned"), ("train.steps", str(steps)), ("evaluation.every", str(steps))]
    config = options.configure(recipes.read("shakespeare-positions"), chosen)
    with tempfile.TemporaryDirectory() as folder:
        result = training.train(config, Path(folder) / "run", progress=False)
        model = training.load_run(result.run).model
    return model.get_parameter("positions.weight").detach()


VECTORS: dict[str, Callable[[], Tensor]] = {"as drawn": drawn, "sinusoids": sinusoids, "learned": learned}


def probe(vectors: Tensor, folds: int = FOLDS, ridge: float = 1.0) -> tuple[float, float]:
    """Mean distance of the predicted from the true position, and the share of left-out pairs in the right order."""
    x = vectors.double() - vectors.double().mean(0)
    x = x / x.square().mean().sqrt()
    p = torch.arange(len(x), dtype=torch.float64)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    distances, right = [], []
    for out in order.chunk(folds):
        rest = torch.ones(len(x), dtype=torch.bool).index_fill(0, out, False)
        a, mean = x[rest], p[rest].mean()
        gram = a.T @ a + ridge * torch.eye(a.shape[1], dtype=a.dtype)
        predicted = mean + x[out] @ torch.linalg.solve(gram, a.T @ (p[rest] - mean))
        distances.append((predicted - p[out]).abs())
        pairs = torch.combinations(torch.arange(len(out)))
        first, second = pairs.T
        right.append((predicted[first] < predicted[second]) == (p[out][first] < p[out][second]))
    return torch.cat(distances).mean().item(), torch.cat(right).double().mean().item()


def cosines(vectors: Tensor) -> Tensor:
    """The cosine of each two vectors around their mean."""
    x = torch.nn.functional.normalize(vectors.double() - vectors.double().mean(0), dim=-1)
    return x @ x.T


def likeness(cosine: Tensor) -> tuple[float, float]:
    """The mean cosine of neighbours, and of positions far apart."""
    apart = (torch.arange(len(cosine))[:, None] - torch.arange(len(cosine))).abs()
    return cosine[apart == NEAR].mean().item(), cosine[apart >= FAR].mean().item()


def measure(vectors: dict[str, Tensor]) -> dict[str, tuple[float, float, float, float]]:
    """Distance, order, and likeness near and far of each, printed as a table."""
    print("| vectors | distance | pairs in order | cosine of neighbours | of 32 or more apart |\n|---|---|---|---|---|")
    found = {}
    for name, own in vectors.items():
        found[name] = (*probe(own), *likeness(cosines(own)))
        distance, order, near, far = found[name]
        print(f"| {name} | {distance:.1f} | {100 * order:.0f} % | {near:.2f} | {far:.2f} |", flush=True)
    return found


def main() -> None:
    measure({name: make() for name, make in VECTORS.items()})


if __name__ == "__main__":
    main()
