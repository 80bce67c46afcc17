"""Texts as numbers: truth values, dates, and how often each word of a vocabulary is in them; it needs NumPy alone."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy

UNKNOWN = frozenset(("", "na", "n/a", "nan", "null", "?"))  # labels, whatever their case, of what has none
MISSING = UNKNOWN | {"none", "-"}  # other cells; a class may be called none
TRUTHS = (("true", "false"), ("t", "f"), ("yes", "no"), ("y", "n"), ("on", "off"), ("ja", "nein"), ("oui", "non"))
BOOLEAN = {word: value for pair in TRUTHS for word, value in zip(pair, (1.0, 0.0), strict=True)}
ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})([T ].*)?", re.ASCII)
EUROPEAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})", re.ASCII)
SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})", re.ASCII)
DAY = 86400.0  # seconds
ENDS = (  # what the ends of an edge are called, the sender first
    ("sender", "receiver"),
    ("source", "target"),
    ("from", "to"),
    ("src", "dst"),
    ("source_id", "target_id"),
    ("from_id", "to_id"),
    ("u", "v"),
    ("node1", "node2"),
)
TOKEN = re.compile(r"\b\w\w+\b")


def tfidf(texts: Sequence[str], words: Sequence[str], weights: Sequence[float]) -> numpy.ndarray[Any, Any]:
    """Texts [N] as features [N, C], one for each word.

    Equation    x_w = n_w idf_w / ‖n idf‖₂, as scikit-learn's `TfidfVectorizer` has it
    Symbols     n_w = how often a text has the word, in small letters; weights = idf
    Edge cases  a text with none of the words is 0

    >>> tfidf(["A dog, a DOG and a cat"], ["cat", "dog"], [1.0, 2.0]).round(3).tolist()
    [[0.243, 0.97]]
    """
    place = {word: number for number, word in enumerate(words)}
    made = numpy.zeros((len(texts), len(words)))
    for row, text in enumerate(texts):
        for word in TOKEN.findall(text.lower()):
            if word in place:
                made[row, place[word]] += weights[place[word]]
    length = numpy.sqrt(numpy.square(made).sum(1, keepdims=True))
    return made / numpy.where(length > 0, length, 1)


def day_of(text: str, day_first: bool) -> float:
    """Days from 1970 to a date, NaN for what is none; day_first = whether 3/4/2024 is in April.

    >>> day_of("2.1.1970", False), day_of("1970-1-3 12:00", False)
    (1.0, 2.5)
    """
    try:
        if match := ISO.fullmatch(text):
            when = datetime.fromisoformat(
                f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}{match[4] or ''}".replace(" UTC", "+00:00")
            )
        elif match := EUROPEAN.fullmatch(text):
            when = datetime(int(match[3]), int(match[2]), int(match[1]))
        elif match := SLASHED.fullmatch(text):
            month, day = (2, 1) if day_first else (1, 2)
            when = datetime(int(match[3]), int(match[month]), int(match[day]))
        else:
            return float("nan")
    except ValueError:
        return float("nan")
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() / DAY
