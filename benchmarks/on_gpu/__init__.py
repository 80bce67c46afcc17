"""What benchmarks/gpu.py is made of: a clock, an oracle, problems, and who solves them."""
