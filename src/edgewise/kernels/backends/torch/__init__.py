"""Backends in plain PyTorch, for any device."""
