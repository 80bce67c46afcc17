"""One's own data: a task for each kind of files, which `edgewise.data` reads."""
