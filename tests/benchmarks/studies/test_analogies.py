from collections import Counter

import pytest
import torch
from torch.nn import functional

from benchmarks.studies.claims import analogies
from benchmarks.studies.claims.common.kept import Kept


def test_pairs_are_found_by_their_spelling() -> None:
    known = ["bus", "girl", "girls", "grass", "walk"]
    verbs = {"holds": "holding", "watches": "watching", "rides": "riding", "runs": "running", "walks": "walking"}
    known += [*verbs, *verbs.values()]
    found = analogies.forms(Counter(dict.fromkeys(known, 3)), least=3)
    assert dict(found["verbs"]) == verbs and found["nouns"] == [("girl", "girls")]
    assert analogies.forms(Counter(dict.fromkeys(known, 2)), least=3) == {"verbs": [], "nouns": []}


def test_information_is_its_formula() -> None:
    texts, words = [["a", "b", "rare", "a"], ["b", "a"]], ("a", "b")
    found = analogies.information(texts, words, window=1)
    # a and b stand side by side twice; a word that is not asked for still takes a place.
    contexts = torch.tensor([2.0, 2.0], dtype=torch.float64) ** 0.75
    expected = (2.0 / (2.0 * contexts / contexts.sum())).log()
    assert torch.allclose(found, torch.tensor([[0.0, expected[1]], [expected[0], 0.0]], dtype=torch.float64))
    texts = [["a", "rare", "a"], ["b", "b"]]
    assert analogies.information(texts, words, window=1)[0, 0] == 0
    wider = analogies.information(texts, words, window=2)
    assert wider[0, 0] > 0 and wider[1, 1] > 0 and wider[0, 1] == wider[1, 0] == 0


def test_a_difference_that_is_the_same_solves_what_the_nearest_word_does_not() -> None:
    generator = torch.Generator().manual_seed(0)
    middle, apart = torch.randn(21, 30, generator=generator, dtype=torch.float64).split([1, 20])
    first = middle + 0.3 * apart
    difference = 3 * functional.normalize(torch.randn(30, generator=generator, dtype=torch.float64), dim=0)
    vectors = functional.normalize(torch.cat([first, first + difference]), dim=-1)
    pairs = torch.arange(40).view(2, 20).T
    other = vectors[pairs[:, 1]] - vectors[pairs[:, 0]]
    assert analogies.solved(vectors, other.mean(0), pairs).double().mean() > 0.9
    assert analogies.solved(vectors, torch.zeros(30, dtype=torch.float64), pairs).double().mean() < 0.5
    others = analogies.left_out(vectors, pairs)
    assert torch.allclose(others[3], torch.cat([other[:3], other[4:]]).mean(0))


def test_what_chooses_and_what_is_asked_are_apart_and_a_table_is_printed_and_drawn(data, capsys) -> None:
    data("multi30k")
    words = analogies.Words(analogies.captions()[:6000])
    known, asked = words.halves("verbs")
    assert not set(known.flatten().tolist()) & set(asked.flatten().tolist())
    found = analogies.measure(Kept(), words)
    assert set(found) == {"verbs", "nouns"}
    assert all(0 <= own[name] <= 1 for own in found.values() for name in ("mean", "single", "alone"))
    assert capsys.readouterr().out.count("\n") == 4
    shown = [text.get_text().strip() for text in analogies.picture(words).axes[0].texts]
    assert {"holds", "holding"} <= set(shown)


@pytest.mark.accuracy
@pytest.mark.timeout(300)
def test_the_difference_of_two_forms_carries_over_from_verb_to_verb(data) -> None:
    data("multi30k")
    found = analogies.measure(Kept(), analogies.Words(analogies.captions()))["verbs"]
    assert found["mean"] >= analogies.SOLVED == 0.75
    assert found["alone"] <= analogies.ALONE == 0.60
