"""Molecules as texts: masked characters of SMILES, and a measured property guessed from them; RDKit respells them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Generator, Tensor

from edgewise.data.splits import shuffled
from edgewise.errors import ConfigError
from edgewise.models.signature import Tokens
from edgewise.tasks.core.batch import DisjointBatch
from edgewise.tasks.core.source import local_folder
from edgewise.tasks.core.task import EXAMPLE, Pattern
from edgewise.tasks.graphs.molecules import parse, rdkit, read_each, read_table
from edgewise.tasks.graphs.prediction import GraphRegression, Graphs, Member
from edgewise.tasks.text.denoising import MaskedTokens, framed, text_graph
from edgewise.tasks.text.tokenization import CharacterTokenizer, KeepsTokenizer, Tokenizer, for_library

# All characters of SMILES, so that every file of molecules has the same tokens.
ALPHABET = "#$%()*+-./0123456789:=@ABCDEFGHIKLMNOPRSTUVWXYZ[\\]abcdefghiklmnoprstuvy"
TOKENIZER = CharacterTokenizer(ALPHABET)
ESOL = "measured log solubility in mols per litre"


_molecule = lru_cache(maxsize=1 << 14)(parse)  # every epoch respells the same molecules


def canonical(smiles: str) -> str:
    """The one spelling of a molecule that RDKit prefers; what is not a molecule is a DataError.

    Example
        >>> canonical("OCC"), canonical("C(C)O")
        ('CCO', 'CCO')
    """
    return str(rdkit().MolToSmiles(_molecule(smiles)))


def respelt(smiles: str, generator: Generator) -> str:
    """Another spelling of the same molecule: it begins at any atom and takes branches in any order.

    Reference   Arús-Pous et al., "Randomized SMILES strings improve the quality of molecular generative models", 2019

    Example
        >>> draw = torch.Generator().manual_seed(0)
        >>> {canonical(respelt("CCO", draw)) for _ in range(9)}
        {'CCO'}
    """
    seed = int(torch.randint(1, 2**31 - 1, (), generator=generator))
    return str(rdkit().MolToRandomSmilesVect(_molecule(smiles), 1, randomSeed=seed)[0])


class SmilesRegression(KeepsTokenizer, GraphRegression):
    """A property of molecules from their SMILES: a text is a complete graph over its characters and two ends.

    Shapes      a token that begins, the n of a SMILES (its characters, unless a model brings its own tokens), one that
                ends: n + 2 nodes
    Errors      DataError for a SMILES longer than `length`
    Edge cases  each molecule is respelt each time it is read to train (where `respell`), and read in its canonical
                spelling to validate and to test; a spelling that is too long is replaced by the canonical one
    Reference   Chithrananda et al., "ChemBERTa", 2020
    """

    def __init__(self, name: str, graphs: Graphs, length: int, respell: bool = True) -> None:
        self.name, self.respell, self.length = name, respell, length
        self.graphs = graphs
        self.use(TOKENIZER)

    def use(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, graphs = tokenizer, self.graphs
        read = [self._framed(text) for text in tokenizer.encode(graphs.names)]
        members = tuple(text_graph(None, len(text)) for text in read)
        super().__init__(self.name, replace(graphs, members=members, x=torch.cat(read)))
        width, classes = self.signature.outputs, self.signature.classes
        self.signature = Tokens(tokenizer.size, width, length=self.length, whole_graph=True, classes=classes)

    def _framed(self, tokens: Sequence[int]) -> Tensor:
        return framed(self.name, tokens, self.length, (self.tokenizer.begin, self.tokenizer.end))

    def member(self, request: str, pattern: Pattern) -> Member:
        """A molecule of the data, as "test:7", or one by its SMILES, which is read in its canonical spelling."""
        if EXAMPLE.fullmatch(request.strip()):
            return super().member(request, pattern)
        text = canonical(request.strip())
        x = self._framed(self.tokenizer.encode([text])[0])
        return Member(text_graph(pattern, len(x)), x, None, None, None, {"name": text})

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | for_library(self.tokenizer) | {"spelling": "canonical (RDKit)"}

    @property
    def varies(self) -> bool:
        return self.respell

    def batch(self, numbers: Tensor, pattern: Pattern, generator: Generator | None = None) -> DisjointBatch:
        if generator is None or not self.respell:
            return super().batch(numbers, pattern)
        spelt = self.tokenizer.encode([respelt(self.graphs.names[number], generator) for number in numbers.tolist()])
        texts = [
            self._framed(tokens) if len(tokens) + 2 <= self.length else self._x[number]
            for number, tokens in zip(numbers.tolist(), spelt, strict=True)
        ]
        members = tuple(text_graph(pattern, len(text)) for text in texts)
        return DisjointBatch.of(members, torch.cat(texts), self.graphs.targets[numbers])


def masked_smiles(
    file: str = "delaney-processed.csv",
    smiles: str = "smiles",
    value: str = ESOL,
    fold: int = 0,
    share: float = 0.15,
    length: int = 128,
    respell: bool = True,
    folder: str | None = None,
) -> MaskedTokens:
    """Guess masked characters of molecules' SMILES, each respelt at random whenever it is read; no label is read.

    The molecules are cut as for `smiles` with the same fold, so that this never reads what is tested there.

    Reference   Delaney 2004 (data); Chithrananda et al., "ChemBERTa", 2020

    Args:
        file: The table's name: a CSV, TSV or Parquet file.
        smiles: The column with the SMILES.
        value: A column with a number, which is not used.
        fold: Seed of the random cut: another number, another cut.
        share: How likely a character is to be guessed.
        length: Most characters of a spelling, with its two ends.
        respell: Whether to respell what trains; validation and test read the canonical spelling.
        folder: Where the file lies (default: esol in $EDGEWISE_DATA, then the cache).

    Errors      a file that is missing or malformed, or a SMILES that RDKit cannot read, is a `DataError` that names the
                line; DataError for a SMILES longer than `length`
    """
    name, texts, _ = _read(file, smiles, value, folder)
    cut = shuffled(len(texts), fold)
    parts = {split: [texts[number] for number in rows.tolist()] for split, rows in cut.items()}
    return MaskedTokens(f"masked {name}", parts, TOKENIZER, length, share, respelt if respell else None)


def smiles(
    file: str = "delaney-processed.csv",
    smiles: str = "smiles",
    value: str = ESOL,
    fold: int = 0,
    labels: int = 902,
    length: int = 128,
    respell: bool = True,
    folder: str | None = None,
) -> SmilesRegression:
    """Guess a measured property of molecules from their SMILES as texts; by default solubility (ESOL, log mol/l).

    Reference   as `molecules`, whose cuts these are

    Args:
        file: The table's name: a CSV, TSV or Parquet file.
        smiles: The column with the SMILES.
        value: The column with the number.
        fold: Seed of the random cut: another number, another cut.
        labels: How many of the training molecules to read, chosen at random by the fold, where there are more.
        length: Most characters of a spelling, with its two ends.
        respell: Whether to respell what trains; validation and test read the canonical spelling.
        folder: Where the file lies (default: esol in $EDGEWISE_DATA, then the cache).

    Errors      as `masked_smiles`; ConfigError for less than one label
    """
    if labels < 1:
        raise ConfigError(f"labels must be at least 1, not {labels}")
    name, texts, values = _read(file, smiles, value, folder)
    cut = shuffled(len(texts), fold)
    order = torch.randperm(len(cut["train"]), generator=Generator().manual_seed(fold))
    cut["train"] = cut["train"][order[:labels]].sort().values
    graphs = Graphs((), torch.empty(0), values, cut, names=tuple(texts))  # x by the tokenizer
    return SmilesRegression(f"smiles {name}", graphs, length, respell)


def _read(file: str, smiles: str, value: str, folder: str | None) -> tuple[str, list[str], Tensor]:
    """The file's name without its ending, the molecules in their canonical spelling, and the numbers."""
    path = local_folder("esol", [file], folder) / file
    texts, values, where = read_table(path, smiles, value)
    return path.stem, read_each(where, texts, canonical), values
