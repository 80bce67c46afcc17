"""Many graphs of one's own in a folder of three tables."""

import random
from pathlib import Path

import pytest
import torch

from edgewise.errors import DataError
from edgewise.tasks import graph_folder


def write(place: Path, count: int = 60, labelled: bool = True, first: int = 0, weights: bool = True) -> Path:
    """Rings and stars whose nodes are called n0, n1, ... in each graph."""
    place.mkdir(parents=True, exist_ok=True)
    draw = random.Random(first)
    graphs, nodes, edges = ["graph;shape;mass" if labelled else "graph"], ["graph,node,age,colour"], []
    for number in range(first, first + count):
        size, ring = draw.randint(4, 8), number % 2
        mass = "" if number % 5 == 0 else f"{number + 0.5}".replace(".", ",")
        graphs.append(f"g{number};{'ring' if ring else 'star'};{mass}" if labelled else f"g{number}")
        for a in range(size):
            age = "" if draw.random() < 0.1 else draw.randint(1, 90)
            nodes.append(f"g{number},n{a},{age},{draw.choice(['red', 'blue'])}")
            edges.append(f"g{number},n{a if ring else 0},n{(a + 1) % size}" + f",{draw.random():.2f}" * weights)
    head = "graph,source,target" + ",weight" * weights
    for name, lines in (("graphs", graphs), ("nodes", nodes), ("edges", [head, *edges])):
        (place / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return place


def small(place: Path, graphs: str, nodes: str, edges: str) -> str:
    for name, text in (("graphs", graphs), ("nodes", nodes), ("edges", edges)):
        (place / f"{name}.csv").write_text(text, encoding="utf-8")
    return str(place)


GRAPHS = "graph,label,split\na,u,train\nb,v,train\nc,u,valid\nd,v,test\n"
NODES = "graph,size\n" + "".join(f"{g},{n}\n" for n, g in enumerate("aabbbccd"))
EDGES = "source,target,weight\n0,1,5\n3,2,6\n2,4,7\n5,6,8\n"


def test_each_graph_has_its_own_nodes_edges_and_features(tmp_path) -> None:
    task = graph_folder(small(tmp_path, GRAPHS, NODES, EDGES), undirected=False, scale="none")
    assert [member.edge_index().tolist() for member in task.graphs.members] == [
        [[0], [1]],
        [[1, 0], [0, 2]],
        [[0], [1]],
        [[], []],
    ]
    assert task.graphs.x[:, 0].tolist() == list(range(8)) and task.graphs.e[:, 0].tolist() == [5, 6, 7, 8]
    assert task.graphs.targets[:, 0].tolist() == [0, 1, 0, 1] and task.classes == ("u", "v")
    both = graph_folder(str(tmp_path), scale="none")
    assert both.graphs.members[1].num_edges == 4 and sorted(both.graphs.e[2:6, 0].tolist()) == [6, 6, 7, 7]


def test_names_rows_and_another_order_say_the_same(tmp_path) -> None:
    """Nodes by their names within a graph, in any order, or by rows of the table or of the graph."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    whole = graph_folder(small(tmp_path / "a", GRAPHS, NODES, EDGES))
    inside = "graph,source,target,weight\na,0,1,5\nb,1,0,6\nb,0,2,7\nc,0,1,8\n"
    named = NODES.replace("graph,size", "graph,node,size").splitlines()
    rows = [named[0], *(f"{line.split(',')[0]},x{'01012010'[n]},{n}" for n, line in enumerate(named[1:]))]
    shuffled = "\n".join([rows[0], *rows[:0:-1]]) + "\n"
    by_name = inside.replace(",0", ",x0").replace(",1,", ",x1,").replace(",2,", ",x2,")
    for place, nodes, edges in (("b", NODES, inside), ("c", shuffled, by_name)):
        task = graph_folder(small(tmp_path / place, GRAPHS, nodes, edges))
        for one, other in zip(task.graphs.members, whole.graphs.members, strict=True):
            assert one.num_edges == other.num_edges and one.num_receivers == other.num_receivers
        order = [task.graphs.x[:, 0].argsort().tolist(), whole.graphs.x[:, 0].argsort().tolist()]
        assert task.graphs.x[order[0]].equal(whole.graphs.x[order[1]])


def test_scales_are_those_of_the_graphs_that_train(tmp_path) -> None:
    task = graph_folder(small(tmp_path, GRAPHS, NODES, EDGES), undirected=False)
    train = torch.arange(5.0)
    assert torch.allclose(task.graphs.x[:, 0], (torch.arange(8.0) - train.mean()) / train.std(correction=0))
    weights = torch.tensor([5.0, 6.0, 7.0])
    assert torch.allclose(task.graphs.e[:, 0], (torch.tensor([5.0, 6, 7, 8]) - 6) / weights.std(correction=0))
    weighted = graph_folder(str(tmp_path), undirected=False, edge_weight="weight")
    assert torch.allclose(weighted.graphs.e[:, 0], torch.tensor([5.0, 6, 7, 8]) / 6) and weighted.signature.weighted


def test_nodes_without_features_have_the_number_one(tmp_path) -> None:
    nodes = "graph\n" + "\n".join("aabbbccd") + "\n"
    task = graph_folder(small(tmp_path, GRAPHS, nodes, "source,target\n0,1\n"))
    assert task.graphs.x.tolist() == [[1.0]] * 8
    assert "nodes have no features: each has the number 1" in task.summary


def test_several_targets_have_gaps_and_are_summarised(tmp_path) -> None:
    task = graph_folder(str(write(tmp_path / "mine")), label="shape,mass")
    assert task.graphs.targets.shape == (60, 3) and int(task.graphs.targets[:, 1].isnan().sum()) == 12
    assert task.signature.outputs == 3 and task.metric == "loss"
    said = "\n".join(task.summary)
    for line in (
        "shape: 2 classes (texts that repeat)",
        "mass: a quantity (there are fractions",
        "graphs.csv: separated by ';', decimal commas in mass",
        "age (a number, missing in",
        "colour (a category of 2)",
        "of edges: weight (a number)",
    ):
        assert line in said


def test_all_problems_of_all_files_are_one_message(tmp_path) -> None:
    graphs = GRAPHS + "e,u,tset\n"
    nodes = NODES + "z,9\nd,many\n"
    with pytest.raises(DataError) as caught:
        graph_folder(small(tmp_path, graphs, nodes, EDGES + "0,2,9\n77,1,9\n"))
    told = str(caught.value)
    for part in (
        "graphs.csv: line 6: the split 'tset' is none of",
        "nodes.csv: line 10: there is no graph 'z'",
        "nodes.csv: line 11: size is 'many', not a finite number",
        "the graph 'e' has no rows",
        "edges.csv: line 6: it joins nodes of 'a' and 'b'",
        "edges.csv: line 7: there is no node '77'",
    ):
        assert part in told, part


def test_names_that_repeat_need_a_graph(tmp_path) -> None:
    nodes = "graph,node,size\n" + "".join(f"{g},n,{k}\n" for k, g in enumerate("abcd"))
    with pytest.raises(DataError, match="nodes of several examples have one name: it needs a column 'graph' too"):
        graph_folder(small(tmp_path, GRAPHS, nodes, "source,target\nn,n\n"))
    (tmp_path / "edges.csv").unlink()
    with pytest.raises(DataError, match=r"lacks edges\.csv"):
        graph_folder(str(tmp_path))
    with pytest.raises(DataError, match=r"elsewhere: no such folder: give --task\.folder"):
        graph_folder(str(tmp_path / "elsewhere"))


def test_new_graphs_lack_no_column(tmp_path) -> None:
    task = graph_folder(str(write(tmp_path / "mine")), label="shape,mass")
    new = write(tmp_path / "new", count=3, labelled=False)
    text = (new / "nodes.csv").read_text(encoding="utf-8-sig")
    (new / "nodes.csv").write_text(text.replace("red", "green").replace("blue", "green"), encoding="utf-8")
    assert "colour: green did not occur when the model was trained: no level is set" in task.elsewhere(new).changes
    (new / "nodes.csv").write_text(text.replace("age", "years"), encoding="utf-8")
    with pytest.raises(DataError, match="it lacks the columns age, which the run was trained with"):
        task.elsewhere(new)


def test_graphs_without_names_are_their_rows(tmp_path) -> None:
    labels = "label,split\nu,train\nv,train\nu,valid\nv,test\n"
    nodes = "graph,size\n" + "".join(f"{g},{n}\n" for n, g in enumerate("00111223"))
    task = graph_folder(small(tmp_path, labels, nodes, EDGES), scale="none")
    named = graph_folder(small(tmp_path, GRAPHS, NODES, EDGES), scale="none")
    assert task.graphs.x.equal(named.graphs.x) and task.graphs.targets.equal(named.graphs.targets)
    assert task.splits["train"].tolist() == [0, 1] and task.name_of(3) == "3"
