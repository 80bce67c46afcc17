import pytest
import torch

from benchmarks.studies.claims import retrieval
from benchmarks.studies.claims.common.budget import parameters
from benchmarks.studies.claims.common.kept import Kept


def test_each_key_stands_once_in_the_text_beside_the_value_that_is_due() -> None:
    tokens, due = retrieval.texts(200, 3, torch.Generator().manual_seed(0))
    assert tokens.shape == (3, 200) and due.shape == (3, 16)
    for row, values in zip(tokens.tolist(), due.tolist(), strict=True):
        found = dict(divmod(token, retrieval.VALUES) for token in row if token < retrieval.PAIRS)
        assert sorted(found) == list(range(8)) and sum(token < retrieval.PAIRS for token in row) == 8
        assert [found[token - retrieval.PAIRS] for token in row[-16:]] == values
        assert all(token >= retrieval.PAIRS + retrieval.KEYS for token in row[:-16] if token >= retrieval.PAIRS)


def test_the_networks_are_of_one_size_and_the_window_sees_as_far_as_it_is_wide() -> None:
    sizes = {name: parameters(retrieval.network(way)) for name, way in retrieval.WAYS.items()}
    assert all(abs(size / sizes["full"] - 1) < 0.1 for size in sizes.values())
    mask = retrieval.WAYS["window"].graph(600).dense_mask()
    assert mask[599].nonzero().flatten().tolist() == list(range(599 - retrieval.RADIUS, 600))


def test_a_step_is_measured_in_a_process_of_its_own() -> None:
    found = retrieval.costs("linear", 128)
    assert 0 < found["seconds"] < 60 and found["memory"] >= 0


def test_a_table_is_printed_and_drawn(monkeypatch, capsys) -> None:
    monkeypatch.setattr(retrieval, "costs", lambda name, length: {"seconds": 0.1, "memory": 1e6 * length})
    table = retrieval.measure(Kept(), lengths=(64, 256), seeds=(0, 1), stages=((32, 2, 1), (128, 2, 1)), count=4)
    assert list(table) == list(retrieval.WAYS)
    assert all(0 <= row.right(256) <= 1 and len(row.costs) == len(row.seeds) == 2 for row in table.values())
    assert capsys.readouterr().out.count("\n") == len(retrieval.WAYS) + 2
    panels = retrieval.picture(table, (64, 256)).axes
    assert [len(axes.lines) for axes in panels] == [len(table) + 1, len(table)]


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_full_and_linear_attention_look_up_in_8192_tokens_and_the_linear_one_takes_less_time() -> None:
    torch.set_num_threads(1)
    table, longest = retrieval.measure(Kept()), retrieval.LENGTHS[-1]
    right = {name: row.right(longest) for name, row in table.items()}
    assert min(right[name] for name in ("full", "Performer", "linear")) >= retrieval.FOUND == 0.90
    assert max(right[name] for name in ("window", "Sinkhorn")) <= retrieval.MISSED == 0.40
    assert right["LSTM"] <= retrieval.HALF == 0.75
    seconds = {name: row.costs[-1]["seconds"] for name, row in table.items()}
    assert seconds["full"] >= retrieval.SLOWER * seconds["linear"] and retrieval.SLOWER == 2.0
