"""Layers that need no graph: linear maps, perceptrons, low-rank and randomised layers."""
