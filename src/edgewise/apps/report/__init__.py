"""A run's report: a self-contained page with its figures."""
