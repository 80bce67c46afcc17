import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from edgewise import complete
from edgewise.apps.command.main import main
from edgewise.apps.report import generated
from edgewise.graphs import links_of
from edgewise.tasks import graph_generation
from edgewise.training import LoadedRun

CIRCLE = "{http://www.w3.org/2000/svg}use"
TASK = graph_generation(train=20, test=10, draws=4)


class Alternating(torch.nn.Module):
    """Writes the first two test graphs, a path of two nodes that is not valid, and a sequence that does not end."""

    def __init__(self) -> None:
        super().__init__()
        self.still = torch.nn.Parameter(torch.zeros(()))
        self.signature = TASK.signature
        known = [TASK.tokens.encode(graph, range(graph.num_receivers)) for graph in TASK.splits["test"][:2]]
        self.sequences = [*known, [0, 1, 2, 21, 0], TASK.tokens.encode(complete(20), range(20))]

    def caches(self, graph):
        return []

    def forward(self, graph, x, caches=None):
        scores = torch.zeros(*x.shape, self.signature.outputs)
        for row, column in torch.cartesian_prod(*(torch.arange(n) for n in x.shape)).tolist():
            sequence, place = self.sequences[row % 4], graph.offset + column + 1
            scores[row, column, sequence[place] if place < len(sequence) else 0] = 100.0
        return scores


@pytest.fixture
def loaded() -> LoadedRun:
    return LoadedRun(None, TASK, None, Alternating())  # type: ignore[arg-type]


def test_graphs_are_told_drawn_and_returned(loaded, tmp_path: Path, capsys) -> None:
    answer = generated.generate_graphs(loaded, tmp_path, 4, temperature=1.0, seed=3)
    first, second = TASK.splits["test"][:2]
    assert [one.get("links") for one in answer["graphs"]] == [
        links_of(first).T.tolist(),
        links_of(second).T.tolist(),
        [[0, 1]],
        None,
    ]
    assert [one["valid"] for one in answer["graphs"]] == [
        TASK.family.valid(first),
        TASK.family.valid(second),
        False,
        False,
    ]
    told = capsys.readouterr().out
    assert "2: 2 nodes, 1 links, not valid" in told
    assert "3: the sequence does not end, not valid" in told
    drawn = ElementTree.parse(answer["drawing"])  # noqa: S314 (ours)
    assert answer["drawing"] == str(tmp_path / "figures" / "generated-3.svg")
    assert len(list(drawn.iter(CIRCLE))) == first.num_receivers + second.num_receivers + 2
    json.dumps(answer)


def test_the_report_draws_test_graphs_and_written_ones(loaded) -> None:
    (drawing,) = generated.drawings(loaded)
    assert drawing.caption.startswith("Of 40 sequences 10 did not end")
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert titles.index("test graphs") == 0
    assert titles.index("written by the model") == generated.COLUMNS
    assert len(titles) == 3 * generated.COLUMNS


def test_scores_stand_beside_those_of_random_graphs() -> None:
    page = str(generated.scores(TASK.compare(TASK.splits["test"])))
    assert "degree MMD²" in page
    assert "novel" in page


def test_a_run_writes_graphs(trained, capsys) -> None:
    run = trained("graphs")
    report = (run / "report.html").read_text(encoding="utf-8")
    assert "Graphs that it writes" in report
    assert "could not be drawn" not in report
    arguments = ["generate", str(run), "--count", "3", "--seed", "5", "--json"]
    answers = []
    for _ in range(2):
        assert main(arguments) == 0
        answers.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert answers[0] == answers[1]
    assert len(answers[0]["graphs"]) == 3
