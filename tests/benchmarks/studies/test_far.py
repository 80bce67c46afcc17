import itertools
from types import SimpleNamespace

import pytest
import torch

from benchmarks.studies.claims import far
from benchmarks.studies.claims.common import budget
from benchmarks.studies.claims.common.budget import parameters
from benchmarks.studies.claims.common.kept import Kept
from edgewise.models import Tokens


def test_the_letters_are_due_at_the_blanks_and_stand_nowhere_else() -> None:
    tokens, targets, counts = far.copying(20, 3, torch.Generator().manual_seed(0))
    assert tokens.shape == targets.shape == counts.shape == (3, 20)
    assert torch.equal(targets[counts].view(3, 8), tokens[:, :8])
    assert (tokens[:, :8] < far.LETTERS).all() and (tokens[:, 8:12] >= far.LETTERS).all()
    assert (tokens[:, 12:] == far.VOCABULARY - 1).all() and counts.sum() == 24


@pytest.mark.parametrize("makers", [far.COPIERS, far.WRITERS], ids=["copiers", "writers"])
def test_both_networks_have_as_many_parameters_within_5_percent(makers) -> None:
    vocabulary = far.VOCABULARY if makers is far.COPIERS else 65
    sizes = [parameters(make(Tokens(vocabulary, vocabulary, length=64))) for make in makers.values()]
    assert max(sizes) <= 1.05 * min(sizes)


def test_training_lowers_the_loss_within_its_time(monkeypatch) -> None:
    """By a clock on which each step takes a 40th of the time, so that no other work on the machine can slow it."""
    clock = itertools.count()
    monkeypatch.setattr(budget, "time", SimpleNamespace(process_time=lambda: next(clock) / 40))
    torch.manual_seed(0)
    model = far.COPIERS["transformer"](Tokens(far.VOCABULARY, far.VOCABULARY, length=17))
    batch = far.copying(17, 32, torch.Generator().manual_seed(1))
    before = far.loss(model, batch).item()
    assert budget.learn(model, lambda generator: far.loss(model, far.copying(17, 16, generator)), 1.0) == 39
    assert far.loss(model, batch).item() < before - 0.5
    assert 0 <= far.copied(model, 17) <= 1


def test_a_table_is_printed_and_drawn(data, capsys) -> None:
    data("tinyshakespeare")
    found = far.measure(Kept(), seconds=(0.05, 0.05))
    assert [len(own) for own in found[0].values()] == [3, 3]
    assert all(one["steps"] >= 1 for own in found[0].values() for one in own)
    assert all(2 < own[0]["loss"] < 6 for own in found[1].values())
    assert capsys.readouterr().out.count("\n") == 4
    assert [len(axes.lines) for axes in far.picture(found).axes] == [3, 2]


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_the_transformer_copies_over_a_distance_and_the_lstm_writes_better_characters(data) -> None:
    data("tinyshakespeare")
    torch.set_num_threads(1)
    copies, characters = far.measure(Kept())
    assert copies["transformer"][-1]["accuracy"] >= far.FAR == 0.90
    assert copies["LSTM"][-1]["accuracy"] <= far.LOST == 0.50
    assert characters["LSTM"][0]["loss"] < characters["transformer"][0]["loss"]
