"""Texts and molecules of one's own, to classify or to measure: a table with a column of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.data import record
from edgewise.data.examples import Asked, Examples, columns_of_inputs, few_rows, given_table, read_examples
from edgewise.data.options import on_own
from edgewise.data.record import Fitted, Settled, labels_in, names_in, with_validation
from edgewise.data.rows import Row
from edgewise.data.splits import Cut, How, MoleculeCut
from edgewise.data.table import SHOWN, Problems, Table
from edgewise.errors import ConfigError, DataError, counted
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.models.signature import Tokens
from edgewise.tasks.core.abilities import Rows
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Pattern, given, lay
from edgewise.tasks.graphs.atoms import ATOM_FEATURES, BOND_FEATURES
from edgewise.tasks.graphs.molecules import identity, in_atoms, molecule_once, parse, rdkit, scaffold
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.own.graphs import Files, Made, OwnExamples, T
from edgewise.tasks.own.images import classed_files
from edgewise.tasks.own.several import Several
from edgewise.tasks.text.denoising import in_tokens, text_graph
from edgewise.tasks.text.language import read_text
from edgewise.tasks.text.tokenization import (
    TOKENIZER,
    KeepsTokenizer,
    Level,
    Tokenizer,
    for_library,
    kept_tokenizer,
    learn_tokenizer,
)

TEXTS = ("text", "texts", "sentence", "review", "comment", "content", "message", "body", "document")
MAX_TOKENS = 1 << 16
MAX_BYTES = 1 << 28  # of all texts together
MAX_FILES = 1 << 17
ENDING = ".txt"  # of the files of a folder
TOGETHER = 256  # texts that become tokens at once


class OwnTokens(KeepsTokenizer):
    """A task of one's own texts, of which a run keeps the tokens too."""

    kept: tuple[str, ...] = (*record.FILES, TOKENIZER)
    private: tuple[str, ...] = record.FILES
    own: Settled

    def keep(self, run: Path) -> None:
        self.own.keep(run)
        super().keep(run)


class TableFiles(Files[T, Made]):
    """A table with a column of inputs."""

    def few(self, settled: Settled, inputs: T) -> Mapping[str, bytes | Path]:
        return {f"{settled.given.files[0].stem}.csv": few_rows(settled.given, settled.first, self.asked.ignore)}


@dataclass(frozen=True)
class TextRows(TableFiles[None, Made]):
    """A table of texts, and how they become tokens."""

    level: Level = "bpe"  # what a token is
    vocabulary: int = 4000  # tokens, for byte pairs
    length: int = 256  # most tokens of a text, with its two ends
    lowercase: bool = False  # whether only small letters are read
    truncate: bool = False  # whether what a text has beyond that is left out
    tokenizer: Tokenizer | None = None  # the tokens; None: they are learned from the texts that train

    def __post_init__(self) -> None:
        if not 3 <= self.length <= MAX_TOKENS:
            raise ConfigError(f"task.length must be from 3 to {MAX_TOKENS:,}, not {self.length}")

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, None]:
        problems = list[str]()
        rows = read_examples(place, self.asked, problems)
        if problems:
            raise DataError(*problems)
        return rows, None

    def same(self, examples: Examples, inputs: None) -> Sequence[object]:
        return self.letters(examples.inputs["text"])

    def letters(self, texts: Sequence[str]) -> list[str]:
        """Texts in the letters that are read."""
        return [text.lower() if self.lowercase else text for text in texts]

    def learned(self, texts: Sequence[str], train: Tensor) -> Tokenizer:
        """The tokens that are given, or else those of the texts that train; characters are those of all."""
        if self.tokenizer is None and self.level == "bpe":
            texts = [texts[number] for number in train.tolist()]
        return self.tokenizer or learn_tokenizer(self.level, texts, self.vocabulary)

    def framed(self, given: Examples, texts: Sequence[str], tokenizer: Tokenizer) -> tuple[list[Tensor], list[str]]:
        """The tokens of each text between its two ends; and how many are read without the end, in a line, if any are.

        Errors      DataError for the rows of all texts that are too long
        """
        made, problems, shortened = list[Tensor](), Problems(), 0
        for number, found in enumerate(encoded(tokenizer, texts)):
            try:
                if isinstance(found, DataError):
                    raise found
                tokens, whole = self.within(tokenizer, found)
            except DataError as error:
                problems.add(f"{given.at(number)}: {error}")
                continue
            shortened += not whole
            made.append(tokens)
        problems.check()
        cut = f"{counted(shortened, 'text')} of more than {self.length:,} tokens, read without the end"
        return made, [cut] if shortened else []

    def within(self, tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[Tensor, bool]:
        """A token that begins, those of a text, one that ends; and whether these are all of it.

        Errors      DataError for more than `length` tokens where texts are not to be cut
        """
        most = self.length - 2
        if len(tokens) > most and not self.truncate:
            advice = "give --task.truncate true, or a larger --task.length"
            raise DataError(f"a text of {len(tokens):,} tokens, of at most {most:,}: {advice}")
        return torch.tensor([tokenizer.begin, *tokens[:most], tokenizer.end]), len(tokens) <= most

    def to_plain(self, own: Settled) -> dict[str, Any]:
        return {
            "kind": "texts",
            "unit": "text",
            "input": "a table with a column of texts, or a .txt file with a text in each line",
            "length": self.length,
            "truncate": self.truncate,
            "lowercase": self.lowercase,
            "found": dict(own.given.found),
        }


@dataclass(frozen=True)
class TextFiles(TextRows["OwnTexts"]):
    """A table of texts with targets, or a folder of texts for each class."""

    fold: int = 0  # seed of the cut of what trains, where folders name the parts but for validation

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, None]:
        if not place.is_dir():
            return super().read(place, fitted)
        rows = texts_in(place, "texts", self.asked.labelled)
        return replace(rows, splits=with_validation(rows.splits, self.fold, rows.inputs["text"])), None

    def task(self, settled: Settled, inputs: None) -> OwnTexts:
        return OwnTexts(settled, self)


