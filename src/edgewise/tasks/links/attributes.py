"""What tables say of users, items or entities: features beside the numbers that embeddings are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy
from torch import Tensor

from edgewise.data import record
from edgewise.data.columns import Encoding, features, fit, width
from edgewise.data.examples import Described, Kinds, read_described, table_of
from edgewise.data.record import KEPT, Fitted
from edgewise.data.rows import Row, cells_of

Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Attributes:
    """Tables about the nodes of a task, by what these are, such as users and items; and how each becomes features."""

    tables: Mapping[str, Described]
    encodings: Mapping[str, tuple[Encoding, ...]]

    @classmethod
    def fit(cls, tables: Mapping[str, Described], names: Names, train: Mapping[str, Tensor]) -> Self:
        """Features by the rows of those that train.

        Symbols     names = of all nodes of a kind; train = which of them train
        """
        encodings = {
            what: fit(table.of(names[what]), train[what].unique().numpy(), scale=True) for what, table in tables.items()
        }
        return cls(tables, encodings)

    @classmethod
    def kept(cls, tables: Mapping[str, Described], fitted: Fitted) -> Self:
        """As a run has kept them: see `fitted`."""
        return cls(tables, {what: _of(what, fitted) for what in tables})

    @property
    def fitted(self) -> Fitted:
        """What a run keeps of them."""
        named = (replace(one, name=f"{what}.{one.name}") for what, each in self.encodings.items() for one in each)
        return Fitted((), tuple(named))

    @property
    def files(self) -> dict[str, bytes]:
        """The tables, with the columns that are read."""
        return {
            f"{what}.csv": table_of(
                {what: table.names}
                | {one.name: one.texts(np.arange(len(table.names))) for one in table.columns if one.name != what}
            )
            for what, table in self.tables.items()
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """How the tables were read, in lines."""
        return tuple(f"{table.path.name}: {note}" for table in self.tables.values() for note in table.notes)

    def matrix(self, names: Names) -> Any:
        """The features of all nodes, one kind after the other, [N, C], each kind in its own columns."""
        blocks = [
            scipy.sparse.csr_array(features(self.tables[what].of(own), self.encodings[what]))
            if what in self.tables
            else scipy.sparse.csr_array((len(own), 0))
            for what, own in names.items()
        ]
        return scipy.sparse.block_diag(blocks, format="csr")

    def asked(self, what: str, row: Row) -> bool:
        """Whether a row has all that is known of a node of a kind."""
        return what in self.tables and all(one.name in row for one in self.encodings[what])

    def row(self, what: str, row: Row) -> Any:
        """The features of a new node [1, C], in the columns of its kind."""
        blocks = [
            scipy.sparse.csr_array(features(cells_of(row, {one.name: one.kind for one in each}, what), each))
            if kind == what
            else scipy.sparse.csr_array((1, width(each)))
            for kind, each in self.encodings.items()
        ]
        return scipy.sparse.hstack(blocks, format="csr")


def read_attributes(
    places: Mapping[str, Path | None], usual: Mapping[str, Sequence[str]], ignore: Set[str], like: str
) -> dict[str, Described]:
    """The tables that there are, or those that a run had: its own copies, else where they lie now.

    Symbols     places = by what their rows are about; usual = what the column that names these may be called; like =
                the run's folder, or empty
    """
    made = dict[str, Described]()
    for what, place in places.items():
        known: Kinds | None = None
        if like:
            run = Path(like).expanduser()
            known = {one.name: one.kind for one in _of(what, record.read(run))}
            copied = run / KEPT / f"{what}.csv"
            place = (copied if copied.is_file() else place or copied) if known else None
        if place:
            made[what] = read_described(place, what, usual[what], ignore, known)
    return made


def more_names(names: Sequence[str], table: Described | None) -> tuple[str, ...]:
    """Names in their order, and after them those that only a table has."""
    return tuple(dict.fromkeys([*names, *(table.names if table else ())]))


def one_hot(trained: Tensor, known: Any = None) -> Any:
    """What embeddings are made of: the number of each node [N], and what is known of it [N, C], [N, N + C] in all.

    Symbols     trained [N] = which nodes occur in training
    Edge cases  where nodes have features, the embedding of one that trained nothing is made of these alone
    """
    if known is None:
        return scipy.sparse.eye_array(len(trained), format="csr")
    numbers = scipy.sparse.diags_array(trained.double().numpy(), format="csr")
    numbers.eliminate_zeros()
    return scipy.sparse.hstack([numbers, known], format="csr")


def _of(what: str, fitted: Fitted) -> tuple[Encoding, ...]:
    """The encodings of one kind."""
    start = f"{what}."
    return tuple(replace(one, name=one.name[len(start) :]) for one in fitted.columns if one.name.startswith(start))
