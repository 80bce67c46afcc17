"""Tiles: what is read at once, and the choice among candidates that is kept for each card."""

import json

import pytest
import torch

from edgewise.kernels.backends.cuda.programs import tiles
from edgewise.kernels.backends.cuda.programs.tiles import Heads, Tile


@pytest.fixture
def card(monkeypatch, cache):
    """A pretended card, on which a tile takes as many milliseconds as it has edges; the calls that are timed."""
    timed = []

    def milliseconds(work):
        tile = work()
        timed.append(tile)
        return tile.edges

    (cache / "tiles").mkdir(parents=True)
    monkeypatch.setattr(tiles, "identity", lambda index: "Card-9000")
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
    assert json.loads((cache / "tiles" / "Card-9000.json").read_text()) == {"attend": [4, 1]}
    tiles._fastest.clear()
    assert run() == Tile(4, 1) and len(card) == 3, "as in a process that starts afresh"
    run("by_sender")
    assert set(json.loads((cache / "tiles" / "Card-9000.json").read_text())) == {"attend", "by_sender"}


def test_short_calls_and_captured_ones_are_not_timed(card, monkeypatch):
    assert run(moved=tiles.WORTH - 1) == CANDIDATES[0]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert run() == CANDIDATES[0] and card == []


def test_a_fixed_tile_runs_under_deterministic_algorithms(card):
    run()
    torch.use_deterministic_algorithms(True)
    try:
        # Nothing is timed, nor is what was timed used.
        assert run() == run("by_sender") == CANDIDATES[0] and len(card) == 3, (
            "nothing is timed, nor what was timed used"
        )
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("text", ["", "[]", '{"attend": 3}', '{"attend": [1000, 1]}', '{"attend": ["x", null]}'])
def test_a_file_that_is_not_ours_is_as_good_as_none(card, cache, text):
    (cache / "tiles" / "Card-9000.json").write_text(text)
    assert run() == Tile(4, 1)


def test_a_tile_that_is_no_candidate_any_more_is_not_used(card, cache):
    (cache / "tiles" / "Card-9000.json").write_text('{"attend": [2, 8]}')
    assert run() == CANDIDATES[0]


def test_a_program_holds_rows_of_at_most_2_kib(monkeypatch):
    monkeypatch.setattr(tiles, "INTERPRETED", False)
    for heads in (1, 3, 8, 12, 64):
        for channels in (1, 5, 16, 48, 128, 512):
            for size in (2, 4):
                layout = Heads.of(heads, channels, size)
                assert layout.heads * layout.groups >= heads and layout.heads & (layout.heads - 1) == 0
                assert layout.bytes <= 2048 or layout.heads == 1
                for tile in layout.candidates(size):
                    rows = layout.rows(tile)
                    assert rows & (rows - 1) == 0 and tile.warps in (1, 2, 4, 8)
                    assert rows * layout.bytes >= 32 * min(tile.warps, 8) * layout.lane or rows == 1
                    assert rows == 1 or rows * layout.bytes <= 32 * tile.warps * layout.lane
