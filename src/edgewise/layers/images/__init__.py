"""Layers on images: windows of pixels, residual blocks, and convolutions over groups and scales."""
