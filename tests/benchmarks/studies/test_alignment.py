import pytest
import torch

from benchmarks.studies.claims import alignment
from benchmarks.studies.claims.common.budget import parameters
from benchmarks.studies.claims.common.kept import Kept


def test_the_letters_are_due_backwards_each_after_the_one_before_it() -> None:
    x, due = alignment.drawn(3, 2, torch.Generator().manual_seed(0))
    sources, targets = x.view(2, 2, 3)
    assert torch.equal(due.view(2, 3), sources.flip(-1))
    assert (targets[:, 0] == alignment.LETTERS).all() and torch.equal(targets[:, 1:], due.view(2, 3)[:, :-1])


def test_both_networks_have_as_many_parameters_within_5_percent() -> None:
    sizes = [parameters(alignment.network(kind)) for kind in alignment.WIDTHS]
    assert max(sizes) <= 1.05 * min(sizes)


def test_a_table_is_printed_and_drawn(capsys) -> None:
    table = alignment.measure(Kept(), lengths=(2, 3), seconds=0.1)
    assert all(0 <= cell["accuracy"] <= 1 and cell["steps"] >= 1 for row in table.values() for cell in row)
    assert capsys.readouterr().out.startswith("| decoder reads | parameters | 2 letters | 3 letters |")
    assert len(alignment.picture(table, (2, 3)).axes[0].lines) == 2


@pytest.mark.accuracy
@pytest.mark.timeout(1200)
def test_attention_writes_long_sequences_that_the_last_states_do_not_hold() -> None:
    torch.set_num_threads(1)
    table = alignment.measure(Kept())
    assert table["attention"][-1]["accuracy"] >= alignment.WITH == 0.90
    assert table["last states"][-1]["accuracy"] <= alignment.WITHOUT == 0.60
