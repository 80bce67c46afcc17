"""Tasks on token sequences."""
