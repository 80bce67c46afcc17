"""The curve: who hears whom, what is known, and what the cubic makes of it."""

import pytest

from edgewise.errors import DataError
from edgewise.models import KernelRegressionModel, KernelRegressionSettings
from edgewise.tasks import curve


def test_everybody_hears_the_training_points_but_itself() -> None:
    task = curve(points=20)
    mask = task.graph().dense_mask()
    assert mask.shape == (270, 270)
    assert mask[:, 20:].sum() == 0
    assert not mask.diagonal().any()
    assert mask[:20].sum(1).tolist() == [19] * 20 and mask[20:].sum(1).tolist() == [20] * 250


def test_places_are_predicted() -> None:
    task = curve(noise=0.0)
    model = KernelRegressionModel(KernelRegressionSettings(0.03), task.signature)
    first, second = task.predict(model, None, "0.25, 1.75", "cpu")["places"]
    assert first["fit"] == pytest.approx(1, abs=0.2) and second["fit"] == pytest.approx(-1, abs=0.2)
    assert first["truth"] == pytest.approx(1, abs=0.01)
    for request in ("4", "nan", "x", ""):
        with pytest.raises(DataError, match="no place"):
            task.predict(model, None, request, "cpu")
