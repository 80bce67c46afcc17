"""Tiles: what is read at once, and the choice among candidates that is kept for each card."""

import pytest
import torch

from edgewise.kernels.backends.cuda import programs
from edgewise.kernels.backends.cuda.programs import tiles
from edgewise.kernels.backends.cuda.programs.tiles import Tile


@pytest.fixture
def card(monkeypatch, cache):
    """A pretended card, on which a tile takes as many milliseconds as it has edges; the calls that are timed."""
    timed = []

    def milliseconds(work):
        tile = work()
        timed.append(tile)
        return tile.edges

    (cache / "tiles").mkdir(parents=True)
    monkeypatch.setattr(programs, "identity", lambda index: "Card-9000")
    monkeypatch.setattr(tiles, "_fastest", {})
    monkeypatch.setattr(tiles, "_milliseconds", milliseconds)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return timed


CANDIDATES = [Tile(8, 1), Tile(4, 1), Tile(4, 4)]
CUDA = torch.device("cuda", 0)


def run(key="attend", moved=tiles.WORTH):
    return tiles.run(key, CANDIDATES, moved, CUDA, lambda tile: tile)


def test_the_fastest_is_measured_once_and_cached_for_later_processes(card, cache):
    assert [run(), run()] == [Tile(4, 1)] * 2
    assert card == CANDIDATES, "timed once each"
    tiles._fastest.clear()
    assert run() == Tile(4, 1) and len(card) == 3, "as in a process that starts afresh"
    run("by_sender")
    assert programs.remembered("tiles", 0) == {"attend": [4, 1], "by_sender": [4, 1]}


def test_short_calls_and_captured_ones_are_not_timed(card, monkeypatch):
    assert run(moved=tiles.WORTH - 1) == CANDIDATES[0]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert run() == CANDIDATES[0] and card == []


def test_a_fixed_tile_runs_under_deterministic_algorithms(card):
    run()
    torch.use_deterministic_algorithms(True)
    try:
        assert run() == run("by_sender") == CANDIDATES[0] and len(card) == 3, "nothing is timed, nor used"
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("text", ["", "[]", '{"attend": 3}', '{"attend": [1000, 1]}', '{"attend": ["x", null]}'])
def test_a_file_that_is_not_ours_is_as_good_as_none(card, cache, text):
    (cache / "tiles" / "Card-9000.json").write_text(text)
    assert run() == Tile(4, 1)
