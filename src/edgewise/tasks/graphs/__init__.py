"""Tasks with one output for each graph, and graphs as outputs."""
