"""Molecules from SMILES: graphs, features, the random cut, and what is refused."""

from pathlib import Path

import pytest
import torch

from edgewise import Graph
from edgewise.errors import DataError
from edgewise.models import GNN, GNNSettings
from edgewise.tasks.graphs.atoms import ELEMENTS
from edgewise.tasks.graphs.molecules import descriptors, molecule, molecules

pytest.importorskip("rdkit")


def write(folder: Path, lines: list[str]) -> str:
    (folder / "mine.csv").write_text("\n".join(["name,smiles,melts", *lines]), encoding="utf-8")
    return str(folder)


LINES = [f'"m, {carbons}",{"C" * carbons}O,{carbons}.5' for carbons in range(1, 21)]


def test_a_molecule_is_the_graph_of_its_bonds() -> None:
    graph, x, e = molecule("C1CC1C#N")
    assert graph.num_receivers == 5
    assert graph.dense_mask().int().tolist() == [
        [0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 1], [0, 0, 0, 1, 0],
    ]  # fmt: skip
    assert (x.shape, e.shape) == ((5, 39), (10, 8))
    assert x[:, ELEMENTS.index("N")].tolist() == [0, 0, 0, 0, 1]
    single, triple, in_three = x[:, 21], x[:, 23], x[:, 29]
    assert single.tolist() == [2, 2, 3, 1, 0]
    assert triple.tolist() == [0, 0, 0, 1, 1]
    assert in_three.tolist() == [1, 1, 1, 0, 0]
    of_bond = torch.zeros(5, 5, 8).index_put((graph.receivers, graph.senders), e)
    assert torch.equal(of_bond, of_bond.transpose(0, 1))  # a bond is the same from either end
    assert of_bond[:, :, 2].nonzero().tolist() == [[3, 4], [4, 3]]  # the triple one
    assert of_bond[:, :, 5].nonzero().tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]  # in the ring


@pytest.mark.parametrize(
    ("cis", "trans"),
    [
        ("C[C@H]1CC[C@@H](C)CC1", "C[C@H]1CC[C@H](C)CC1"),
        ("C[C@H]1C[C@@H](C)C1", "C[C@H]1C[C@H](C)C1"),
        ("[C@H]12CCCC[C@@H]1CCCC2", "[C@H]12CCCC[C@H]1CCCC2"),
        ("C[C@H]1C[C@H]1C", "C[C@H]1C[C@@H]1C"),
        ("C/C=C\\C", "C/C=C/C"),
        ("C1CCC/C=C\\CC1", "C1CCC/C=C/CC1"),
    ],
)
def test_cis_and_trans_differ_in_features_and_other_spellings_do_not(cis: str, trans: str) -> None:
    from rdkit import Chem

    def told(smiles: str) -> list[list[float]]:
        _, x, e = molecule(smiles)
        return sorted(x.tolist()) + sorted(e.tolist())

    assert told(cis) != told(trans)
    for smiles in (cis, trans):
        other = Chem.MolToSmiles(Chem.MolFromSmiles(smiles), rootedAtAtom=2)
        assert told(other) == told(smiles)


def test_what_atoms_add_is_rdkits_sum_over_the_molecule(tmp_path) -> None:
    from rdkit import Chem
    from rdkit.Chem.rdMolDescriptors import CalcCrippenDescriptors

    for smiles in ("CCO", "c1ccccc1C(=O)[O-]", "[Na+].[Cl-]", "FC(Cl)=CC#N"):
        x = molecule(smiles, crippen=True)[1]
        assert torch.equal(x[:, :39], molecule(smiles)[1])
        log_p, refractivity = CalcCrippenDescriptors(Chem.MolFromSmiles(smiles), includeHs=False)
        assert x[:, 39].sum().item() == pytest.approx(log_p, abs=1e-5)
        assert x[:, 40].sum().item() == pytest.approx(refractivity / 10, abs=1e-5)
    folder = write(tmp_path, LINES)
    widths = [molecules("mine.csv", value="melts", folder=folder, crippen=c).signature.inputs for c in (False, True)]
    assert widths == [39, 41]


def test_descriptors_are_rdkits_and_standardised_by_the_molecules_that_train(tmp_path) -> None:
    from rdkit import Chem
    from rdkit.Chem import Descriptors

    names = [name for name, _ in Descriptors.descList]
    for smiles in ("CCO", "c1ccccc1C(=O)[O-]", "[Na+].[Cl-]", "C"):
        u, peer = descriptors(smiles), Descriptors.CalcMolDescriptors(Chem.MolFromSmiles(smiles))
        assert u.shape == (len(names),) and bool(u.isfinite().all())
        for name in ("MolWt", "MolLogP", "TPSA", "NumHDonors", "RingCount", "FractionCSP3", "fr_benzene"):
            assert u[names.index(name)].item() == pytest.approx(peer[name])
    task = molecules("mine.csv", value="melts", folder=write(tmp_path, LINES), whole=True)
    u, train = task.graphs.u, task.graphs.splits["train"]
    assert u is not None and task.signature.whole == 2 * len(names)
    weight = u[:, names.index("MolWt")]
    assert weight[train].mean().item() == pytest.approx(0, abs=1e-6)
    assert weight[train].std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert bool((weight.diff() > 0).all())  # a longer chain is heavier
    assert not u[:, names.index("RingCount") :: len(names)].any()  # none has a ring
    ranks = u[:, len(names) + names.index("MolWt")]
    assert bool((ranks.diff() >= 0).all())
    assert bool((ranks[train.sort().values].diff() > 0).all())
    (batch,) = task.batches("test", 10)
    assert torch.equal(batch.u, u[task.graphs.splits["test"]])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch Geometric's