def texts_in(place: Path, unit: str, labelled: bool) -> Examples:
    """The texts of a folder, each a file; with their classes where these are folders."""
    rows = classed_files(place, unit, (ENDING,), MAX_FILES, labelled)
    texts, others = zip(*map(read_text, rows.files), strict=True)
    if sum(map(len, texts)) > MAX_BYTES:
        raise DataError(f"{place}: its texts are more than {MAX_BYTES:,} characters")
    notes = [f"{name}{note}" for name, note in zip(rows.names or (), others, strict=True) if note]
    found, inputs = {"text": "text", "id": "id"}, {"text": list(texts)}
    return replace(rows, inputs=inputs, found=found, notes=(*rows.notes, *notes[:SHOWN]))


class OwnRows(OwnExamples):
    """Examples of which each is one cell of a table."""

    def columns_in(self, table: Table) -> tuple[str, str, str]:
        """What the inputs are, their column, and the one that names them, or nothing."""
        columns, named_by = columns_of_inputs(table, self.how.asked)
        ((meaning, column),) = columns.items()
        return meaning, column, named_by

    def made(self, row: Row, pattern: Pattern) -> Member:
        """A new example by the cell of its column, as training called that or by its meaning."""
        (meaning,) = self.how.asked.inputs
        return self.read(input_of(row, meaning, self), pattern)


class OwnTexts(OwnTokens, OwnRows):
    """Texts of one's own, each a graph over its tokens and two ends, complete unless the recipe says otherwise.

    Shapes      a token that begins, the n of a text, one that ends: n + 2 nodes
    """

    form = '{"text": TEXT}'

    how: TextFiles

    def __init__(self, own: Settled, files: TextFiles) -> None:
        self.texts = files.letters(own.given.inputs["text"])
        y = Several.of(own.fitted).values(own.given.targets, own.weights, len(own.given))
        none = Graphs((), torch.empty(0, 1), y, own.splits)
        super().__init__(own.given.files[0].stem, none, own, files)
        self.use(files.learned(self.texts, own.splits.get("train", torch.empty(0))))

    def use(self, tokenizer: Tokenizer) -> None:
        """Read by a tokenizer."""
        self.tokenizer, given = tokenizer, self.own.given
        x, cut = self.how.framed(given, self.texts, tokenizer)
        members = tuple(text_graph(None, len(one)) for one in x)
        self.graphs = replace(self.graphs, members=members, x=torch.cat(x))
        self._x = self.graphs.x.split([len(one) for one in x])
        width, length, classes = self.several.width, self.how.length, bool(self.classes)
        self.signature = Tokens(tokenizer.size, width, length=length, whole_graph=True, classes=classes)
        longest = max(len(one) for one in x)
        self.contents = f"{tokenizer.size:,} tokens ({self.how.level}), texts of {longest:,} of them at most"
        self.summary = (self.describe(), *map(str, self.own.fitted.targets), *given.notes, *cut)

    @cached
    def members(self, pattern: Pattern = None) -> tuple[Graph, ...]:
        return tuple(text_graph(pattern, len(x)) for x in self._x)

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | for_library(self.tokenizer, lowercase=self.how.lowercase)

    def elsewhere(self, place: Path, labelled: bool = False) -> OwnTexts:
        return replace(self.how, tokenizer=self.tokenizer).elsewhere(place, self.own.fitted, labelled)

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        subject = super().subject(model, pattern, request)
        return in_tokens(subject, self.member(request, pattern).x, self.tokenizer)

    def rows(self, numbers: Tensor) -> Iterator[Rows]:
        """The texts as they are read."""
        yield Rows("texts", [self.texts[number] for number in numbers.tolist()], ("words",))

    def known(self, number: int) -> dict[str, Any]:
        return super().known(number) | {"input": self.own.given.inputs["text"][number]}

    def reads(self, request: str) -> bool:
        return True

    def read(self, request: str, pattern: Pattern) -> Member:
        if not request.strip():
            raise DataError("the text is empty: give at least one letter")
        x, _ = self.how.within(self.tokenizer, self.tokenizer.encode(self.how.letters([request]))[0])
        return Member(text_graph(pattern, len(x)), x, None, None, None, {"input": request})


