"""Texts as numbers, how often each word of a vocabulary is in them; it needs NumPy alone."""

import re
from collections.abc import Sequence
from typing import Any

import numpy

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
