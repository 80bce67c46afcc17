"""The command line's tiny runs, which wrong inputs are given to."""

from apps.conftest import own, somewhere, trained

__all__ = ["own", "somewhere", "trained"]