@on_own("text")
def text_table(
    file: str = "texts.csv",
    text: str = "",
    label: str = "",
    target: Literal["auto", "class", "number"] = "auto",
    fold: int = 0,
    ignore: str = "",
    level: Literal["bpe", "byte", "character"] = "bpe",
    vocabulary: int = 4000,
    length: int = 256,
    lowercase: bool = False,
    truncate: bool = False,
    like: str = "",
    id: str = "",
    cut: Cut = "auto",
    folds: int = 0,
    group: str = "",
    time: str = "",
    sample_weight: str = "",
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> GraphClassification:
    """Guess the class of your own texts, or a quantity, or several of them: from a table with a column of texts.

    The table is a CSV, TSV or Parquet file; or a folder has a folder of `.txt` files for each class, or `train`, `test`
    and perhaps `valid`, each with such folders (without `valid` a fifth of what trains chooses the weights). Of several
    targets (`--task.label stars,topic`) each may be missing in some rows. Without a column `split` the texts are cut
    into 60 % to train, 20 % to choose the weights by and 20 % to test (80, 10 and 10 % of 1,000 and more); equal texts
    are in one part. A run keeps the tokens, parts, classes and scales.

    Args:
        file: The table, or the folder.
        level: What a token is: "bpe" (byte pairs, learned from the texts that train), "byte" or "character" (of any of
            the texts).

    Errors      a file that is missing or malformed is a `DataError` with all that is wrong, and so are texts longer
                than `length`, unless they are to be cut
    """
    labels, ignored = labels_in(label, like), frozenset(names_in(ignore))
    asked = Asked("texts", {"text": TEXTS}, {"text": text}, labels, id, ignored, skip=bad_rows == "skip")
    asked = replace(asked, weights=sample_weight)
    how = How(cut, fold, folds, group, time)
    files = TextFiles(asked, level, vocabulary, length, lowercase, truncate, tokenizer_of(like), fold)
    return files.settle(str(given_table(file, asked.unit)), like, target, how)


def encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int] | DataError]:
    """The tokens of each text, some of which are read at once, or why it has none."""
    for first in range(0, len(texts), TOGETHER):
        some = texts[first : first + TOGETHER]
        try:
            yield from tokenizer.encode(some)
        except DataError as error:
            if len(some) == 1:
                yield error
            else:
                yield from (one for text in some for one in encoded(tokenizer, [text]))


def tokenizer_of(run: str) -> Tokenizer | None:
    """The tokens that a run has kept, or None."""
    return kept_tokenizer(Path(run).expanduser()) if run else None


def input_of(row: Row, meaning: str, task: Any) -> str:
    """The cell of a row with an input, by its column's name in a task's own data or by its meaning."""
    column = next((name for name in (task.own.given.found.get(meaning), meaning) if name in row), None)
    if column is None:
        raise DataError(f"a row of {task.name} is {task.form}, and it has {', '.join(row) or 'nothing'}")
    return "" if row[column] is None else str(row[column])


SMILES = ("smiles", "canonical_smiles", "canonicalsmiles", "isomeric_smiles", "structure")
BITS = 2048  # of a fingerprint
Molecule = tuple[Graph, Tensor, Tensor]


class OwnMolecules(OwnRows):
    """Molecules of one's own; a prediction is for one of the data, or for any SMILES."""

    form = '{"smiles": SMILES}'

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        known = self.member(request, pattern).known
        return in_atoms(super().subject(model, pattern, request), known["smiles"])

    def rows(self, numbers: Tensor) -> Iterator[Rows]:
        """Sums and counts, and which environments of up to two bonds around an atom there are (Morgan, 2,048 bits)."""
        yield from super().rows(numbers)
        from rdkit.Chem import rdFingerprintGenerator

        morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)
        names = [self.graphs.names[number] for number in numbers.tolist()]
        x = np.stack([morgan.GetFingerprintAsNumPy(parse(name)) for name in names])
        yield Rows("Morgan fingerprints", x, ("forest",))

    def known(self, number: int) -> dict[str, Any]:
        return super().known(number) | {"smiles": self.graphs.names[number]}

    def reads(self, request: str) -> bool:
        return not request.isdigit()

    def read(self, request: str, pattern: Pattern) -> Member:
        graph, x, e = molecule_once(request)
        laid = graph if given(pattern) else lay(pattern, graph.num_receivers)
        return Member(laid, x, None if self.graphs.e is None else e, None, None, {"smiles": request})


