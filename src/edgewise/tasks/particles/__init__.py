"""Tasks on moving particles."""
