"""The tiny task and model, in the tables while a test runs."""

import pytest

from edgewise.models import MODELS
from edgewise.tasks import TASKS
from training.tiny import PenalisedMaps, TwoMaps, TwoMapsSettings, tiny


@pytest.fixture(autouse=True)
def tiny_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "tiny", tiny)
    monkeypatch.setitem(MODELS, "two maps", (TwoMapsSettings, TwoMaps))
    monkeypatch.setitem(MODELS, "penalised", (TwoMapsSettings, PenalisedMaps))
