"""Edgewise beside its peers: cases, contenders, and a harness that times them side by side."""
