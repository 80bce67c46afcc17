"""Translation: sentence pairs, read side by side without padding, and judged by BLEU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError, EdgewiseError, installing
from edgewise.files import decode, gunzip, read_bytes
from edgewise.graphs import EncoderDecoderGraph, Graph, complete
from edgewise.models import Hypothesis, TokenPairs, translate
from edgewise.models.text.generation import Translator
from edgewise.tasks.core.batch import Batch, evenly
from edgewise.tasks.core.classification import Classification, cross_entropy, with_perplexity
from edgewise.tasks.core.drawing import Coloured, Content, Section, TextTable
from edgewise.tasks.core.source import Remote, find_folder, unpacked
from edgewise.tasks.core.subject import Subject, on_matrix
from edgewise.tasks.core.task import Device, Pattern
from edgewise.tasks.text.tokenization import KeepsTokenizer, Level, Tokenizer, for_library, learn_tokenizer, words

MAX_BYTES = 1 << 25
SHOWN = 8  # sentences in a report
FILES: dict[Split, str] = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
PLACE = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
HASHES = {
    "train.cs": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.cs": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.cs": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}
Direction = Literal["de-en", "en-de", "fr-en", "en-fr", "cs-en", "en-cs"]
Pair = tuple[Tensor, Tensor]  # a source, and a target from BEGIN to END


@dataclass
class PairBatch(Batch):
    """Some pairs side by side: `x` holds all sources and then all targets; `encoder` makes the graph over a source."""

    graph: EncoderDecoderGraph
    pairs: tuple[Pair, ...] = ()
    encoder: Callable[[int], Graph] = complete

    @classmethod
    def of(cls, pairs: Sequence[Pair], encoder: Callable[[int], Graph]) -> Self:
        """A target's tokens but the last are read; the outputs are compared with all but the first."""
        graph = EncoderDecoderGraph.of([len(x) for x, _ in pairs], [len(y) - 1 for _, y in pairs], encoder)
        x = torch.cat([source for source, _ in pairs] + [target[:-1] for _, target in pairs])
        target = torch.cat([target[1:] for _, target in pairs])
        return cls(graph, x, target, pairs=tuple(pairs), encoder=encoder)

    def split(self, parts: int) -> list[Self]:
        """Cut between pairs."""
        if len(self.pairs) < parts:
            return [self] * parts
        return [self.of(self.pairs[first:last], self.encoder) for first, last in evenly(len(self.pairs), parts)]


@dataclass(frozen=True)
class Manner:
    """How sentences are read and written: options of `multi30k`."""

    level: Level = "bpe"
    vocabulary: int = 8000
    lowercase: bool = True
    smoothing: float = 0.1
    beam: int = 4
    penalty: float = 0.6

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"smoothing must be at least 0 and below 1, not {self.smoothing}")
        if self.beam < 1 or self.penalty < 0:
            raise ConfigError(f"beam={self.beam} must be at least 1 and penalty={self.penalty} not negative")


