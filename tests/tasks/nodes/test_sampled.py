"""Sampling on the nodes of any task: dense and sparse features."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise.errors import ConfigError
from edgewise.layers import SparseFeatures
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import citation, karate, link_folder, node_folder
from edgewise.tasks.nodes.classification import SampledBatch, SampledNodes
from tasks.miniature import write_planetoid


def write_folder(folder: Path) -> None:
    rows = "".join(f"n{n},{'ab'[n % 2]},{n},{n * n}\n" for n in range(40))
    (folder / "nodes.csv").write_text(f"node,label,size,age\n{rows}")
    (folder / "edges.csv").write_text("sender,receiver\n" + "".join(f"n{n},n{(7 * n + 1) % 40}\n" for n in range(40)))


@pytest.mark.parametrize("kind", ["folder", "citation"])
def test_any_task_on_nodes_is_sampled(tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        write_folder(tmp_path)
        task, whole = (node_folder(str(tmp_path), fanouts=fanouts) for fanouts in ((-1, -1), ()))
    else:
        write_planetoid(tmp_path)
        task, whole = (citation("cora", str(tmp_path), fanouts=fanouts) for fanouts in ((-1, -1), ()))
    batch, all_nodes = task.train_batch(1000, torch.Generator().manual_seed(0)), whole.train_batch(1, torch.Generator())
    assert isinstance(batch, SampledBatch)
    assert isinstance(batch.x, SparseFeatures) == (kind == "citation")
    model = GNN(GNNSettings("sage-mean", 8, 2, dropout=0.0), task.signature).eval()
    seeds = batch.graph.nodes[: batch.size]
    expected = model(*all_nodes.inputs)[seeds]
    torch.testing.assert_close(model(*batch.inputs), expected)
    assert batch.target.equal(task.nodes.labels[seeds])


@pytest.mark.parametrize("given", [[2, 3], np.array([2, 3]), torch.tensor([2, 3]), (np.int64(2), 3)])
def test_fan_outs_are_any_sequence_of_whole_numbers(tmp_path: Path, given: Any) -> None:
    write_folder(tmp_path)
    assert node_folder(str(tmp_path), fanouts=given).fanouts == (2, 3)
    assert link_folder(str(tmp_path), fanouts=given).fanouts == (2, 3)


@pytest.mark.parametrize("given", [10, [1.5], "ten"])
def test_fan_outs_that_are_no_whole_numbers_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"task\.fanouts.* must be"):
        SampledNodes("karate", karate().nodes, given)
