"""Models of token sequences."""
