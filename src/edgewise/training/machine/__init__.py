"""How training uses the machine: its threads, batches made ahead of time, and steps of a GPU captured whole."""
