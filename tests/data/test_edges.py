"""What is known of the edges of one's own graph."""

from pathlib import Path

import pytest
import torch

from edgewise.data.examples import Asked, read_tables
from edgewise.errors import ConfigError, DataError
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import node_folder

NODES = "id,size,label,split\na,1,u,train\nb,2,v,train\nc,3,u,valid\nd,4,v,test\n"


def write(place: Path, **files: str) -> str:
    place.mkdir(exist_ok=True)
    (place / "nodes.csv").write_text(NODES, encoding="utf-8")
    for name, text in files.items():
        (place / f"{name.replace('_', '-')}.csv").write_text(text, encoding="utf-8")
    return str(place)


def test_features_of_edges_come_in_the_graph_s_order_and_both_ways(tmp_path) -> None:
    text = "source,target,weight,kind\na,b,1,x\nc,a,3,y\nb,a,2,x\nd,d,6,y\n"
    folder = write(tmp_path, edges=text)
    one = node_folder(folder, undirected=False, scale="none")
    pairs = [tuple(pair) for pair in one.graph().edge_index().T.tolist()]
    known = dict(zip(pairs, one.nodes.e.tolist(), strict=True))
    assert known == {(0, 1): [1, 1, 0], (2, 0): [3, 0, 1], (1, 0): [2, 1, 0], (3, 3): [6, 0, 1]}
    both = node_folder(folder, scale="none")
    pairs = [tuple(pair) for pair in both.graph().edge_index().T.tolist()]
    known = dict(zip(pairs, both.nodes.e.tolist(), strict=True))
    own = {(0, 1): [1, 1, 0], (1, 0): [2, 1, 0]}  # a -> b and b -> a
    assert known == own | {(2, 0): [3, 0, 1], (0, 2): [3, 0, 1], (3, 3): [6, 0, 1]}
    assert both.signature.edges == 3
    said = "2 edges with an opposite: each keeps its own features (--task.parallel mean takes their mean)"
    assert said in both.summary and said not in one.summary
    mean = node_folder(folder, scale="none", parallel="mean")
    pairs = [tuple(pair) for pair in mean.graph().edge_index().T.tolist()]
    assert dict(zip(pairs, mean.nodes.e.tolist(), strict=True))[(1, 0)] == [1.5, 1, 0]
    assert "2 edges with an opposite: their features are their mean" in mean.summary
    scaled = node_folder(folder, undirected=False).nodes.e[:, 0]
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-6) and float(scaled.std(correction=0)) == pytest.approx(1)


def test_features_of_parallel_edges_are_averaged_only_if_that_is_asked(tmp_path) -> None:
    folder = write(tmp_path / "mine", edges="source,target,weight\na,b,1\na,b,3\nc,a,7\n")
    task = node_folder(folder, scale="none")
    ends = task.graph().edge_index().T.tolist()
    known = sorted((*pair, weight) for pair, weight in zip(ends, task.nodes.e[:, 0].tolist(), strict=True))
    assert known == [(0, 1, 1), (0, 1, 3), (0, 2, 7), (1, 0, 1), (1, 0, 3), (2, 0, 7)]
    assert any(line.startswith("1 edge parallel to another: each keeps") for line in task.summary)
    run = kept(task, tmp_path / "run")
    assert node_folder(folder, scale="none", parallel="mean", like=str(run)).graph().num_edges == 6


def test_a_model_that_reads_features_of_edges_trains_on_them_and_others_refuse(tmp_path) -> None:
    task = node_folder(write(tmp_path, edges="source,target,weight\na,b,1\nc,a,3\nd,c,0\n"))
    (batch,) = task.batches("train", 1)
    model = GNN(GNNSettings("gated-gcn", width=4, depth=2), task.signature)
    assert model(*batch.inputs).shape == (4, 2)
    train = task.train_batch(1, torch.Generator())
    assert train.e is not None and torch.isfinite(task.loss(model(*train.inputs), train))
    with pytest.raises(ConfigError, match="the layer 'gcn' reads no edge features"):
        GNN(GNNSettings("gcn", width=4, depth=2), task.signature)


