"""Backends in Triton, for NVIDIA GPUs."""
