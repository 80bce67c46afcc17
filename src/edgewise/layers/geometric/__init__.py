"""Layers on positions: equivariant networks and continuous filters."""
