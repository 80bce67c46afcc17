"""Claims of the reference documents, each a script that measures, prints and draws one:
`python -m benchmarks.studies.claims.NAME`."""
