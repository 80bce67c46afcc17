"""Molecules of one's own from a table with a column of SMILES."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.data.examples import Asked, Examples, given_table, read_examples
from edgewise.data.record import Fitted, Settled, labels_in, names_in
from edgewise.data.table import Problems
from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Pattern, given, lay
from edgewise.tasks.graphs.molecules import in_atoms, molecule_once, rdkit
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.own.graphs import Files, OwnExamples, targets_of
from edgewise.tasks.text.smiles import canonical

SMILES = ("smiles", "canonical_smiles", "canonicalsmiles", "isomeric_smiles", "structure")
Molecule = tuple[Graph, Tensor, Tensor]


class OwnMolecules(OwnExamples):
    """Molecules of one's own; a prediction is for one of the data, or for any SMILES."""

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        known = self.member(request, pattern).known
        return in_atoms(super().subject(model, pattern, request), known["smiles"])

    def known(self, number: int) -> dict[str, Any]:
        return super().known(number) | {"smiles": self.graphs.names[number]}

    def reads(self, request: str) -> bool:
        return not request.isdigit()

    def read(self, request: str, pattern: Pattern) -> Member:
        """A molecule by its SMILES."""
        graph, x, e = molecule_once(request)
        laid = graph if given(pattern) else lay(pattern, graph.num_receivers)
        return Member(laid, x, None if self.graphs.e is None else e, None, None, {"smiles": request})


@dataclass(frozen=True)
class MoleculeFiles(Files[list[Molecule], OwnMolecules]):
    """A table of molecules."""

    bonds: bool = False  # whether types of bonds are read

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, list[Molecule]]:
        problems = list[str]()
        rows = read_examples(place, self.asked, problems)
        rdkit()  # where it is missing, no line is to blame
        made, wrong = list[Molecule](), Problems()
        for number, text in enumerate(rows.inputs["smiles"]):
            try:
                made += [molecule_once(text)] if text else []
            except DataError as error:
                wrong.add(f"{rows.at(number)}: {error}")
        if problems := [*problems, *wrong.sentences()]:
            raise DataError(*problems)
        return rows, made

    def same(self, examples: Examples, inputs: list[Molecule]) -> Sequence[object]:
        return [canonical(text) for text in examples.inputs["smiles"]]

    def task(self, settled: Settled, inputs: list[Molecule]) -> OwnMolecules:
        members, x, e = zip(*inputs, strict=True)
        names, known = tuple(settled.given.inputs["smiles"]), torch.cat(e) if self.bonds else None
        graphs = Graphs(members, torch.cat(x), targets_of(settled), settled.splits, names=names, e=known)
        return OwnMolecules(settled.given.files[0].stem, graphs, settled, self)


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
) -> GraphClassification:
    """Guess classes or quantities of your own molecules, one or several: from a table with a column of SMILES.

    The table is a CSV, TSV or Parquet file. Of several targets (`--task.label logp,toxic`) each may be missing in some
    rows: the loss is over those that are known, and each has its own measures. Without a column `split` the molecules
    are cut at random into 60 % to train, 20 % to choose the weights by and 20 % to test, all rows of one molecule in
    one part, however it is spelt. A run keeps the parts, classes and scales, as with `node-folder`.

    Args:
        file: The table.
        smiles: The column with the SMILES. Empty: `smiles`, `structure`, ...
        label: The columns with targets, with commas between them. Empty: those of `like`, else `label`,
            `target`, or the only one left.
        target: Whether labels are classes or numbers. "auto": numbers with fractions are a quantity, texts and up to 20
            different whole numbers classes; of more whole numbers it must be said.
        fold: Seed of the random cut: another number, another cut.
        ignore: Columns that are not read, with commas between them.
        bonds: Give the types of bonds, for a model that reads edge features.
        like: A run folder: its parts, classes and scales are taken.
        id: The column that names the molecules. Empty: `id`, `name`, ..., or they are their rows.

    Errors      a file that is missing or malformed is a `DataError` with all that is wrong, each SMILES that RDKit
                cannot read with its line; EdgewiseError where RDKit is not installed
    """
    labels, ignored = labels_in(label, like), frozenset(names_in(ignore))
    asked = Asked("molecules", {"smiles": SMILES}, {"smiles": smiles}, labels, id, ignored)
    return MoleculeFiles(asked, bonds).settle(str(given_table(file, asked.unit)), like, target, fold)
