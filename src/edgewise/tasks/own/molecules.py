"""Molecules of one's own from a table with a column of SMILES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.data.lines import Problems
from edgewise.data.splits import Splits
from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Pattern, given, lay
from edgewise.tasks.graphs.molecules import in_atoms, molecule_once, rdkit
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.graphs.smiles import canonical
from edgewise.tasks.own.examples import Own, OwnExamples, targets_of
from edgewise.tasks.own.fitting import labels_in, names_in, settle
from edgewise.tasks.own.record import Fitted
from edgewise.tasks.own.rows import Asked, Rows, given_table, read_rows

SMILES = ("smiles", "canonical_smiles", "canonicalsmiles", "isomeric_smiles", "structure")
Read = tuple[tuple[Graph, ...], Tensor, Tensor]


class OwnMolecules(OwnExamples):
    """Molecules of one's own; a prediction is for one of the data, or for any SMILES."""

    asked: Asked

    def elsewhere(self, place: Path) -> OwnMolecules:
        rows, read = read_molecules(place, replace(self.asked, labelled=False))
        return task_of(rows, read, self.own.fitted, {}, (), (self.asked, self.graphs.e is not None))

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
    rows, read = read_molecules(given_table(file, asked.unit), asked)
    same = [canonical(text) for text in rows.inputs["smiles"]]
    fitted, splits, changes = settle(rows, like, target, fold, same)
    return task_of(rows, read, fitted, splits, changes, (asked, bonds))


def read_molecules(path: Path, asked: Asked) -> tuple[Rows, Read]:
    """The rows of a table, their graphs, and the features of atoms and bonds."""
    problems: list[str] = []
    rows = read_rows(path, asked, problems)
    rdkit()  # where it is missing, no line is to blame
    made, found = [], Problems()
    for text, where in zip(rows.inputs["smiles"], rows.where, strict=True):
        try:
            made.append(molecule_once(text) if text else None)
        except DataError as error:
            found.add(f"{where}: {error}")
    if problems := [*problems, *found.sentences()]:
        raise DataError(*problems)
    members, x, e = zip(*(one for one in made if one), strict=True)
    return rows, (members, torch.cat(x), torch.cat(e))


def task_of(
    rows: Rows, read: Read, fitted: Fitted, splits: Splits, changes: Sequence[str], how: tuple[Asked, bool]
) -> OwnMolecules:
    """The task of molecules that were read.

    Symbols     how = what of a table is wanted, and whether bonds are read
    """
    asked, bonds = how
    members, x, e = read
    names = tuple(rows.inputs["smiles"])
    graphs = Graphs(members, x, targets_of(rows, fitted), splits, names=names, e=e if bonds else None)
    task = OwnMolecules(rows.files[0].stem, graphs, Own(rows, fitted, tuple(changes)))
    task.asked = asked
    return task
