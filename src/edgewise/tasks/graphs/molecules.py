"""Molecules as graphs: atoms attend to the atoms that they are bonded to; read from SMILES by RDKit."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgewise.data.splits import shuffled
from edgewise.data.table import read_table as read_rows_of
from edgewise.errors import DataError, EdgewiseError, installing
from edgewise.explanations import Feature
from edgewise.files import reading
from edgewise.graphs import Graph
from edgewise.tasks.core.drawing import Content, Drawing, Scores
from edgewise.tasks.core.source import local_folder
from edgewise.tasks.core.subject import HALVES, Subject
from edgewise.tasks.core.task import EXAMPLE, Pattern, given, lay
from edgewise.tasks.graphs.atoms import ATOM_FEATURES, BOND_FEATURES, atom_features, bond_features
from edgewise.tasks.graphs.prediction import GraphRegression, Graphs, Member

T = TypeVar("T")
MAX_MOLECULES = 1 << 18
MAX_SMILES = 1 << 12  # characters; RDKit takes longer than linear time


def molecule(smiles: str, crippen: bool = False) -> tuple[Graph, Tensor, Tensor]:
    """The graph of a molecule's heavy atoms, what is known of them and of their bonds.

    Shapes      SMILES with N heavy atoms and B bonds -> a graph of N nodes and 2 B edges, x [N, 39], or [N, 41]
                with `crippen`, and e [2 B, 8]
    Symbols     x, one-hot unless said otherwise: element (9 of them, or another); number of bonds (0 to 4, or more);
                number of hydrogens (0 to 3, or more); how many single, double, triple and aromatic bonds (4 counts);
                hybridisation (sp, sp2, sp3); aromatic; in a ring of 3, 4, 5, 6, 7 atoms; chirality (R, S); formal
                charge (a number); whether the charge or a radical is there; with `crippen` what the atom adds to the
                octanol-water partition coefficient (log P), and to the molar refractivity in 10 cm³/mol.
                e, in the graph's edge order: single, double, triple, aromatic; conjugated; in a ring; double bond E, Z
    Errors      DataError: not a SMILES that RDKit reads, or no atom in it; EdgewiseError where RDKit is not installed
    Edge cases  several components in one SMILES ("[Na+].[Cl-]") are one graph with no edge in between; chirality is
                R or S by the rules of Cahn, Ingold and Prelog, so the order of the atoms does not matter; their r and s
                count as R and S, so cis and trans on a ring differ too

    Example
        >>> graph, x, e = molecule("CC=O")
        >>> graph.edge_index().tolist(), e.argmax(1).tolist()
        ([[1, 0, 2, 1], [0, 1, 1, 2]], [0, 0, 1, 1])
    """
    read = parse(smiles)
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in read.GetBonds()]
    edges = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T
    graph = Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), read.GetNumAtoms())
    bonds = torch.tensor([bond_features(bond) for bond in read.GetBonds()], dtype=torch.float32).reshape(
        -1, len(BOND_FEATURES)
    )
    x = torch.tensor([atom_features(atom) for atom in read.GetAtoms()], dtype=torch.float32)
    if crippen:
        x = torch.cat([x, _crippen(read)], 1)
    return graph, x, graph.sort_edges(torch.cat([bonds, bonds]))


def parse(smiles: str) -> Any:
    """RDKit's molecule of a SMILES; a text that is none is a DataError."""
    if len(smiles) > MAX_SMILES:
        raise DataError(f"a SMILES of {len(smiles):,} characters, of at most {MAX_SMILES:,}: {smiles[:80]!r}")
    with reading(repr(smiles[:80]), "a molecule in SMILES"):
        read = rdkit().MolFromSmiles(smiles)
    if read is None or read.GetNumAtoms() == 0:
        raise DataError(f"not a molecule in SMILES: {smiles[:80]!r}")
    return read


