"""Noise on token sequences that a denoising model learns to undo: masks, spans, deletion and permutation."""

from collections.abc import Collection, Sequence

import torch
from torch import Generator, Tensor

from edgewise.tasks.text.tokenization import MASK, NO_TEXT


def mask_tokens(
    tokens: Tensor,
    size: int,
    share: float,
    generator: Generator,
    mask: int = MASK,
    special: Collection[int] = NO_TEXT,
) -> tuple[Tensor, Tensor]:
    """BERT's noise: choose some tokens; of these 80 % become the mask, 10 % another one and 10 % stay as they are.

    Symbols     share = how likely a token is chosen; size = tokens of the vocabulary; special = those that no text has
    Shapes      tokens [N] int64 -> what is read [N], and which of them were chosen [n], in ascending order
    Edge cases  special tokens are never chosen, nor drawn; of a sequence with other tokens at least one is chosen
    Differs     each token is chosen by itself, where the paper fixes how many are
    Reference   Devlin et al., "BERT", 2019, §3.1

    Example
        >>> draw = torch.Generator().manual_seed(0)
        >>> mask_tokens(torch.tensor([0, 7, 8, 9, 1]), 10, 0.15, draw)  # 9 is to be guessed
        (tensor([0, 7, 8, 2, 1]), tensor([3]))
    """
    ordinary = torch.ones(size, dtype=torch.bool)
    ordinary[list(special)] = False
    words, able = ordinary.nonzero().flatten(), ordinary[tokens].nonzero().flatten()
    lots = torch.rand(len(able), generator=generator)
    rows = able[(lots < share) | ((lots == lots.min()) & (lots.min() >= share))] if len(able) else able
    fate = torch.rand(len(rows), generator=generator)
    other = words[torch.randint(len(words), (len(rows),), generator=generator)]
    read = tokens.clone()
    read[rows] = torch.where(fate < 0.8, mask, torch.where(fate < 0.9, other, tokens[rows]))
    return read, rows


def infill(tokens: Sequence[int], share: float, span: float, generator: Generator, mask: int = MASK) -> list[int]:
    """BART's text infilling: spans of tokens each become a single mask, so that their length has to be guessed too.

    Equation    lengths ~ Poisson(λ), one after the other until they add up to the share of the n tokens; the last one
                is cut to fit. All places where the spans do not overlap are equally likely
    Symbols     span = λ
    Edge cases  a span of no tokens puts in a mask where nothing is missing; share · n is rounded up or down at random,
                so that it is right on average
    Reference   Lewis et al., "BART", 2020, §2.2; Joshi et al., "SpanBERT", 2020

    Example
        >>> infill([11, 12, 13, 14, 15, 16], 0.5, 3.0, torch.Generator().manual_seed(0))
        [11, 12, 2, 2, 2, 16]
    """
    missing = int(share * len(tokens) + float(torch.rand((), generator=generator)))
    lengths: list[int] = []
    while sum(lengths) < missing:
        drawn = int(torch.poisson(torch.tensor(span), generator=generator))
        lengths.append(min(drawn, missing - sum(lengths)))
    left = len(tokens) - missing + len(lengths)  # the tokens that stay, and the masks
    places = set(torch.randperm(left, generator=generator)[: len(lengths)].tolist())
    made, here, spans = [], 0, iter([lengths[i] for i in torch.randperm(len(lengths), generator=generator).tolist()])
    for place in range(left):
        made.append(mask if place in places else tokens[here])
        here += next(spans) if place in places else 1
    return made


def delete_tokens(tokens: Sequence[int], share: float, generator: Generator) -> list[int]:
    """Token deletion: each token is left out with a probability of `share`; where, has to be guessed. BART, §2.2.

    Example
        >>> delete_tokens([11, 12, 13], 0.0, torch.Generator())
        [11, 12, 13]
    """
    stay = torch.rand(len(tokens), generator=generator) >= share
    return [token for token, stays in zip(tokens, stay.tolist(), strict=True) if stays]


def permute_tokens(tokens: Sequence[int], reach: int, generator: Generator) -> list[int]:
    """A slight permutation: no token moves by more than `reach` places; 0 leaves them as they are.

    Equation    sort by i + u_i,  u_i uniform in [0, reach + 1)
    Reference   Lample et al., "Unsupervised machine translation using monolingual corpora only", 2018, §2.3

    Example
        >>> permute_tokens([11, 12, 13, 14], 0, torch.Generator())
        [11, 12, 13, 14]
    """
    order = torch.arange(len(tokens)) + (reach + 1) * torch.rand(len(tokens), generator=generator)
    return [tokens[i] for i in order.argsort(stable=True).tolist()]


def permute_sentences(tokens: Sequence[int], stops: Collection[int], generator: Generator) -> list[int]:
    """Sentence permutation: a text is cut after every stop, and the pieces are put together in random order.

    Symbols     stops = tokens that end a sentence
    Reference   Lewis et al., "BART", 2020, §2.2

    Example
        >>> permute_sentences([11, 5, 12, 13, 5], {5}, torch.Generator().manual_seed(1))
        [12, 13, 5, 11, 5]
    """
    pieces: list[list[int]] = [[]]
    for token in tokens:
        pieces[-1].append(token)
        if token in stops:
            pieces.append([])
    pieces = [piece for piece in pieces if piece]
    return [token for i in torch.randperm(len(pieces), generator=generator).tolist() for token in pieces[i]]
