"""Tasks with one output for each node."""
