import math

import torch

from edgewise.tasks.text.denoising import infill, mask_tokens, permute_sentences
from edgewise.tasks.text.tokenization import BEGIN, END, MASK, SPECIAL


def _draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_masks_are_fifteen_percent_and_of_these_eighty_ten_and_ten():
    size, n = 203, 200_000
    tokens = torch.randint(SPECIAL, size, (n,))
    read, rows = mask_tokens(tokens, size, 0.15, _draw())
    assert abs(len(rows) / n - 0.15) < 4 * math.sqrt(0.15 * 0.85 / n)
    there, was = read[rows], tokens[rows]
    tolerance = 4 * math.sqrt(0.8 * 0.2 / len(rows))
    assert abs((there == MASK).double().mean() - 0.8) < tolerance
    assert abs((there == was).double().mean() - 0.1 - 0.1 / 200) < tolerance  # one other token in 200 is the same
    other = there[(there != MASK) & (there != was)]
    assert abs(len(other) / len(rows) - 0.1 * 199 / 200) < tolerance
    assert other.min() >= SPECIAL
    assert len(other.unique()) == 200
    untouched = torch.ones(n, dtype=torch.bool).index_fill_(0, rows, False)
    assert torch.equal(read[untouched], tokens[untouched])


def test_the_ends_are_never_masked_and_something_always_is():
    tokens = torch.tensor([BEGIN, 7, 8, 9, END, BEGIN, MASK, END])
    for seed in range(50):
        read, rows = mask_tokens(tokens, 10, 0.01, _draw(seed))
        assert len(rows) >= 1
        assert set(rows.tolist()) <= {1, 2, 3}
        assert read[[0, 4, 5, 6, 7]].tolist() == [BEGIN, END, BEGIN, MASK, END]
    assert mask_tokens(tokens, 10, 1.0, _draw())[1].tolist() == [1, 2, 3]
    read, rows = mask_tokens(torch.tensor([BEGIN, END]), 10, 0.15, _draw())
    assert (read.tolist(), rows.tolist()) == ([BEGIN, END], [])


def _spans(text, damaged):
    """How many tokens each mask of a damaged text stands for, where all tokens of the text differ and rise."""
    lengths, here, masks = [], 0, 0
    for token in [*damaged, text[-1] + 1]:
        if token == MASK:
            masks += 1
            continue
        missing = token - text[0] - here
        lengths.append((masks, missing))
        here, masks = token - text[0] + 1, 0
    return [pair for pair in lengths if pair[0]]


def test_infilling_removes_its_share_and_keeps_the_order():
    text, removed = list(range(10, 29)), []
    for seed in range(2000):
        damaged = infill(text, 0.3, 3.0, _draw(seed))
        kept = [token for token in damaged if token != MASK]
        assert kept == sorted(kept)
        assert set(kept) <= set(text)
        removed.append(len(text) - len(kept))
        assert sum(missing for _, missing in _spans(text, damaged)) == removed[-1]  # where one is missing, a mask is
    assert set(removed) == {5, 6}  # 0.3 · 19 = 5.7
    assert abs(sum(removed) / 2000 - 5.7) < 4 * math.sqrt(0.21 / 2000)


def test_sentences_stay_whole_in_any_order():
    text = [11, 12, 5, 13, 5, 14, 15]
    found = {tuple(permute_sentences(text, {5}, _draw(seed))) for seed in range(200)}
    pieces = [(11, 12, 5), (13, 5), (14, 15)]
    orders = {
        pieces[a] + pieces[b] + pieces[c]
        for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    }
    assert found == orders
