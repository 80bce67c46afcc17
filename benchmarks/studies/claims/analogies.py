"""Words as vectors: is the difference of two forms the same from word to word, so that one tells the other?

python -m benchmarks.studies.claims.analogies

How much more often than by chance two words stand near each other in Multi30k's English training captions (positive
pointwise mutual information), factorised by its largest singular values: a vector for each word that occurs 20 times
(Levy & Goldberg, 2014). Pairs of forms are found by their spelling: holds and holding, girl and girls. One half of the
pairs of each kind chooses the window, the number of channels and the exponent of the singular values, and gives the
difference that is asked for; of each pair of the other half the second word is due, as the word whose vector has the
largest cosine with the first one's plus that difference, among all words.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.tasks.core.source import find_folder
from edgewise.tasks.text.translation import multi30k_files, read_language

OFTEN, OFTEN_PAIR, SMOOTHING = 20, 30, 0.75  # occurrences of a word, and of a word in a pair; exponent of contexts
WINDOWS, CHANNELS, EXPONENTS = (1, 2, 4), (50, 100, 200), (0.5, 1.0)

Pair = tuple[str, str]
Choice = tuple[int, int, float]  # window, channels, exponent


def captions() -> list[list[str]]:
    """The words of the training captions."""
    lines = read_language(find_folder("multi30k", multi30k_files("de", "en"), None, False), "en")["train"]
    return [re.findall(r"[a-z]+(?:-[a-z]+)*", line.lower()) for line in lines]


def participles(stem: str) -> list[str]:
    """How a verb's present participle may be spelt.

    >>> participles("run"), participles("ride"), participles("climb")
    (['running', 'runing'], ['riding'], ['climbing'])
    """
    if stem.endswith("e"):
        return [f"{stem[:-1]}ing"]
    doubled = [f"{stem}{stem[-1]}ing"] if re.search(r"(^|[^aeiou])[aeiou][^aeiouwxy]$", stem) else []
    return [*doubled, f"{stem}ing"]


def forms(counts: Counter[str], least: int = OFTEN_PAIR) -> dict[str, list[Pair]]:
    """Pairs of verbs (holds, holding) and of nouns (girl, girls), sorted; a noun is what has no participle."""
    known = {word for word, count in counts.items() if count >= least}
    verbs = {
        (word, other)
        for word in known
        if word.endswith("s")
        for stem in (word[:-1], word[:-2])
        if word == f"{stem}s" or re.search(r"(s|sh|ch|x|z)$", stem)
        for other in participles(stem)
        if other in known
    }
    finite = {verb for verb, _ in verbs}
    nouns = {
        (word, f"{word}s")
        for word in known
        if f"{word}s" in known - finite and len(word) > 2 and not set(participles(word)) & counts.keys()
    }
    return {"verbs": sorted(verbs), "nouns": sorted(nouns)}


def information(texts: Sequence[list[str]], words: Sequence[str], window: int) -> Tensor:
    """Positive pointwise mutual information of each two words at most `window` words apart: [words, words]."""
    number = {word: n for n, word in enumerate(words)}
    near: Counter[tuple[int, int]] = Counter()
    for text in texts:
        own = [number.get(word, -1) for word in text]
        for apart in range(1, window + 1):
            near.update(zip(own, own[apart:], strict=False))
    ends = torch.tensor([pair for pair in near if min(pair) >= 0]).T
    count = torch.tensor([near[pair] for pair in near if min(pair) >= 0], dtype=torch.float64)
    together = torch.zeros(len(words), len(words), dtype=torch.float64)
    together.index_put_((ends[0], ends[1]), count)
    together = together + together.T
    contexts = together.sum(0) ** SMOOTHING
    chance = together.sum(1, keepdim=True) * (contexts / contexts.sum())
    return torch.where(together > 0, (together / chance).log(), 0.0).clamp_min(0)


def solved(vectors: Tensor, difference: Tensor, pairs: Tensor) -> Tensor:
    """Whether the nearest word to the first one's vector plus the difference, itself left out, is the second: [P]."""
    cosine = functional.normalize(vectors[pairs[:, 0]] + difference, dim=-1) @ vectors.T
    cosine[torch.arange(len(pairs)), pairs[:, 0]] = -1
    return cosine.argmax(-1) == pairs[:, 1]


