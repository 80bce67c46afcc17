"""Which tokens are drawn, by transformers' own definitions, and where texts end."""

from collections.abc import Iterator

import pytest
import torch

from edgewise.errors import ConfigError
from edgewise.models.text.sampling import Piece, Sampling, pieces, texts_of


@pytest.mark.parametrize("seed", range(10))
def test_the_rules_are_those_of_transformers(seed: int) -> None:
    own = pytest.importorskip("transformers.generation.logits_process")
    random = torch.Generator().manual_seed(seed)
    scores, tokens = 4 * torch.randn(3, 50, generator=random), torch.randint(50, (3, 20), generator=random)
    share, penalty = torch.rand(2, generator=random).tolist()
    each = {
        "repetition_penalty": (0.5 + penalty, own.RepetitionPenaltyLogitsProcessor),
        "temperature": (0.3 + share, own.TemperatureLogitsWarper),
        "top_k": (7 + seed, own.TopKLogitsWarper),
        "top_p": (0.1 + 0.8 * share, own.TopPLogitsWarper),
        "min_p": (0.3 * penalty, own.MinPLogitsWarper),
    }
    together = scores
    for name, (value, processor) in each.items():
        assert torch.equal(Sampling(**{name: value}).likely(scores, tokens), processor(value)(tokens, scores)), name
        together = processor(value)(tokens, together)
    assert torch.equal(Sampling(**{name: value for name, (value, _) in each.items()}).likely(scores, tokens), together)
    assert 0 < int(together.isfinite().sum()) < scores.numel()


def test_draws_follow_the_probabilities_and_the_generator() -> None:
    scores, none = torch.tensor([0.0, 1.0, 3.0]).expand(20000, 3), torch.empty(20000, 0, dtype=torch.int64)
    draws = [Sampling(temperature=2.0).draw(scores, none, torch.Generator().manual_seed(3)) for _ in range(2)]
    frequencies = draws[0].flatten().bincount(minlength=3) / 20000
    assert torch.allclose(frequencies, torch.softmax(scores[0] / 2.0, -1), atol=0.015)
    assert torch.equal(*draws)


def test_draws_are_from_what_is_likely_only() -> None:
    scores, none = torch.tensor([5.0, 1.0, 4.9, 4.8]).expand(500, 4), torch.empty(500, 0, dtype=torch.int64)

    def found(**options: float) -> set[int]:
        return set(Sampling(**options).draw(scores, none, torch.Generator().manual_seed(0)).flatten().tolist())

    assert found(top_k=2) == found(top_p=0.5) == found(min_p=0.9) == {0, 2}
    assert found(top_k=1) == found(temperature=0) == found(top_p=1e-6) == {0}
    assert found(temperature=10.0, top_k=99) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a number (at least 0) or null, not -1.0"),
        ({"temperature": float("nan")}, "temperature must be a number (at least 0) or null, not nan"),
        ({"top_k": 0}, "top_k must be an integer (at least 1) or null, not 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, not 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, not 1.5"),
        ({"min_p": -0.1}, "min_p must be at least 0 and at most 1, not -0.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0, not 0.0"),
        ({"steps": -1}, "steps must be at least 0, not -1"),
        ({"count": 0}, "count must be an integer (at least 1) or null, not 0"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"stop": ("a", "")}, "stop must be a text of at least one character"),
        ({"stop": 3}, "stop must be a list or text, not 3"),
    ],
)
def test_a_value_outside_its_range_is_named_with_the_range(options, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Sampling(**options)
    assert message in str(refused.value)


def spelled(*texts: str) -> Iterator[torch.Tensor]:
    """The bytes of texts of one length as tokens, a step after the other."""
    for step in zip(*(text.encode() for text in texts), strict=True):
        yield torch.tensor(step)[:, None]


def written(*texts: str, end: int | None = None, prompt: str = "é ", **options) -> list[Piece]:
    def decode(tokens: list[int]) -> str:
        return bytes(tokens).decode("utf-8", "replace")

    sampling = Sampling(prompt=prompt, count=len(texts), **options)
    made = [*pieces(spelled(*texts), [*prompt.encode()], decode, sampling, end)]
    assert not any("\ufffd" in piece.text for piece in made)
    told = texts_of(made, sampling)
    assert told["text"] == told["texts"][0] and all(text.startswith(prompt) for text in told["texts"])
    return made


@pytest.mark.parametrize(
    ("text", "options", "expected", "ended"),
    [
        ("zwölf Bären 🐻 da", {}, "zwölf Bären 🐻 da", "length"),
        ("one STOP two", {"stop": "STOP"}, "one ", "stop"),
        ("one STO", {"stop": "STOP"}, "one STO", "length"),
        ("SSTOP", {"stop": "STOP"}, "S", "stop"),
        ("one ö two", {"stop": ("two", "ö ")}, "one ", "stop"),
        ("one two", {"stop": ("one two", "two")}, "", "stop"),
        ("one!two", {"end": ord("!")}, "one", "end"),
        ("one T!", {"end": ord("!"), "stop": "TWO"}, "one T", "end"),
    ],
)
def test_a_text_ends_where_it_is_told_to(text: str, options, expected: str, ended: str) -> None:
    made = written(text, **options)
    assert "".join(piece.text for piece in made) == expected
    assert [piece.ended for piece in made if piece.ended] == [ended] and made[-1].ended == ended


def test_each_of_several_texts_ends_by_itself_and_nothing_is_drawn_after_the_last() -> None:
    steps = spelled("a.bcd", "abc.d")
    sampling = Sampling(prompt="x", count=2, stop=".")
    made = [*pieces(steps, [120], lambda tokens: bytes(tokens).decode(), sampling, None)]
    assert texts_of(made, sampling)["texts"] == ["xa", "xabc"] and texts_of(made, sampling)["ended"] == ["stop"] * 2
    assert next(steps)[:, 0].tolist() == [100, 100]
