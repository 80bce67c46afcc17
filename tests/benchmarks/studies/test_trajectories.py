import pytest

from benchmarks.studies.claims import trajectories
from benchmarks.studies.claims.common.kept import Kept


def test_a_table_is_printed_and_drawn(monkeypatch, capsys) -> None:
    few = {name: trajectories.NETWORKS[name] for name in ("radial field", "EGNN, turned data")}
    monkeypatch.setattr(trajectories, "NETWORKS", few)
    kept = Kept()
    table = trajectories.measure(kept, sizes=(50, 60), steps=2, seeds=(3, 4))
    assert list(table) == list(few) and all(len(row) == 2 for row in table.values())
    assert all(own["mse"] > 0 and own["parameters"] > 1000 for row in table.values() for own in row)
    ends = [kept.found[f"EGNN, turned data 50 {seed}"]["mse"] for seed in (3, 4)]
    fewest, more = table["EGNN, turned data"]
    assert fewest["mse"] == pytest.approx(sum(ends) / 2) and ends[0] != ends[1]
    assert fewest["sd"] == pytest.approx(abs(ends[0] - ends[1]) / 2**0.5)
    assert more["sd"] == 0 and len(kept.found) == 2 * 3
    assert capsys.readouterr().out.count("\n") == len(few) + 2
    assert len(trajectories.picture(table, (50, 60)).axes[0].lines) == len(few)


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_from_few_trajectories_an_equivariant_network_has_half_the_error_and_turned_data_change_it_little(
    monkeypatch,
) -> None:
    names = ("GNN", "EGNN", "EGNN, turned data", "SE(3)-Transformer")
    monkeypatch.setattr(trajectories, "NETWORKS", {name: trajectories.NETWORKS[name] for name in names})
    table = trajectories.measure(Kept(), sizes=(100,))
    error = {name: row[0]["mse"] for name, row in table.items()}
    assert max(error["EGNN"], error["SE(3)-Transformer"]) <= trajectories.FEWER * error["GNN"]
    assert trajectories.FEWER == 0.5
    assert error["EGNN, turned data"] == pytest.approx(error["EGNN"], rel=trajectories.SAME)
