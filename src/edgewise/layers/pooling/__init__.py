"""Layers that make few nodes, or one, of many."""
