import pytest
import torch
from torch import nn

from benchmarks.studies.claims import norms
from benchmarks.studies.claims.common.kept import Kept
from edgewise.tasks import text


def test_the_ways_differ_in_the_block_and_in_how_weights_are_drawn(data) -> None:
    data("tinyshakespeare")
    task = text("shakespeare", context=norms.CONTEXT)
    scales = {}
    for name, way in norms.WAYS.items():
        torch.manual_seed(0)
        model = norms.network(way, 12, task)
        assert model.settings.depth == 12 and model.settings.block.name == way.block
        scales[name] = max(m.weight.std().item() for m in model.modules() if isinstance(m, nn.Linear))
    assert scales["post-norm"] == scales["pre-norm"] > 3 * scales["post-norm, small weights"]


def test_a_table_is_printed_and_drawn(data, capsys) -> None:
    data("tinyshakespeare")
    table = norms.measure(Kept(), depths=(1, 2), steps=1, seeds=2)
    assert list(table) == list(norms.WAYS) and all(len(row) == 2 for row in table.values())
    assert all(own["least"] <= own["loss"] <= own["most"] for row in table.values() for own in row)
    assert capsys.readouterr().out.count("\n") == len(norms.WAYS) + 2
    assert len(norms.picture(table, (1, 2)).axes[0].lines) == len(norms.WAYS) + 1


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_at_12_blocks_post_norm_without_warm_up_learns_nothing_and_all_others_do(data) -> None:
    data("tinyshakespeare")
    table = norms.measure(Kept(), depths=(12,))
    losses = {name: row[0]["loss"] for name, row in table.items()}
    assert losses.pop("post-norm") >= norms.STUCK == 3.0
    assert max(losses.values()) <= norms.LEARNS == 2.7
