"""Contenders of attention, sums and samples on the edges of a graph."""
