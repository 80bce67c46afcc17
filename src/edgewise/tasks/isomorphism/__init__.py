"""Graphs that are hard to tell apart."""
