"""Tasks on pairs of nodes."""
