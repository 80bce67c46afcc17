import pytest

from edgewise.apps.bench import inputs
from edgewise.apps.bench.regret import break_even, measure, random, summary
from edgewise.kernels import Dot


def row(density: float, dense: float, segment: float) -> dict[str, object]:
    return {"density": density, "milliseconds": {"dense": dense, "segment": segment}}


def test_the_break_even_lies_between_the_densities_by_logarithms() -> None:
    assert break_even([row(0.01, 10, 1), row(1.0, 10, 100)]) == pytest.approx(0.1)


def test_without_a_crossing_there_is_no_break_even() -> None:
    assert break_even([row(0.01, 1, 2), row(1.0, 1, 3)]) is None


def test_a_configuration_measures_every_backend_and_the_regret_of_the_choice() -> None:
    found = measure(
        {"graph": "random", "n": 64, "density": 0.1, "heads": 2, "channels": 4},
        inputs.attention(random(64, 0.1), 2, 4, Dot()),
    )
    assert {"dense", "segment"} <= set(found["milliseconds"])
    times = found["milliseconds"]
    assert found["regret"] == pytest.approx(times[found["choice"]] / min(times.values()) - 1)
    assert summary([found])["worst_at"]["graph"] == "random"
