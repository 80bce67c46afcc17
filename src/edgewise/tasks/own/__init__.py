"""One's own data: how tables became examples and targets, what a run keeps of that, a task for each kind of file."""
