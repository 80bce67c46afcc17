"""Layers on positions: equivariant networks, continuous filters and group convolutions."""