def test_the_peer_says_the_same_of_real_molecules(data) -> None:
    """PyTorch Geometric's from_smiles, which asks RDKit on its own: bonds, elements, degrees, hydrogens, charges."""
    from rdkit import Chem
    from torch_geometric.utils import from_smiles

    data("esol")
    table = Chem.GetPeriodicTable()
    for smiles in molecules().graphs.names[::37]:
        theirs, (graph, x, e) = from_smiles(smiles), molecule(smiles)
        kinds = {1: 0, 2: 1, 3: 2, 12: 3}  # their numbers of single, double, triple and aromatic bonds
        bonds = {
            (*ends, kinds[kind], bool(conjugated))
            for ends, (kind, _, conjugated) in zip(theirs.edge_index.T.tolist(), theirs.edge_attr.tolist(), strict=True)
        }
        ours = zip(graph.edge_index().T.tolist(), e[:, :4].argmax(1).tolist(), e[:, 4].bool().tolist(), strict=True)
        assert {(*ends, kind, conjugated) for ends, kind, conjugated in ours} == bonds
        symbols = [ELEMENTS[int(row.argmax())] if row[:9].any() else None for row in x[:, :10]]
        for symbol, atom in zip(symbols, theirs.x[:, 0].tolist(), strict=True):
            assert symbol is None or symbol == table.GetElementSymbol(atom)
        bonded, hydrogens = x[:, 10:16].argmax(1), x[:, 16:21].argmax(1)
        assert torch.equal(bonded + hydrogens, theirs.x[:, 2])  # theirs counts hydrogens as neighbours
        assert torch.equal(hydrogens, theirs.x[:, 4])


def test_a_file_of_ones_own(tmp_path) -> None:
    task = molecules("mine.csv", value="melts", folder=write(tmp_path, LINES))
    assert task.graphs.names[2] == "CCCO"
    assert task.graphs.targets[2] == 3.5
    assert {split: len(rows) for split, rows in task.graphs.splits.items()} == {"train": 16, "valid": 2, "test": 2}
    assert task.signature.edges == 0
    (batch,) = molecules("mine.csv", value="melts", folder=str(tmp_path), bonds=True).batches("train", 16)
    assert batch.e is not None and batch.e.shape == (batch.graph.num_edges, 8)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([*LINES, "x,notamolecule,1"], "line 22: not a molecule in SMILES: 'notamolecule'"),
        ([*LINES, "x,,1"], "line 22: not a molecule"),
        ([*LINES, "x,C,high"], "line 22: melts is 'high', not a finite number"),
        ([*LINES, "x,C"], "line 22 does not have 3 columns"),
        ([*LINES, "x,C,nan"], "line 22: melts is 'nan', not a finite number"),
        (["", "", *LINES, "x,C1,1"], "line 24: not a molecule in SMILES: 'C1'"),
        (["", "", *LINES, "x,C,high"], "line 24: melts is 'high'"),
        (LINES[:5], "at least 10 molecules"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, lines: list[str], told: str) -> None:
    with pytest.raises(DataError, match=told):
        molecules("mine.csv", value="melts", folder=write(tmp_path, lines))


def test_esol_is_what_its_paper_says(data) -> None:
    data("esol")
    task = molecules()
    assert len(task.graphs.members) == 1128
    assert task.graphs.targets.mean().item() == pytest.approx(-3.0501, abs=1e-3)


class Mean(torch.nn.Module):
    def forward(self, graph: Graph, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(graph.sizes), 1)


def test_an_explanation_is_drawn_as_chemists_draw_the_molecule(tmp_path) -> None:
    (tmp_path / "mine.csv").write_text("smiles,melts\n" + "".join(f"CC=O,{n}\n" for n in range(20)), "utf-8")
    task = molecules("mine.csv", value="melts", folder=str(tmp_path))
    subject = task.subject(Mean(), None, "test:0")
    assert list(subject.names) == ["C0", "C1", "O2"]
    assert list(task.subject(Mean(), None, "OCC").names) == ["O0", "C1", "C2"]
    for given in (None, torch.tensor([0.5, -1.0, 2.0, 0.25])):
        (drawing,) = subject.draw(given, torch.tensor([1.0, 2.0, 3.0]))
        graph, edges, nodes, names, places, orders, _ = drawing.figure
        assert (edges is None) if given is None else edges.tolist() == given.tolist()
        assert nodes.tolist() == [1, 2, 3] and list(names) == ["C", "C", "O"] and places.shape == (3, 2)
        double = [{i, j} == {1, 2} for i, j in zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True)]
        assert orders.tolist() == [2 if both else 1 for both in double]


@pytest.mark.parametrize("options", [{"bonds": True}, {"crippen": True}])
def test_any_molecule_is_predicted_by_its_smiles(options: dict[str, bool], tmp_path: Path) -> None:
    task = molecules(file="mine.csv", value="melts", folder=write(tmp_path, LINES), **options)
    layer = "gine" if "bonds" in options else "gin"
    model = GNN(GNNSettings(layer, width=4, readout="sum"), task.signature)
    names = [task.graphs.names[number] for number in task.splits["test"].tolist()[:2]]
    of_data = task.predictions(model, None, ["test:0", "test:1"], "cpu")
    of_smiles = task.predictions(model, None, [names[0], f" {names[1]} ", "c1ccccc1"], "cpu")
    for one, other in zip(of_data, of_smiles, strict=False):
        assert other["value"] == pytest.approx(one["value"], rel=1e-5)
        assert (other["name"], other["measured"]) == (one["name"], None)
    with pytest.raises(DataError, match="not a molecule in SMILES: 'c1'"):
        task.predict(model, None, "c1", "cpu")