class Translation(KeepsTokenizer, Classification):
    """Write the target of a source, token by token: trained on its likelihood, judged by BLEU.

    Equation    loss = −1/T Σ_t Σ_w q_t(w) log p(w | y_<t, x),  q_t = (1 − ε) [w = y_t] + ε / V;
                BLEU = 100 min(1, e^(1 − r/c)) (p₁ p₂ p₃ p₄)^¼
    Symbols     ε = smoothing; V = tokens; p_n = share of the n-grams that the reference has; c, r = length of what was
                written, and of the references
    Errors      splits of no pairs, or texts of different numbers of lines, are a `DataError`; EdgewiseError where the
                package sacrebleu is missing
    Edge cases  a pair with an empty side is left out of training and counted nowhere
    Cost        a batch costs what its tokens cost: nothing is padded, so that the order of lengths does not matter
    Reference   Vaswani et al., 2017; Papineni et al., 2002; Post, 2018 (sacrebleu, tokenisation 13a)
    """

    metric = "bleu"
    unit = "sentence pairs"

    def __init__(
        self,
        name: str,
        texts: Mapping[Split, tuple[list[str], list[str]]],
        manner: Manner,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.name, self.manner = name, manner
        self.texts = {split: _cleaned(name, split, pair, manner.lowercase) for split, pair in texts.items()}
        self.splits = {split: sources for split, (sources, _) in self.texts.items()}
        self.epoch_size = len(self.splits.get("train", ()))
        both = [text for side in self.texts.get("train", ()) for text in side]
        self.use(tokenizer or learn_tokenizer(manner.level, both, manner.vocabulary))

    def use(self, tokenizer: Tokenizer) -> None:
        """Read and write by a tokenizer."""
        self.tokenizer = tokenizer
        self._pairs: dict[Split, list[Pair]] = {}
        self.contents = f"{tokenizer.size:,} tokens ({self.manner.level}), sentence pairs"
        self.longest = max(len(text.encode()) for sides in self.texts.values() for side in sides for text in side)
        length = 2 * (self.longest + 1) + 10  # no text has more tokens than bytes; the search may write twice as many
        self.signature = TokenPairs(tokenizer.size, tokenizer.size, length=length)

    def pairs(self, split: Split) -> list[Pair]:
        """The sentences of a split as tokens, read at the first call; characters that no token is for are left out."""
        if split not in self._pairs:
            sides = (self.tokenizer.encode([*map(self.tokenizer.known, side)]) for side in self.texts[split])
            pairs = [(self._source(x), self._framed(y)) for x, y in zip(*sides, strict=True)]
            self._pairs[split] = pairs
        return self._pairs[split]

    def read(self, sources: Sequence[str]) -> list[list[int]]:
        """The tokens of source texts."""
        return self.tokenizer.encode(sources)

    def _source(self, tokens: list[int]) -> Tensor:
        return torch.tensor([*tokens, self.tokenizer.end])

    def _framed(self, tokens: list[int]) -> Tensor:
        return torch.tensor([self.tokenizer.begin, *tokens, self.tokenizer.end])

    def source_graph(self, pattern: Pattern, length: int) -> Graph:
        """The encoder's graph over a source; the data's own is complete."""
        return self.laid(pattern, complete, length)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        chosen = torch.randint(self.epoch_size, (size,), generator=generator).tolist()
        return self._batch([self.pairs("train")[number] for number in chosen], pattern, generator)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        pairs, generator = self.pairs(split), torch.Generator().manual_seed(0)
        for first in range(0, len(pairs), size):
            yield self._batch(pairs[first : first + size], pattern, generator)

    def _batch(self, pairs: Sequence[Pair], pattern: Pattern, generator: torch.Generator) -> Batch:
        return PairBatch.of([self.read_pair(pair, generator) for pair in pairs], partial(self.source_graph, pattern))

    def read_pair(self, pair: Pair, generator: torch.Generator) -> Pair:
        """A pair as a model reads it; a generator for what may vary from reading to reading, as noise does."""
        return pair

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return cross_entropy(batch.read(outputs), batch.target, smoothing=self.manner.smoothing)

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        return with_perplexity(means)

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """The BLEU of what the model writes for a split, and its length."""
        sources = [*map(self.tokenizer.known, self.texts[split][0])]
        written = self.translate(model, sources, pattern, device)
        return compared([text for text, _ in written], self.texts[split][1], self.manner.lowercase)

    def translate(
        self, model: nn.Module, sources: Sequence[str], pattern: Pattern, device: Device, at_once: int = 128
    ) -> list[tuple[str, float]]:
        """What a model writes for each source, and its score; sources of like length are searched together."""
        assert isinstance(model, Translator)
        tokens = [self._source(source).to(device) for source in self.read(sources)]
        order = sorted(range(len(tokens)), key=lambda number: len(tokens[number]))
        best: dict[int, Hypothesis] = {}
        for first in range(0, len(order), at_once):
            some = order[first : first + at_once]
            beam, penalty, encoder = self.manner.beam, self.manner.penalty, partial(self.source_graph, pattern)
            ends = self.tokenizer.begin, self.tokenizer.end
            results = translate(model, [tokens[n] for n in some], ends, beam, penalty, pattern=encoder)
            best |= zip(some, results, strict=True)
        return [(self.tokenizer.decode(best[n].tokens.tolist()), best[n].score) for n in range(len(tokens))]

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Translations", lambda: [self.translations(model, pattern)])

    def translations(self, model: nn.Module, pattern: Pattern) -> TextTable:
        """The first validation sentences, what the model writes for them, and their references."""
        sources, references = (side[:SHOWN] for side in self.texts["valid"])
        known = [*map(self.tokenizer.known, sources)]
        written = [text for text, _ in self.translate(model, known, pattern, "cpu")]
        return TextTable(["source", "written", "reference"], [*zip(sources, written, references, strict=True)])

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        ((text, score),) = self.translate(model, [self._sentence(request)], pattern, device)
        return {"source": request, "translation": text, "score": score}

    def preprocessing(self) -> dict[str, Any]:
        rows = {
            "kind": "pairs",
            "input": "a .txt file with a sentence to translate in each line, or a table of them",
            "output": "what the next token is after each of the target's: logits",
            "lowercase": self.manner.lowercase,
            "beam": self.manner.beam,
            "penalty": self.manner.penalty,
        }
        return for_library(self.tokenizer, ("end",), self.manner.lowercase) | {"rows": rows}

    def _sentence(self, request: str) -> str:
        source = request.strip().lower() if self.manner.lowercase else request.strip()
        if not source:
            raise DataError("the sentence is empty: give at least one word")
        if (count := len(self.read([source])[0])) > self.longest:
            raise DataError(
                f"a text of {count:,} tokens, of at most {self.longest:,}: translate its sentences one by one"
            )
        return source

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How likely the model's own translation is, as a whole: log p(Y | X), by what each of its tokens reads of the
        source's."""
        source = self._sentence(request)
        ((text, _),) = self.translate(model, [source], pattern, "cpu")
        x, (y,) = self._source(self.read([source])[0]), self.tokenizer.encode([text])
        batch = PairBatch.of([(x, self._framed(y))], partial(self.source_graph, pattern))
        read, written = (self._names(tokens) for tokens in (x.tolist(), batch.target.tolist()))

        def likelihood(outputs: Tensor) -> Tensor:
            return -functional.cross_entropy(outputs, batch.target, reduction="sum")

        def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
            scores = nodes.double().numpy()
            pieces = Coloured([f"{name} " for name in read], scores[: len(read)], "The source's tokens.")
            return [pieces, *on_matrix(batch.graph.cross, edges, written, read)]

        names = [*read, *(f"⟨{name}⟩" for name in self._names([self.tokenizer.begin, *y]))]
        groups = words(x.tolist(), read, self.tokenizer)
        for word, places in words([self.tokenizer.begin, *y], names[len(read) :], self.tokenizer):
            groups.append((f"⟨{word.strip('⟨⟩')}⟩", [len(read) + place for place in places]))
        what = f"log p of the translation {text!r}"
        return Subject(batch.inputs, number=likelihood, what=what, names=names, groups=groups, draw=draw)

    def _names(self, tokens: Sequence[int]) -> list[str]:
        special = {self.tokenizer.begin: "begin", self.tokenizer.end: "end"}
        return [special.get(token) or self.tokenizer.decode([token]) for token in tokens]


def compared(written: Sequence[str], references: Sequence[str], lowercase: bool) -> dict[str, float]:
    """Corpus BLEU by sacrebleu, with its own tokenisation, and the length c / r of what was written: 1 where it has as
    many words as the references.

    Example
        >>> made = compared(["a man rides a brown horse"], ["A man rides a brown horse ."], lowercase=True)
        >>> round(made["bleu"], 1), round(made["length"], 3)
        (84.6, 0.857)
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise EdgewiseError(f"BLEU is measured by sacrebleu: {installing('text')}") from error
    found = BLEU(lowercase=lowercase).corpus_score(list(written), [list(references)])
    return {"bleu": float(found.score), "length": found.sys_len / found.ref_len}


def _cleaned(name: str, split: str, sides: tuple[list[str], list[str]], lowercase: bool) -> tuple[list[str], list[str]]:
    """The pairs of which no side is empty."""
    sources, targets = sides
    if len(sources) != len(targets):
        raise DataError(f"{name}: the {split} part has {len(sources)} sources and {len(targets)} targets")
    pairs = [(x.strip(), y.strip()) for x, y in zip(sources, targets, strict=True)]
    cleaned = [(x.lower(), y.lower()) if lowercase else (x, y) for x, y in pairs if x and y]
    if not cleaned:
        raise DataError(f"{name}: the {split} part has no pair of sentences")
    return [x for x, _ in cleaned], [y for _, y in cleaned]


def multi30k(
    direction: Direction = "de-en",
    level: Level = "bpe",
    vocabulary: int = 8000,
    lowercase: bool = True,
    smoothing: float = 0.1,
    beam: int = 4,
    penalty: float = 0.6,
    pairs: int = 29_000,
    folder: str | None = None,
    download: bool = False,
) -> Translation:
    """Translate descriptions of pictures from German, French or Czech to English, or the other way.

    29,000 pairs train, 1,014 choose the weights and 1,000 test (test_2016_flickr); about 12 words each. BLEU is
    sacrebleu's, of lower-case text unless said otherwise.

    Reference   Elliott et al., "Multi30K: multilingual English-German image descriptions", 2016; Elliott et al. 2017
                (French); Barrault et al. 2018 (Czech)

    Args:
        direction: From which language to which: "de-en", "en-de", "fr-en", "en-fr", "cs-en" or "en-cs".
        level: What a token is: "bpe" (byte pairs of both languages, learned from the training sentences), "byte" or
            "character".
        vocabulary: Tokens of both languages together, for "bpe".
        lowercase: Read and write small letters only.
        smoothing: Probability that the training loss spreads over all tokens.
        beam: Unfinished translations that the search keeps for each sentence; 1: greedy.
        penalty: Exponent of the search's length penalty; a higher one writes longer.
        pairs: How many of the training pairs to use, the first ones.
        folder: Where the files train.de.gz, ..., test_2016_flickr.en.gz lie, packed or not (default: multi30k in
            $EDGEWISE_DATA, then the cache).
        download: Fetch them if they are missing, over TLS and verified by their hashes.

    Errors      a file that is missing, damaged or not UTF-8 is a `DataError` that names it.
    """
    if direction not in get_args(Direction):
        raise ConfigError(f"unknown direction {direction!r}; known are {', '.join(get_args(Direction))}")
    if pairs < 1:
        raise ConfigError(f"pairs must be at least 1, not {pairs}")
    manner = Manner(level, vocabulary, lowercase, smoothing, beam, penalty)
    languages = direction.split("-")
    place = find_folder("multi30k", multi30k_files(*languages), folder, download)
    sources, targets = (read_language(place, language) for language in languages)
    texts = {split: (sources[split], targets[split]) for split in FILES}
    texts["train"] = sources["train"][:pairs], targets["train"][:pairs]
    return Translation(f"multi30k {direction}", texts, manner)


def multi30k_files(*languages: str) -> list[Remote]:
    """The files of some languages of Multi30k, of every split."""
    names = [f"{part}.{language}" for part in FILES.values() for language in sorted(languages)]
    return [Remote(f"{name}.gz", f"{PLACE}/{name}.gz", HASHES[name], 1 << 21) for name in names]


def read_language(place: Path, language: str) -> dict[Split, list[str]]:
    """The sentences of one language of Multi30k, of every split."""
    return {split: read_lines(place / f"{part}.{language}.gz") for split, part in FILES.items()}


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text, packed by gzip or not."""
    path = unpacked(path)
    content = read_bytes(path, MAX_BYTES)
    content = gunzip(path, content, MAX_BYTES) if path.suffix == ".gz" else content
    return decode(path, content).removesuffix("\n").split("\n")
