"""Links of one's own graph."""

import json
from pathlib import Path

import pytest
import torch

from edgewise.apps.command.main import main
from edgewise.errors import DataError
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import link_folder

NODES = 40


def write(place: Path, edges: str = "") -> str:
    place.mkdir(exist_ok=True)
    rows = "".join(f"p{n},{n},{'ab'[n % 2]}\n" for n in range(NODES))
    (place / "nodes.csv").write_text("id,age,kind\n" + rows, encoding="utf-8")
    links = "".join(f"p{n},p{(n + step) % NODES}\n" for n in range(NODES) for step in (1, 2, 3))
    (place / "edges.csv").write_text(edges or "source,target\n" + links, encoding="utf-8")
    return str(place)


def test_held_out_links_are_in_no_graph_that_the_model_reads(tmp_path) -> None:
    task = link_folder(write(tmp_path / "mine"), fold=3)
    assert {split: len(pairs) for split, pairs in task.splits.items()} == {"train": 102, "valid": 6, "test": 12}
    seen = {tuple(sorted(pair)) for pair in task.graph().edge_index().T.tolist()}
    parts = {split: {tuple(pair) for pair in pairs.tolist()} for split, pairs in task.splits.items()}
    assert seen == parts["train"] and not seen & (parts["valid"] | parts["test"])
    everything = {tuple(sorted((n, (n + step) % NODES))) for n in range(NODES) for step in (1, 2, 3)}
    assert set().union(*parts.values()) == everything
    none = torch.cat([task.cut.valid_none, task.cut.test_none], 1).T.tolist()
    assert not {tuple(pair) for pair in none} & everything
    assert task.x.shape == (NODES, 3) and float(task.x[:, 0].mean()) == pytest.approx(0, abs=1e-6)
    other = link_folder(str(tmp_path / "mine"), fold=4)
    assert other.splits["test"].tolist() != task.splits["test"].tolist()


def test_nodes_of_which_nothing_is_known_have_the_degrees_of_the_links_that_train(tmp_path) -> None:
    write(tmp_path)
    (tmp_path / "nodes.csv").write_text("id\n" + "".join(f"p{n}\n" for n in range(NODES)))
    task = link_folder(str(tmp_path), scale="none")
    degrees = torch.bincount(task.cut.train.flatten(), minlength=NODES)
    assert torch.allclose(task.x[:, 0], degrees.float().log1p()) and task.x.shape == (NODES, 1)
    assert int(degrees.sum()) == 2 * 102
    assert "each node has log(1 + degree): nothing else is known of it" in task.summary


def test_a_recipe_of_links_trains_on_it(tmp_path, capsys) -> None:
    folder, run = write(tmp_path / "mine"), tmp_path / "run"
    options = ["--task.folder", folder, "--train.steps", "2"]
    assert main(["train", "own-links", *options, "--run", str(run)]) == 0
    assert "kind (a category of 2)" in capsys.readouterr().out
    assert main(["predict", str(run), "p3,p4", "--json"]) == 0
    pair = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert pair["nodes"] == ["p3", "p4"] and 0 < pair["probability"] < 1
    assert main(["predict", str(run), "p3", "--json"]) == 0
    one = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert one["node"] == "p3" and all(link["node"].startswith("p") for link in one["links"])
    assert main(["predict", str(run), "p3,nobody"]) == 2
    assert "no node 'nobody' in links of mine: its nodes are called 'p0', 'p1', 'p2'" in capsys.readouterr().err


def test_what_no_model_of_links_reads_is_named(tmp_path) -> None:
    folder = write(tmp_path, "source,target,weight\n" + "".join(f"p{n},p{(n + 1) % NODES},{n}\n" for n in range(NODES)))
    with pytest.raises(DataError, match=r"nothing reads what is known of edges: give --task\.ignore weight"):
        link_folder(folder)
    assert link_folder(folder, ignore="weight").graph().num_receivers == NODES


def test_a_link_counts_by_the_mean_weight_of_its_edges(tmp_path) -> None:
    ends = [(n, (n + step) % NODES) for n in range(NODES) for step in (1, 2, 3)]
    rows = "".join(f"p{i},p{j},{i + j}\np{j},p{i},{i + j + 2}\n" for i, j in ends)
    folder = write(tmp_path / "mine", "source,target,weight\n" + rows)
    task = link_folder(folder, edge_weight="weight", scale="none", variational=False)
    assert f"{len(ends) * 2} edges with an opposite: their features are their mean" in task.summary
    i, j = task.graph().edge_index()
    assert task.cut.e[:, 0].tolist() == (i + j + 1).tolist() and task.graph().num_edges == 2 * 102
    assert link_folder(folder, edge_weight="weight").cut.e.mean().item() == pytest.approx(1)
    model = GNN(GNNSettings("gcn", width=4), task.signature).eval()
    new = '{"node": ["1", "a"], "edges": [["new", "p3", 7.0]]}'
    assert len(task.predict(model, None, new, "cpu")["links"]) == 10
    held, _ = task.holding(new)
    assert held.cut.e.shape == (2 * 103, 1) and float(held.cut.e.sum() - task.cut.e.sum()) == 14
    some = link_folder(folder, edge_weight="weight", scale="none", variational=False, fanouts=(-1, -1))
    sample, whole = (one.train_batch(9, torch.Generator().manual_seed(0)) for one in (some, task))
    model = GNN(GNNSettings("sage-mean", width=4), task.signature).eval()
    torch.testing.assert_close(task.loss(model(*sample.inputs), sample), task.loss(model(*whole.inputs), whole))


@pytest.mark.parametrize("rows", ["", "p1,p1\np2,p2\n", "p1,p2\n"])
def test_too_few_links_for_three_parts_are_said(tmp_path, rows: str) -> None:
    with pytest.raises(DataError, match=r"[01] links between two nodes are too few: none is left for"):
        link_folder(write(tmp_path, "source,target\n" + rows))


@pytest.mark.parametrize("table", ["nodes", "edges"])
def test_a_column_of_parts_is_not_passed_over(tmp_path, table: str) -> None:
    place = write(tmp_path / "mine")
    path = tmp_path / "mine" / f"{table}.csv"
    first, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{first},split", *(f"{row},train" for row in rows)]) + "\n")
    with pytest.raises(DataError, match=r"nothing reads .* give --task\.ignore split"):
        link_folder(place)
    assert link_folder(place, ignore="split").x.shape == (NODES, 3)