@pytest.mark.parametrize(("layer", "weight"), [("sage-mean", "weight"), ("gated-gcn", "")])
def test_what_is_known_of_edges_goes_with_a_sample_of_them(tmp_path, layer: str, weight: str) -> None:
    folder = write(tmp_path, edges="source,target,weight\na,b,1\nc,a,3\nd,c,2\nb,d,5\n")
    whole = node_folder(folder, edge_weight=weight)
    some = node_folder(folder, edge_weight=weight, fanouts=(-1, -1))  # all neighbours, hop by hop
    model = GNN(GNNSettings(layer, width=4, depth=2), whole.signature).eval()
    (batch,), sample = whole.batches("train", 1), some.train_batch(16, torch.Generator().manual_seed(0))
    assert len(sample.e) == sum(graph.num_edges for graph in sample.graph.graphs) > len(whole.nodes.e)
    torch.testing.assert_close(model(*sample.inputs), model(*batch.inputs)[batch.rows])


def test_several_files_are_one_graph_with_a_feature_that_tells_them_apart(tmp_path) -> None:
    work, home = "source,target,hours\na,b,5\nb,c,7\n", "source,target,street\nc,d,x\n a ,d,y\nb,d,x\n"
    task = node_folder(write(tmp_path, edges_work=work, edges_home=home), undirected=False, scale="none")
    names = [(one.name, one.levels) for one in task.fitted.edges]
    assert names == [("street", ("x", "y")), ("hours", ()), ("relation", ("edges-home", "edges-work"))]
    pairs = [tuple(pair) for pair in task.graph().edge_index().T.tolist()]
    known = dict(zip(pairs, task.nodes.e.tolist(), strict=True))
    assert known[(0, 1)] == [0, 0, 5, 0, 0, 1] and known[(0, 3)] == [0, 1, 6, 1, 1, 0]
    (tmp_path / "edges-home.csv").write_text("source,target,hours\nc,d,x\nb,d,x\na,c,y\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"hours holds 4 different texts in 5 rows: .* give --task\.ignore hours"):
        node_folder(str(tmp_path))


def test_rows_of_several_files_are_called_as_in_their_own(tmp_path) -> None:
    write(tmp_path, edges_home="source,target,w\nc,d,1\na,d,2\n", edges_work="source,target,w\na,b,3\n")
    files = [tmp_path / f"edges-{name}.csv" for name in ("home", "work")]
    weight, *_ = read_tables(tmp_path / "nodes.csv", files, Asked("nodes", label=("label",))).e
    assert [weight.at(row) for row in range(3)] == [
        f"{files[0]}: line 2",
        f"{files[0]}: line 3",
        f"{files[1]}: line 2",
    ]


def test_numbers_that_are_0_and_1_in_one_file_are_numbers_in_all(tmp_path) -> None:
    first, second = "from,to,weight\na,b,{}\nc,a,{}\n", "from,to,weight\na,d,5\nb,d,2\n"
    folder = write(tmp_path, edges_work=first.format(1, "0.0"), edges_friends=second)
    task = node_folder(folder, undirected=False, scale="none", ignore="relation")
    assert sorted(task.nodes.e[:, 0].tolist()) == [0, 1, 2, 5] and task.fitted.edges[0].kind == "number"
    assert node_folder(folder, scale="none", like=str(kept(task, tmp_path / "run"))).nodes.e.shape[1] == 1
    write(tmp_path, edges_work=first.format("yes", "no"))
    with pytest.raises(DataError, match=r"edges-work\.csv: line 2: weight is 'yes', not a finite number"):
        node_folder(folder)


def kept(task, run: Path) -> Path:
    run.mkdir()
    task.keep(run)
    return run


def test_which_file_an_edge_is_from_may_be_left_out(tmp_path) -> None:
    edges = {"edges_work": "source,target,hours\na,b,5\n", "edges_home": "source,target\nc,d\n"}
    folder = write(tmp_path, **edges)
    assert [one.name for one in node_folder(folder, ignore="relation").fitted.edges] == ["hours"]
    task = node_folder(folder, ignore="relation,hours")
    assert task.signature.edges == 0 and task.elsewhere(tmp_path).signature.edges == 0
    with pytest.raises(DataError, match="no table has the columns minutes that are to be ignored"):
        node_folder(folder, ignore="relation,minutes")


@pytest.mark.parametrize("name", ["hours", "height"])
def test_columns_that_a_run_was_trained_with_cannot_be_ignored(tmp_path: Path, name: str) -> None:
    """Those of edges were said to be lacking, and those of nodes read all the same."""
    folder = write(
        tmp_path, nodes="id,label,height\na,x,1\nb,y,2\nc,x,3\nd,y,4\n", edges="source,target,hours\na,b,5\n"
    )
    run = str(kept(node_folder(folder), tmp_path / "run"))
    with pytest.raises(DataError, match=f"the run was trained with the columns {name}: they cannot be ignored"):
        node_folder(folder, ignore=name, like=run)


def test_a_column_that_is_called_relation_is_the_file_s_own(tmp_path) -> None:
    rows = "source,target,hours,relation\na,b,5,boss\nb,c,7,friend\nc,d,6,boss\n"
    folder = write(tmp_path, edges=rows)
    task = node_folder(folder, scale="none")
    assert [(one.name, one.levels) for one in task.fitted.edges] == [("hours", ()), ("relation", ("boss", "friend"))]
    again = node_folder(folder, scale="none", like=str(kept(task, tmp_path / "run")))
    assert torch.equal(again.nodes.e, task.nodes.e) and torch.equal(task.elsewhere(tmp_path).nodes.e, task.nodes.e)
    (tmp_path / "edges.csv").unlink()
    write(tmp_path, edges_a=rows, edges_b="source,target,relation\na,c,boss\n")
    told = r"edges-a\.csv: its column relation .*: rename it, or give --task\.ignore relation\n.*edges-b\.csv: its"
    with pytest.raises(DataError, match=told):
        node_folder(folder)
    assert [one.name for one in node_folder(folder, ignore="relation").fitted.edges] == ["hours"]
    assert task.elsewhere(tmp_path).nodes.e.shape[1] == 3


def test_columns_of_edges_may_come_in_another_order_later(tmp_path) -> None:
    """Each was read by the encoding of the one in its place."""
    task = node_folder(write(tmp_path, edges="source,target,hours,age\na,b,5,40\nb,c,7,60\n"))
    write(tmp_path, edges="source,target,age,hours\na,b,40,5\nb,c,60,7\n")
    assert torch.equal(task.elsewhere(tmp_path).nodes.e, task.nodes.e)


def test_ends_that_are_said_or_found(tmp_path) -> None:
    folder = write(tmp_path, edges="via,one,two\na,b,c\nb,c,d\n")
    with pytest.raises(DataError, match="expected sender and receiver, or"):
        node_folder(folder)
    said = node_folder(folder, ends="one, two", ignore="via", undirected=False)
    assert sorted(map(tuple, said.graph().edge_index().T.tolist())) == [(1, 2), (2, 3)]
    with pytest.raises(DataError, match="expected one and three"):
        node_folder(folder, ends="one,three")


def test_ends_that_are_found_may_have_mistakes(tmp_path) -> None:
    rows = [("a", "b"), ("b", "c"), ("c", "z")]
    folder = write(tmp_path, edges="via,one,two\n" + "".join(f"{n / 2},{x},{y}\n" for n, (x, y) in enumerate(rows)))
    with pytest.raises(DataError, match=r"edges\.csv: line 4: there is no node 'z'"):
        node_folder(folder)
    assert node_folder(write(tmp_path, edges="one,two\n")).graph().num_edges == 0


@pytest.mark.parametrize(("name", "end"), [("7.0", "7"), ("7", "7.0"), ("007", "7"), ("Ann", "ann"), ("ann", "Ann")])
def test_a_node_in_another_spelling_is_suggested(tmp_path, name: str, end: str) -> None:
    folder = write(tmp_path, edges=f"source,target\na,{end}\n")
    (tmp_path / "nodes.csv").write_text(NODES.replace("d,4", f"{name},4"), encoding="utf-8")
    with pytest.raises(DataError, match=rf"there is no node '{end}'; did you mean '{name}'\?"):
        node_folder(folder)


def test_for_an_end_without_a_name_no_node_is_suggested(tmp_path) -> None:
    folder = write(tmp_path, edges="source,target\na,\n")
    (tmp_path / "nodes.csv").write_text(NODES.replace("d,4", "0,4"), encoding="utf-8")
    with pytest.raises(DataError, match=r"edges\.csv: line 2: there is no node ''$"):
        node_folder(folder)


def test_ends_that_training_found_need_no_edges_later(tmp_path) -> None:
    edges = "weight,one,two\n1.5,a,b\n2.5,b,c\n"
    task = node_folder(write(tmp_path, edges=edges))
    for rows in ("", "3.5,a,d\n"):
        new = task.elsewhere(Path(write(tmp_path / "new", edges="weight,one,two\n" + rows)))
        assert new.graph().num_edges == 2 * bool(rows)
    with pytest.raises(DataError, match=r"line 2: there is no node 'x'"):
        task.elsewhere(Path(write(tmp_path / "new", edges="weight,one,two\n3.5,a,x\n")))


def test_a_file_without_names_of_columns_does_not_lose_its_first_edge(tmp_path) -> None:
    told = r"edges\.csv: its first line must have the names of the columns, and a and b are nodes: .* --task\.ends a,b"
    for rows in ("a,b\nb,c\nc,d\n", "a,b,5\nb,c,6\n", "# from\tto\na\tb\nb\tc\n", "a,b\n"):
        folder = write(tmp_path, edges=rows)
        with pytest.raises(DataError, match=told):
            node_folder(folder)
    assert node_folder(write(tmp_path, edges="a,b\nb,c\n"), ends="a,b").graph().num_edges == 2  # these are their names


def test_a_column_of_edges_is_their_weight_where_that_is_asked(tmp_path) -> None:
    folder = write(tmp_path / "mine", edges="source,target,weight\na,b,1\nc,a,3\nd,c,5\n")
    task = node_folder(folder, edge_weight="weight")
    assert task.signature.weighted and "edges count by weight, divided by 3" in task.summary
    assert sorted(task.nodes.e.flatten().tolist()) == pytest.approx([1 / 3, 1 / 3, 1, 1, 5 / 3, 5 / 3])
    run = kept(task, tmp_path / "run")
    assert node_folder(folder, like=str(run)).signature.weighted
    new = task.elsewhere(Path(write(tmp_path / "new", edges="source,target,weight\na,b,6\n")))
    assert new.signature.weighted and new.nodes.e.tolist() == [[2], [2]]
    answer = GNN(GNNSettings("gcn", width=4), task.signature).eval()
    row = '{"node": ["0"], "edges": [["new", "a", 3]]}'
    assert task.predict(answer, None, row, "cpu")["nodes"][0]["node"] == "new"
    assert not node_folder(folder).signature.weighted
    for edges, told in (
        (
            "source,target,weight\na,b,-1\n",
            r"edges\.csv: line 2: weight is -1: the weight of an edge is a number of at",
        ),
        ("source,target,weight\na,b,1\na,c,\n", r"edges\.csv: line 3: weight is missing"),
        ("source,target,weight,kind\na,b,1,x\nb,c,2,x\n", "nothing reads kind of edges beside their weights weight"),
        ("source,target,kind\na,b,1\nb,c,2\n", "weight is to name numbers of edges, and is none of .*, kind"),
        ("source,target,weight\na,b,x\nb,c,x\n", "weight is to name numbers of edges, and is a category"),
    ):
        with pytest.raises(DataError, match=told):
            node_folder(write(tmp_path / "wrong", edges=edges), edge_weight="weight")
