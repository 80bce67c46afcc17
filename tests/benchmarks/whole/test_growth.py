"""The growth of a step: what is timed, and the slopes that are printed."""

import pytest
import torch

from benchmarks.whole import growth


@pytest.mark.parametrize("kind", growth.GRAPHS)
@pytest.mark.parametrize("verb", growth.VERBS)
def test_each_size_is_a_line_and_the_slopes_come_last(verb, kind, capsys, monkeypatch):
    monkeypatch.setattr(growth, "SECONDS", 0.0)
    assert growth.main([verb, kind, "1000", "20000"]) == 0
    first, *_, small, large, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{verb}, {kind},") and last.startswith("slope ")
    assert small.startswith("| 1,000 |") and large.startswith("| 20,000 |")
    assert float(large.split("|")[3]) > 0


def test_the_slope_is_that_of_the_line_and_the_steepest_is_said_too():
    rows = [{"edges": 10.0**n, "ms": 10.0**time} for n, time in ((1, 1), (2, 1.5), (3, 3))]
    line, steepest = growth.slopes(rows)
    assert line == pytest.approx(1.0)
    assert steepest == pytest.approx(1.5)


def test_a_near_graph_reaches_no_further():
    senders, receivers = growth.near(50_000, 4_000, torch.Generator().manual_seed(0))
    apart = (senders - receivers).abs()
    assert int(torch.minimum(apart, 50_000 - apart).max()) <= growth.AROUND
    assert int(apart.float().median()) > growth.AROUND / 4


@pytest.mark.parametrize("given", [[], ["attend"], ["collect", "random"], ["attend", "far"]])
def test_another_verb_or_graph_is_refused(given, capsys):
    assert growth.main(given) == 2
    assert "attend, aggregate, then one of random, near" in capsys.readouterr().err
