"""For all tests of layers that are swapped."""

import pytest

from edgewise.interop import twin

collect_ignore = ["geometric/converted.py"]  # a plugin for another repository's tests


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs take the way of large ones."""
    monkeypatch.setattr(twin, "is_small", lambda given, least: False)
