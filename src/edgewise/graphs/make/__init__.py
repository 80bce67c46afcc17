"""Graphs made from positions, content, samples and spectra."""
