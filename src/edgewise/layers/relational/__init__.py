"""Edges of several kinds: layers that treat each relation in its own way."""