def left_out(vectors: Tensor, pairs: Tensor) -> Tensor:
    """For each pair the mean difference of the others: [P, C]."""
    own = vectors[pairs[:, 1]] - vectors[pairs[:, 0]]
    return (own.sum(0) - own) / (len(own) - 1)


class Words:
    """Vectors of the words of some texts, and the pairs of forms among them, half to choose and half to test.

    Args:
        texts: Texts, as lists of words.
        least: How often a word occurs at least, and a word of a pair.
    """

    def __init__(self, texts: Sequence[list[str]], least: tuple[int, int] = (OFTEN, OFTEN_PAIR)) -> None:
        counts = Counter(word for text in texts for word in text)
        self.words = sorted(word for word, count in counts.items() if count >= least[0])
        self.number = {word: n for n, word in enumerate(self.words)}
        self.factors = {w: torch.linalg.svd(information(texts, self.words, w))[:2] for w in WINDOWS}
        self.pairs = forms(counts, least[1])

    def vectors(self, choice: Choice) -> Tensor:
        """Rows of length 1: [words, channels]."""
        window, channels, exponent = choice
        left, values = self.factors[window]
        return functional.normalize(left[:, :channels] * values[:channels] ** exponent, dim=-1)

    def halves(self, kind: str) -> tuple[Tensor, Tensor]:
        """Numbers of the pairs to choose by, and of those to test: [P, 2] each."""
        found = torch.tensor([[self.number[word] for word in pair] for pair in self.pairs[kind]])
        order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))
        first, second = order.chunk(2)
        return found[first], found[second]

    def chosen(self, kind: str) -> Choice:
        """The choice that solves most of the first half, each pair by the difference of the others."""
        known, _ = self.halves(kind)

        def right(choice: Choice) -> float:
            vectors = self.vectors(choice)
            return solved(vectors, left_out(vectors, known), known).double().mean().item()

        return max(product(WINDOWS, CHANNELS, EXPONENTS), key=right)

    def measure(self, kind: str) -> dict[str, float]:
        """Shares of the second half that are solved: by the first half's mean difference, by single ones, by none."""
        choice, (known, asked) = self.chosen(kind), self.halves(kind)
        vectors = self.vectors(choice)
        own = vectors[known[:, 1]] - vectors[known[:, 0]]
        single = torch.stack([solved(vectors, difference, asked) for difference in own])
        found = {
            "mean": solved(vectors, own.mean(0), asked),
            "single": single,
            "alone": solved(vectors, torch.zeros_like(own[0]), asked),
        }
        shares = {name: right.double().mean().item() for name, right in found.items()}
        names = "window", "channels", "exponent"
        return shares | {"pairs": len(asked)} | dict(zip(names, map(float, choice), strict=True))


def measure(words: Words) -> dict[str, dict[str, float]]:
    print("| pairs | asked | window, channels, exponent | mean difference | a single one | nearest word |")
    print("|---|---|---|---|---|---|")
    found = {kind: words.measure(kind) for kind in words.pairs}
    for kind, own in found.items():
        example = ", ".join(words.pairs[kind][len(words.pairs[kind]) // 2])
        choice = f"{own['window']:.0f}, {own['channels']:.0f}, {own['exponent']:g}"
        shares = " | ".join(f"{100 * own[name]:.1f} %" for name in ("mean", "single", "alone"))
        print(f"| {kind} ({example}) | {own['pairs']:.0f} | {choice} | {shares} |")
    return found


def main() -> None:
    torch.set_num_threads(1)
    measure(Words(captions()))


if __name__ == "__main__":
    main()
