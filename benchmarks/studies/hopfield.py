"""How many patterns a continuous Hopfield network gives back: the share it does not, over their number and dimension.

python -m benchmarks.studies.hopfield

Patterns lie at random on a sphere of radius √(C − 1), β = 1. Up to 200 are asked for with Gaussian noise of 0.3 a
channel; one step must bring each back to within a tenth of its length.
"""

import torch

from edgewise.layers import ContinuousHopfield

CHANNELS, PATTERNS, ASKED = (8, 12, 16, 24, 32, 64), (10, 100, 1_000, 10_000, 100_000), 200


def error(channels: int, patterns: int) -> float:
    """The share of patterns that are not given back."""
    generator = torch.Generator().manual_seed(0)
    stored = torch.randn(patterns, channels, generator=generator)
    stored *= (channels - 1) ** 0.5 / stored.norm(dim=-1, keepdim=True)
    asked = stored[:ASKED]
    noisy = asked + 0.3 * torch.randn(asked.shape, generator=generator)
    found = ContinuousHopfield(stored, 1.0).recall(noisy, steps=1)
    return ((found - asked).norm(dim=-1) > 0.1 * asked.norm(dim=-1)).double().mean().item()


def main() -> None:
    errors = {channels: [error(channels, count) for count in PATTERNS] for channels in CHANNELS}
    print(f"| channels | {' | '.join(f'{count:,}' for count in PATTERNS)} |\n|---|{'---|' * len(PATTERNS)}")
    for channels, shares in errors.items():
        print(f"| {channels} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |")


if __name__ == "__main__":
    main()
