import pytest
import torch

from benchmarks.studies.claims import learned


def test_the_probe_reads_positions_that_are_there_and_guesses_where_they_are_not() -> None:
    line = torch.linspace(0, 1, 64)[:, None] * torch.randn(1, 8, generator=torch.Generator().manual_seed(0))
    distance, order = learned.probe(line)
    assert distance < 2 and order == 1.0
    distance, order = learned.probe(learned.drawn())
    assert distance > 12 and 0.4 < order < 0.6
    assert learned.probe(learned.sinusoids())[0] < 3


def test_cosines_are_around_the_mean() -> None:
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    assert torch.allclose(learned.cosines(x), torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64))
    near, far = learned.likeness(learned.cosines(learned.sinusoids()))
    assert near > 0.8 and far < 0.1


def test_a_table_is_printed_and_a_map_of_each_drawn(capsys) -> None:
    vectors = {"drawn": learned.drawn(), "sinusoids": learned.sinusoids()}
    found = learned.measure(vectors)
    assert found["drawn"][0] > found["sinusoids"][0]
    assert capsys.readouterr().out.count("\n") == 4
    assert [axes.get_title(loc="left") for axes in learned.picture(vectors).axes] == ["drawn", "sinusoids"]


@pytest.mark.accuracy
@pytest.mark.timeout(1200)
def test_a_linear_map_reads_the_position_from_what_a_gpt_has_learned(data) -> None:
    data("tinyshakespeare")
    distance, order, near, far = learned.measure({"learned": learned.learned()})["learned"]
    assert distance <= learned.DISTANCE == 8.0
    assert order >= learned.ORDER == 0.80
    assert near - far >= learned.ALIKE == 0.2