@dataclass(frozen=True)
class MoleculeFiles(TableFiles[list[Molecule], OwnMolecules]):
    """A table of molecules."""

    bonds: bool = False  # whether types of bonds are read

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, list[Molecule]]:
        problems = list[str]()
        rows = read_examples(place, self.asked, problems)
        rdkit()  # where it is missing, no line is to blame
        made, wrong = list[Molecule](), dict[int, str]()
        for number, text in enumerate(rows.inputs["smiles"]):
            try:
                made += [molecule_once(text)] if text else []
            except DataError as error:
                wrong[number] = f"{rows.at(number)}: {error}"
        if problems := [*problems, *(() if self.asked.skip else Problems(wrong.values()).sentences())]:
            raise DataError(*problems)
        return rows.without(wrong), made

    def same(self, examples: Examples, inputs: list[Molecule]) -> Sequence[object]:
        return [identity(text) for text in examples.inputs["smiles"]]

    def to_plain(self, own: Settled) -> dict[str, Any]:
        return {
            "kind": "molecules",
            "unit": "molecule",
            "input": "a table with a column of SMILES, or a .txt file with a SMILES in each line",
            "columns": list(ATOM_FEATURES),
            "edge_columns": list(BOND_FEATURES) if self.bonds else [],
            "both_ways": True,
            "parallel": "keep",
            "found": dict(own.given.found),
        }

    def scaffolds(self, examples: Examples) -> Sequence[object]:
        return [scaffold(text) for text in examples.inputs["smiles"]]

    def task(self, settled: Settled, inputs: list[Molecule]) -> OwnMolecules:
        members, x, e = zip(*inputs, strict=True)
        names, known = tuple(settled.given.inputs["smiles"]), torch.cat(e) if self.bonds else None
        y = Several.of(settled.fitted).values(settled.given.targets, settled.weights, len(settled.given))
        graphs = Graphs(members, torch.cat(x), y, settled.splits, names=names, e=known)
        return OwnMolecules(settled.given.files[0].stem, graphs, settled, self)


@on_own("molecule")
def molecule_table(
    file: str = "molecules.csv",
    smiles: str = "",
    label: str = "",
    target: Literal["auto", "class", "number"] = "auto",
    fold: int = 0,
    ignore: str = "",
    bonds: bool = False,
    like: str = "",
    id: str = "",
    cut: MoleculeCut = "auto",
    folds: int = 0,
    group: str = "",
    time: str = "",
    sample_weight: str = "",
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> GraphClassification:
    """Guess classes or quantities of your own molecules, one or several: from a table with a column of SMILES.

    The table is a CSV, TSV or Parquet file. Of several targets (`--task.label logp,toxic`) each may be missing in some
    rows: the loss is over those that are known, and each has its own measures. Without a column `split` the molecules
    are cut into 60 % to train, 20 % to choose the weights by and 20 % to test (80, 10 and 10 % of 1,000 and more), all
    rows of one molecule in one part, however it is spelt. A run keeps the parts, classes and scales, as with
    `node-folder`.

    Args:
        file: The table.
        smiles: The column with the SMILES. Empty: `smiles`, `structure`, ...
        bonds: Give the types of bonds, for a model that reads edge features.
        cut: How to cut: "random"; "stratified", with equal shares of each class; by "group" or "time"; by "scaffold",
            all of one (Bemis & Murcko, 1996) in one part; "given", as a column `split` says. "auto": as that or what
            is named below says, else stratified where there is one target of classes, else random.

    Errors      a file that is missing or malformed is a `DataError` with all that is wrong, each SMILES that RDKit
                cannot read with its line; EdgewiseError where RDKit is not installed
    """
    labels, ignored = labels_in(label, like), frozenset(names_in(ignore))
    asked = Asked("molecules", {"smiles": SMILES}, {"smiles": smiles}, labels, id, ignored, skip=bad_rows == "skip")
    asked = replace(asked, weights=sample_weight)
    how = How(cut, fold, folds, group, time)
    return MoleculeFiles(asked, bonds).settle(str(given_table(file, asked.unit)), like, target, how)
