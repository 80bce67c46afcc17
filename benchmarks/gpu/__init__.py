"""What `python -m benchmarks --device cuda` is made of: a clock, an oracle, problems, and who solves them."""