def identity(smiles: str) -> str:
    """The spelling that all spellings of one molecule share: without atom maps, isotopes and hydrogens of their own,
    groups with their charges as RDKit's normaliser has them, and metals as ions.

    Edge cases  stereoisomers, tautomers, acids and bases with and without their protons, and salts are others

    Example
        >>> {identity(one) for one in ("CO", "[CH3:2][OH:1]", "[H]OC", "[2H]OC", "[13CH3]O")}
        {'CO'}
        >>> {identity(one) for one in ("CS(=O)C", "C[S+]([O-])C")}
        {'C[S+](C)[O-]'}
    """
    chemistry = rdkit()
    read = chemistry.Mol(parse(smiles))
    for atom in read.GetAtoms() if "[" in smiles else ():  # outside brackets none has either
        atom.SetAtomMapNum(0)
        atom.SetIsotope(0)
    hydrogens, metals, groups = _rules()
    with suppress(ValueError):  # of a structure that RDKit's rules do not know
        read = groups.normalize(metals.Disconnect(chemistry.RemoveHs(read, hydrogens)))
    # Read again, since what was an atom of its own, or a centre by its isotopes, may now be none.
    spelt = str(chemistry.MolToSmiles(read))
    with suppress(DataError):
        spelt = str(chemistry.MolToSmiles(parse(spelt)))
    return spelt


@lru_cache
def _rules() -> tuple[Any, Any, Any]:
    """Which hydrogens go, which metals are ions, and how groups with charges are written."""
    from rdkit.Chem.MolStandardize.rdMolStandardize import MetalDisconnector, Normalizer

    hydrogens = rdkit().RemoveHsParameters()
    hydrogens.removeDefiningBondStereo = True
    return hydrogens, MetalDisconnector(), Normalizer()


def scaffold(smiles: str) -> str:
    """The rings of a molecule and what links them, of whatever stereochemistry; "" without a ring.

    Reference   Bemis & Murcko, "The properties of known drugs. 1. Molecular frameworks", 1996

    Example
        >>> scaffold("Cc1ccccc1CCC2CC2O"), scaffold("CCO")
        ('c1ccc(CCC2CC2)cc1', '')
    """
    read = parse(identity(smiles))
    from rdkit.Chem.Scaffolds import MurckoScaffold

    spell: Any = MurckoScaffold.MurckoScaffoldSmiles
    return str(spell(mol=read))


def _crippen(read: Any) -> Tensor:
    """Two numbers for each atom, fitted to measured values of other molecules by Wildman & Crippen, 1999."""
    from rdkit.Chem import rdMolDescriptors

    return torch.tensor(rdMolDescriptors._CalcCrippenContribs(read), dtype=torch.float32) * torch.tensor([1.0, 0.1])


def descriptors(smiles: str) -> Tensor:
    """RDKit's description of a molecule as a whole: all of its `Descriptors`, in their order.

    Shapes      -> [D], float64; D grows with RDKit: 217 in 2026.9
    Symbols     log P and molar refractivity (Crippen), polar and other surface areas, weight, counts of atoms, rings,
                rotatable bonds, donors, acceptors and functional groups, topological and electronic indices
    Errors      as `molecule`
    Edge cases  what has no value, or an infinite one (charges of a lone atom), is 0
    Reference   Landrum et al., RDKit

    Example
        >>> from rdkit.Chem import Descriptors
        >>> names = [name for name, _ in Descriptors.descList]
        >>> round(descriptors("CCO")[names.index("MolWt")].item(), 2)
        46.07
    """
    read = parse(smiles)
    from rdkit.Chem import Descriptors

    values = torch.tensor([float(compute(read)) for _, compute in Descriptors.descList], dtype=torch.float64)
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def standardised(values: Tensor, rows: Tensor, most: float = 3.0) -> Tensor:
    """Each column with mean 0 and deviation 1 over some of the rows, as float32.

    Edge cases  a column that is the same in all of those rows is 0; what is more than `most` deviations away is `most`

    >>> standardised(torch.tensor([[1.0, 5.0], [3.0, 5.0], [90.0, 6.0]]), torch.tensor([0, 1])).tolist()
    [[-1.0, 0.0], [1.0, 0.0], [3.0, 0.0]]
    """
    chosen = values[rows].double()
    mean, deviation = chosen.mean(0), chosen.std(0, correction=0)
    scale = torch.where(deviation > 1e-9 * mean.abs(), 1 / deviation, 0.0)
    return ((values - mean) * scale).clamp(-most, most).float()


