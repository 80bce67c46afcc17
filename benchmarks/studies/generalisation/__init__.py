"""Studies of what networks learn by heart and what carries over: `python -m benchmarks.studies.generalisation.NAME`."""
