import pytest

from benchmarks.studies.claims import warm_up
from benchmarks.studies.claims.kept import Kept


def test_each_kind_is_trained_at_each_depth_and_drawn(capsys) -> None:
    table = warm_up.measure(Kept(), depths=(1, 2), seeds=1, steps=2)
    assert table.keys() == {(block, steps) for block in ("pre-norm", "post-norm") for steps in (0, 50)}
    assert all(0 <= accuracy <= 1 for row in table.values() for accuracy in row)
    assert "| post-norm, none |" in capsys.readouterr().out
    axes = warm_up.picture(table, (1, 2)).axes[0]
    assert [line.get_linestyle() for line in axes.lines] == ["--", "-", "--", "-"]


def test_the_mean_of_the_seeds_is_taken() -> None:
    kept = Kept(found={})
    for name in warm_up.KINDS.values():
        for seed, accuracy in enumerate((0.2, 0.6)):
            kept.found[f"{name} 3 {seed}"] = {"accuracy": accuracy, "seconds": 1.0}
    assert warm_up.measure(kept, depths=(3,), seeds=2)["pre-norm", 0] == [pytest.approx(0.4)]
