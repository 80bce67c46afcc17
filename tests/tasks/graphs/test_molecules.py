"""Molecules from SMILES: graphs, features, the random cut, and what is refused."""

import re
import sys
from pathlib import Path

import pytest
import torch

from edgewise import Graph
from edgewise.data.splits import shuffled
from edgewise.errors import ConfigError, DataError, EdgewiseError, installing
from edgewise.models import GNN, GNNSettings
from edgewise.tasks.graphs.molecules import ELEMENTS, descriptors, molecule, molecules, ranked, standardised
from edgewise.training import Choice, EvaluationSettings, MachineSettings, RunConfig, TrainSettings, load_run, train

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


def test_stereochemistry_is_told_whatever_the_order_of_the_atoms() -> None:
    for one, other in (("N[C@@H](C)C(=O)O", "C[C@H](N)C(=O)O"), ("F/C=C/F", "C(=C/F)\\F")):
        (_, x, e), (_, y, f) = molecule(one), molecule(other)
        assert torch.equal(x.sum(0), y.sum(0)) and torch.equal(e.sum(0), f.sum(0))
    left, right = (molecule(smiles)[1] for smiles in ("N[C@@H](C)C(=O)O", "N[C@H](C)C(=O)O"))
    assert left[1, 34:36].tolist() == [0, 1] and right[1, 34:36].tolist() == [1, 0]  # S, as in proteins, and R
    trans, cis = (molecule(smiles)[2] for smiles in ("F/C=C/F", "F/C=C\\F"))
    assert trans[:, 6:].sum(0).tolist() == [2, 0] and cis[:, 6:].sum(0).tolist() == [0, 2]


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


def test_the_rest_of_the_table_does_not_move_the_scale() -> None:
    values = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    train = torch.tensor([0, 2, 5])
    other = values.clone()
    other[[1, 3, 4]] += 100
    assert torch.equal(standardised(values, train)[train], standardised(other, train)[train])
    assert standardised(other, train)[[1, 3, 4]].tolist() == [[3.0] * 3] * 3


def test_ranks_are_shares_of_the_rows_that_are_less_and_of_half_of_the_equal_ones() -> None:
    draw = torch.Generator().manual_seed(0)
    values = torch.randint(-3, 4, (9, 5), generator=draw).double()
    rows = torch.tensor([0, 2, 3, 7])
    found = ranked(values, rows)
    for i in range(9):
        for d in range(5):
            others = values[rows, d]
            share = (others < values[i, d]).double().mean() + 0.5 * (others == values[i, d]).double().mean()
            assert found[i, d].item() == pytest.approx(share.item(), abs=1e-12)
    moved = values.clone()
    moved[[1, 4, 5, 6, 8]] *= 1000  # of the rows that do not count
    assert torch.equal(ranked(moved, rows)[rows], found[rows])
    assert torch.equal(ranked(values.exp(), rows), found)


def test_a_run_on_whole_molecules_trains_and_answers_and_a_model_that_reads_none_is_refused(tmp_path) -> None:
    task = Choice("molecules", {"file": "mine.csv", "value": "melts", "whole": True, "folder": write(tmp_path, LINES)})
    settings = TrainSettings(steps=40, batch=16)
    sections = {"train": settings, "evaluation": EvaluationSettings(every=40), "machine": MachineSettings("cpu")}
    model = Choice("graph-network", {"width": 16, "depth": 1})
    config = RunConfig(task, model, optimizer=Choice("adamw", {"learning_rate": 0.01}), **sections)
    assert train(config, tmp_path / "run", progress=False).test < 2.0  # the lengths' deviation is 5.8
    loaded = load_run(tmp_path / "run", device="cpu")
    answer = loaded.task.predict(loaded.model, loaded.pattern, "test:0", "cpu")
    assert answer["value"] == pytest.approx(answer["measured"], abs=4.0)
    gnn = RunConfig(task, Choice("gnn", {"readout": "sum"}), train=settings)
    with pytest.raises(ConfigError, match="GNN reads no features of whole graphs, and this task has some"):
        train(gnn, tmp_path / "other", progress=False)


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


def test_one_atom_charges_and_components() -> None:
    graph, x, e = molecule("[Na+].[Cl-]")
    assert graph.num_edges == 0 and e.shape == (0, 8)
    assert x[:, -3].tolist() == [1, -1]
    assert x[:, 9].tolist() == [1, 0]  # sodium is none of the elements listed
    assert molecule("C")[0].num_receivers == 1


def test_the_order_of_the_atoms_does_not_matter() -> None:
    """The same molecule written in another order is the same graph with its nodes renumbered."""
    (one, x, e), (other, y, f) = molecule("O=CC"), molecule("CC=O")
    assert torch.equal(x, y.flip(0)) and torch.equal(e, f.flip(0))
    assert one == other.permute([2, 1, 0])


def test_a_file_of_ones_own(tmp_path) -> None:
    task = molecules("mine.csv", value="melts", folder=write(tmp_path, LINES))
    assert task.graphs.names[2] == "CCCO"
    assert task.graphs.targets[2] == 3.5
    assert {split: len(rows) for split, rows in task.graphs.splits.items()} == {"train": 16, "valid": 2, "test": 2}
    assert task.signature.edges == 0
    (batch,) = molecules("mine.csv", value="melts", folder=str(tmp_path), bonds=True).batches("train", 16)
    assert batch.e is not None and batch.e.shape == (batch.graph.num_edges, 8)


def test_large_values_keep_their_digits(tmp_path) -> None:
    folder = write(tmp_path, [f"m,{'C' * carbons},{20_000_000 + carbons}" for carbons in range(1, 21)])
    targets = molecules("mine.csv", value="melts", folder=folder).graphs.targets
    assert targets[:3].tolist() == [20_000_001, 20_000_002, 20_000_003]


def test_the_cut_is_random_disjoint_and_a_function_of_the_fold() -> None:
    first, again, other = shuffled(100, 1), shuffled(100, 1), shuffled(100, 2)
    assert all(torch.equal(first[split], again[split]) for split in first)
    assert not torch.equal(first["test"], other["test"])
    assert torch.cat(list(first.values())).sort().values.tolist() == list(range(100))


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


def test_a_missing_column_file_or_encoding_is_named(tmp_path) -> None:
    folder = write(tmp_path, LINES)
    with pytest.raises(DataError, match="its columns are name, smiles, melts; expected smiles, boils"):
        molecules("mine.csv", value="boils", folder=folder)
    with pytest.raises(DataError, match=r"lacks other.csv"):
        molecules("other.csv", folder=folder)
    (tmp_path / "mine.csv").write_text("smiles,melts,melts\n" + "C,1,2\n" * 20, encoding="utf-8")
    with pytest.raises(DataError, match="more than one column is called 'melts'"):
        molecules("mine.csv", value="melts", folder=folder)
    (tmp_path / "mine.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not a text in a known encoding"):
        molecules("mine.csv", value="melts", folder=folder)


def test_without_rdkit_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(EdgewiseError, match=re.escape(installing("molecules"))):
        molecule("C")


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


@pytest.mark.parametrize("options", [{}, {"bonds": True}, {"crippen": True}])
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


def test_descriptors_of_whole_molecules_are_known_of_the_data_alone(tmp_path: Path) -> None:
    task = molecules(file="mine.csv", value="melts", folder=write(tmp_path, LINES), whole=True)
    with pytest.raises(DataError, match="give one as in 'test:7'"):
        task.predictions(torch.nn.Identity(), None, ["CCO"], "cpu")
