"""What models need whose graph several ranks share: `python -m benchmarks.ranks`, and the same under `torchrun`."""
