"""Tasks on graphs whose nodes and edges have types."""