def ranked(values: Tensor, rows: Tensor) -> Tensor:
    """Where each value lies among those of some of the rows: the share of them that are less, equal ones by half.

    Shapes      [N, D], rows [R] -> [N, D], float64, from 0 to 1
    Edge cases  the order alone counts, so that an outlier is no farther away than the largest of the rows

    >>> ranked(torch.tensor([[1.0], [3.0], [3.0], [90.0]]), torch.tensor([0, 1, 2])).flatten().tolist()
    [0.16666666666666666, 0.6666666666666666, 0.6666666666666666, 1.0]
    """
    chosen, columns = values[rows].T.contiguous().sort().values, values.T.contiguous()
    less, up_to = (torch.searchsorted(chosen, columns, right=right) for right in (False, True))
    return (less + up_to).T.double() / (2 * len(rows))


def rdkit() -> Any:
    """RDKit's `Chem`, which then logs nothing."""
    try:
        from rdkit import Chem
        from rdkit.rdBase import DisableLog
    except ImportError as error:
        raise EdgewiseError(f"molecules are read by RDKit: {installing('molecules')}") from error
    DisableLog("rdApp.*")  # what is wrong with a SMILES is said by the DataError
    return Chem


def molecules(
    file: str = "delaney-processed.csv",
    smiles: str = "smiles",
    value: str = "measured log solubility in mols per litre",
    fold: int = 0,
    bonds: bool = False,
    crippen: bool = False,
    whole: bool = False,
    folder: str | None = None,
) -> GraphRegression:
    """Guess a measured property of molecules from their bonds; by default how well they dissolve (ESOL, log mol/l).

    The molecules of a CSV file, each line with a SMILES and a number, are cut at random into 80 % to train on, 10 % to
    choose the weights by and 10 % to test. ESOL has 1,128 of them.

    Reference   Delaney 2004 (data); Wu et al. 2018, "MoleculeNet" (the random split and the metric)

    Args:
        file: The table's name: a CSV, TSV or Parquet file.
        smiles: The column with the SMILES.
        value: The column with the number.
        fold: Seed of the random cut: another number, another cut.
        bonds: Give the types of bonds, for a model that reads edge features.
        crippen: Give of each atom what it adds to log P and to the molar refractivity, as Wildman and Crippen fitted
            them to other molecules: knowledge from outside the file.
        whole: Give of each molecule as a whole RDKit's descriptors and where each lies among those of the training
            part, both standardised by it, for a model that reads features of whole graphs. Some of them, too, were
            fitted to other molecules.
        folder: Where the file lies (default: esol in $EDGEWISE_DATA, then the cache).

    Errors      a file that is missing or malformed, or a SMILES that RDKit cannot read, is a `DataError` that names the
                line.
    """
    path = local_folder("esol", [file], folder) / file
    texts, values, where = read_table(path, smiles, value)
    members, x, e = zip(*read_each(where, texts, lambda text: molecule_once(text, crippen)), strict=True)
    splits = shuffled(len(texts), fold)
    u = _whole(torch.stack(read_each(where, texts, _descriptors)), splits["train"]) if whole else None
    known = torch.cat(e) if bonds else None
    graphs = Graphs(members, torch.cat(x), values, splits, names=tuple(texts), e=known, u=u)
    return Molecules(path.stem, graphs, crippen)


def _whole(values: Tensor, rows: Tensor) -> Tensor:
    """What a model reads of molecules as wholes, [G, 2 D]: descriptors have long tails, and their ranks have none."""
    return torch.cat([standardised(values, rows), standardised(ranked(values, rows), rows)], 1)


