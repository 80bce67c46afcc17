"""Tensors whose numbers are computed when they are read, so that what nobody reads is never computed."""
