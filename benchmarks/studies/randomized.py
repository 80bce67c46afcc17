"""What a memory budget of the backward pass saves, and what it adds to the variance of the gradient.

python -m benchmarks.studies.randomized

The first step of the recipe `digits-randomized`: one batch of 128 digits, widths 64, 256, 256, 10. Bytes are those that
the backward pass waits with, weights and the batch itself aside. Variances are summed over all weights and divided by
the squared length of the exact gradient of the batch; that of the mini-batch is over batches drawn anew.
"""

import torch
from torch import Tensor, nn

from edgewise.layers import MLP, RandomizedMLP
from edgewise.tasks import digits

SIZES, BATCH, DRAWS = [64, 256, 256, 10], 128, 100


def gradient(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    loss = nn.functional.cross_entropy(model(x), target)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def remembered(model: nn.Module, x: Tensor) -> int:
    """Bytes of distinct memory that the backward pass waits with."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()} | {x.untyped_storage().data_ptr()}
    found: dict[int, Tensor] = {}

    def pack(t: Tensor) -> Tensor:
        found[t.untyped_storage().data_ptr()] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model(x).sum()
    return sum(t.untyped_storage().nbytes() for place, t in found.items() if place not in known)


if __name__ == "__main__":
    torch.manual_seed(0)
    task, exact, generator = digits(patch=0), MLP(SIZES), torch.Generator().manual_seed(0)

    def drawn() -> tuple[Tensor, Tensor]:
        batch = task.train_batch(BATCH, generator)
        assert isinstance(batch.x, Tensor)
        return batch.x.flatten(1), batch.target.flatten()

    x, target = drawn()
    full = gradient(exact, x, target)
    batches = torch.stack([gradient(exact, *drawn()) for _ in range(DRAWS)])
    print(f"mini-batch: variance / squared gradient {batches.var(0).sum() / full.square().sum():.2f}\n")
    print("| keep | bytes remembered | of the exact network's | variance / squared gradient |\n|---|---|---|---|")
    for keep in (1.0, 0.5, 0.25, 0.1, 0.05):
        model = RandomizedMLP(SIZES, keep)
        model.load_state_dict(exact.state_dict())
        draws = torch.stack([gradient(model, x, target) for _ in range(DRAWS)])
        share = draws.var(0).sum() / full.square().sum()
        size = remembered(model, x)
        print(f"| {keep:g} | {size:,} | {size / remembered(exact, x):.0%} | {share:.2f} |")
