"""A hint for a mistyped name."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'window'?`, or nothing where nothing is near.

    Example:
        >>> nearest("windwo", ["window", "causal"])
        "; did you mean 'window'?"
    """
    found = get_close_matches(str(word)[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""
