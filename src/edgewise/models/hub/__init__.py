"""Other libraries' weights."""
