"""Claims of the reference documents, each a script: `python -m benchmarks.studies.claims.NAME`."""
