"""Generation: a language model continues a text, token by token, on a graph without edges from later positions."""

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.layers import probabilities
from edgewise.models.capabilities import LanguageModel, evaluating
from edgewise.models.signature import Tokens


@torch.no_grad()
def generate(
    model: LanguageModel,
    tokens: Tensor,
    steps: int,
    pattern: Callable[[int], Graph],
    temperature: float = 1.0,
    top_k: int | None = None,
    cache: bool = True,
    generator: torch.Generator | None = None,
    allowed: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Draw `steps` more tokens, each from the model's probabilities given all before it.

    Equation    t_{n+1} ~ softmax(φ(t_1..t_n)_n / T), restricted to the top_k most probable tokens
    Symbols     temperature = T; 0 takes the most probable token (greedy); pattern(n) = the graph over n positions;
                allowed(t) [*, vocabulary] = which tokens may follow t [*, n], where a grammar says so: at least one
    Shapes      tokens [*, n] int64 -> [*, n + steps]
    Errors      ConfigError for a model that does not read and write tokens, an empty prompt, a negative temperature,
                a top_k below 1, or a pattern in which a position attends to a later one
    Edge cases  when all `signature.length` positions are taken, the older half is dropped and the rest is recomputed
                at positions 0, 1, ...; with `cache` or without, so that it changes the speed and never the text
    Cost        per token O(n width) attention and O(width²) with the cache, without it a full forward pass over n
                nodes; on a causal graph attention by features (`LinearAttention`) stores a state of constant size
    Reference   Radford et al., 2019; top-k: Fan et al., 2018

    Example
        >>> from edgewise.graphs import causal
        >>> from edgewise.models import Tokens, Transformer, TransformerSettings
        >>> model = Transformer(TransformerSettings(width=8, depth=1, heads=2), Tokens(5, 5, length=4))
        >>> generate(model, torch.tensor([[1, 2]]), 3, causal, temperature=0.0).shape
        torch.Size([1, 5])
    """
    _check(model, tokens, temperature, top_k, pattern)
    length = model.signature.length
    with evaluating(model):
        past, caches = 0, None
        visible = tokens
        for _ in range(steps):
            if length is not None and visible.shape[-1] > length:
                visible, past = visible[..., -max(1, length // 2) :], 0
            total = visible.shape[-1]
            graph = pattern(total).rows(past, total).to(tokens.device)
            if cache and past == 0:
                caches = model.caches(graph)
            scores = model(graph, visible[..., past:], caches)[..., -1, :]
            if allowed is not None:
                scores = scores.masked_fill(~allowed(tokens), -torch.inf)
            token = draw(scores, temperature, top_k, generator)
            visible, tokens = torch.cat([visible, token], -1), torch.cat([tokens, token], -1)
            past = total if cache else 0
    return tokens


def draw(scores: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """One token per row of scores [*, vocabulary]: [*, 1]."""
    if temperature == 0:
        return scores.argmax(-1, keepdim=True)
    if top_k is not None and top_k < scores.shape[-1]:
        least = scores.topk(top_k, -1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    p = probabilities(scores, temperature)
    return torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator).view(*p.shape[:-1], 1)


def _check(
    model: LanguageModel, tokens: Tensor, temperature: float, top_k: int | None, pattern: Callable[[int], Graph]
) -> None:
    signature = model.signature
    if not isinstance(signature, Tokens) or signature.whole_graph or signature.inputs != signature.outputs:
        raise ConfigError("generation needs a model that reads tokens and predicts the next one at every position")
    if tokens.shape[-1] == 0:
        raise ConfigError("generation continues a prompt of at least one token")
    if temperature < 0:
        raise ConfigError(f"temperature is {temperature}: it must be 0 (greedy) or positive")
    if top_k is not None and top_k < 1:
        raise ConfigError(f"top_k is {top_k}: it must be at least 1")
    graph = pattern(min(signature.length or 64, 64))  # a few positions are enough to see where a rule looks
    if bool((graph.senders > graph.receivers).any()):
        raise ConfigError(f"generation needs a graph in which no position attends to a later one, unlike {graph}")
