"""A hint for a mistyped name."""

from collections.abc import Iterable
from difflib import SequenceMatcher


def nearest(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'window'?`, or nothing where nothing is near.

    Example:
        >>> nearest("windwo", ["window", "causal"])
        "; did you mean 'window'?"
        >>> nearest("gnc", ["gin", "gcn"])  # swapped letters are the commonest slip
        "; did you mean 'gcn'?"
    """
    typed = str(word)[:100]

    def likeness(name: str) -> float:
        return SequenceMatcher(None, typed, name).ratio() + (0.2 if sorted(typed) == sorted(name) else 0.0)

    best = max(known, key=likeness, default="")
    return f"; did you mean {best!r}?" if likeness(best) >= 0.6 else ""
