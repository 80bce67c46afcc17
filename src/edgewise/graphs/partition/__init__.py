"""One graph on several ranks: each holds the rows of its own nodes, and fetches those that it lacks."""
