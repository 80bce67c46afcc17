import pytest

from benchmarks.statistic import slope, spread


def test_the_median_and_the_quartiles() -> None:
    found = spread([9.0, 1.0, 5.0, 3.0, 7.0])
    assert (found.median, found.low, found.high, found.rounds) == (5.0, 3.0, 7.0, 5)


def test_one_round_is_its_own_median() -> None:
    assert spread([2.0]).low == spread([2.0]).high == 2.0


def test_one_slow_round_does_not_move_the_median() -> None:
    assert spread([1.0, 1.0, 1.0, 1.0, 50.0]).median == 1.0


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_slope_is_the_exponent(power: float) -> None:
    sizes = [64.0, 128.0, 512.0]
    assert slope(sizes, [3 * n**power for n in sizes]) == pytest.approx(power)
