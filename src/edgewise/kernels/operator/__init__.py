"""Kernels as PyTorch operators: their layout, dropout and second derivatives."""
