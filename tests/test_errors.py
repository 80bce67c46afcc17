from pathlib import Path

import pytest

from edgewise import errors


def test_a_missing_extra_names_the_command_that_works_in_a_clone() -> None:
    root = Path(__file__).parent.parent
    assert errors.installing("text") == f"run `make extras`, or pip install --editable '.[text]', in {root}"
    assert "extras:" in (root / "Makefile").read_text(encoding="utf-8")


def test_elsewhere_it_names_what_pip_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "edgewise" / "errors.py"))
    assert errors.installing("text") == "pip install 'edgewise[text]'"