class Molecules(GraphRegression):
    """A value of each molecule; the graphs' names are SMILES, and a prediction is for one of the data or any SMILES."""

    def __init__(self, name: str, graphs: Graphs, crippen: bool = False) -> None:
        super().__init__(name, graphs)
        self.crippen = crippen

    def member(self, request: str, pattern: Pattern) -> Member:
        """A molecule of the data, as "test:7", or one by its SMILES."""
        if EXAMPLE.fullmatch(request.strip()):
            return super().member(request, pattern)
        if self.graphs.u is not None:
            raise DataError(f"{self.name}: descriptors of molecules are scaled by the data: give one as in 'test:7'")
        graph, x, e = molecule_once(request.strip(), self.crippen)
        laid = graph if given(pattern) else lay(pattern, graph.num_receivers)
        return Member(laid, x, None if self.graphs.e is None else e, None, None, {"name": request.strip()})

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        text = request.strip()
        smiles = self.graphs.names[int(self.example(text))] if EXAMPLE.fullmatch(text) else text
        return in_atoms(super().subject(model, pattern, request), smiles)


def in_atoms(subject: Subject, smiles: str) -> Subject:
    """The same of a molecule's atoms: they have names, and are drawn with their bonds as chemists draw them."""
    read, graph = parse(smiles), subject.inputs[0]
    names = [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in read.GetAtoms()]

    def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
        ends = zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True)
        bonds = [read.GetBondBetweenAtoms(i, j) if i != j else None for i, j in ends]
        orders = np.array([1 if bond is None else math.ceil(bond.GetBondTypeAsDouble()) for bond in bonds])
        given = None if edges is None else edges.double().numpy()
        symbols = [atom.GetSymbol() for atom in read.GetAtoms()]
        scores = Scores(graph, given, nodes.double().numpy(), symbols, plane(read), orders)
        halves = "" if edges is None else f" {HALVES}"
        caption = f"Atoms as circles, bonds as lines; an aromatic bond as two.{halves}"
        return [Drawing("explanation", scores, caption)]

    crippen = ("log P of Crippen", "refractivity of Crippen, 10 cm³/mol")
    known = [Feature(name) for name in (*ATOM_FEATURES, *crippen)][: subject.inputs[1].shape[-1]]
    has_bonds = len(subject.inputs) > 2 and subject.inputs[2] is not None
    bonds = [Feature(f"bond {name}") for name in BOND_FEATURES] if has_bonds else []
    absent = f"no property of any atom{' or bond' if bonds else ''}"
    return replace(subject, names=names, draw=draw, features=known, edge_features=bonds, absent=absent)


def plane(read: Any) -> NDArray[np.float64]:
    """Where RDKit draws the atoms of a molecule: [N, 2]."""
    from rdkit.Chem import rdDepictor

    rdDepictor.Compute2DCoords(read)
    return np.array(read.GetConformer().GetPositions()[:, :2], dtype=np.float64)


molecule_once = lru_cache(maxsize=10_000)(molecule)  # another fold reads the same molecules
_descriptors = lru_cache(maxsize=10_000)(descriptors)


def read_each(where: Sequence[str], texts: Sequence[str], read: Callable[[str], T]) -> list[T]:
    """What `read` makes of each SMILES of a file; a DataError about one names its line.

    Symbols     where = what the line of each is called
    """
    made = []
    for line, text in zip(where, texts, strict=True):
        try:
            made.append(read(text))
        except DataError as error:
            raise DataError(f"{line}: {error}") from error
    return made


def read_table(path: Path, smiles: str, value: str) -> tuple[list[str], Tensor, list[str]]:
    """The SMILES and the numbers [N], in float64, of a table, and what its lines are called."""
    table = read_rows_of(path, (smiles, value))
    if len(table) > MAX_MOLECULES:
        raise DataError(f"{path}: more than the {MAX_MOLECULES:,} molecules that such a file may have")
    if len(table) < 10:
        raise DataError(f"{path}: at least 10 molecules are needed, this file has {len(table)}")
    return table.texts(smiles), torch.from_numpy(table.numbers(value)), [table.at(row) for row in range(len(table))]
