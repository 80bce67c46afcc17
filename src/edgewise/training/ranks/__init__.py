"""What several ranks have in common while they train: statistics of nodes that they share."""
