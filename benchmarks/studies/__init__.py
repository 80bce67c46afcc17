"""Questions that a page of the documentation answers, each a script: `python -m benchmarks.studies.NAME`."""
