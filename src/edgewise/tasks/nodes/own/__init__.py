"""Graphs of one's own: what their tables say, how it became features and targets, and what a run keeps of that."""
