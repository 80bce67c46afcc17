"""Models of graphs."""
