"""What every task shares: batches, losses, sources and tables."""
