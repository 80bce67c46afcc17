"""The benchmark of a GPU at toy sizes on the CPU: every contender that runs there is right."""

import json
from pathlib import Path

import pytest

from benchmarks import gpu
from edgewise.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch Geometric's


@pytest.mark.studies
def test_a_dry_run_measures_and_writes_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main(["csr-100k-bf16", "sum-100k-fp32", "window-16384", "--dry-run", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "results.json").read_text())
    assert {row["case"] for row in rows} == {"csr-100k-bf16", "sum-100k-fp32", "window-16384"}
    for row in rows:
        if row["contender"] in ("edgewise", "segment"):
            assert row["error"] < 4e-2 and row["milliseconds"]["step"] > 0 and "refused" not in row
    assert not [row for row in rows if "wrong" in row.get("refused", "")]
    assert "| edgewise |" in (tmp_path / "table.md").read_text() and "## csr-100k-bf16" in capsys.readouterr().out


def test_an_unknown_case_and_a_missing_card_are_said() -> None:
    with pytest.raises(ConfigError, match="did you mean 'csr-1M-bf16'"):
        gpu.main(["csr-1M-bf61"])
