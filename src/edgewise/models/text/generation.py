"""Generation: a language model continues a text token by token, an encoder-decoder writes the likeliest target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from edgewise.errors import ConfigError
from edgewise.graphs import Graph, blocks, causal, complete
from edgewise.layers import KeysAndValues
from edgewise.models.signature import Decoding, LanguageModel, Tokens, evaluating
from edgewise.models.text.sampling import Sampling


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
    *,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
) -> Tensor:
    """Draw `steps` more tokens, each from the model's probabilities given all before it.

    Equation    t_{n+1} ~ softmax(φ(t_1..t_n)_n / T), restricted as `Sampling` says
    Symbols     temperature = T; 0 takes the most probable token (greedy); pattern(n) = the graph over n positions;
                allowed(t) [*, vocabulary] = which tokens may follow t [*, n], where a grammar says so: at least one;
                others are those of `Sampling`
    Shapes      tokens [*, n] int64 -> [*, n + steps]
    Errors      ConfigError for a model that does not read and write tokens, an empty prompt, an option outside its
                range, or a pattern in which a position attends to a later one
    Edge cases  when all `signature.length` positions are taken, the older half is dropped and the rest is recomputed
                at positions 0, 1, ...; with `cache` or without, so that it changes the speed and never the text
    Cost        per token O(n width) attention and O(width²) with the cache, without it a full forward pass over n
                nodes; on a causal graph attention by features (`LinearAttention`) stores a state of constant size
    Reference   Radford et al., 2019

    Example
        >>> from edgewise.graphs import causal
        >>> from edgewise.models import Tokens, Transformer, TransformerSettings
        >>> model = Transformer(TransformerSettings(width=8, depth=1, heads=2), Tokens(5, 5, length=4))
        >>> generate(model, torch.tensor([[1, 2]]), 3, causal, temperature=0.0).shape
        torch.Size([1, 5])
    """
    sampling = Sampling(
        steps=steps,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        cache=cache,
    )
    return torch.cat([tokens, *drawn(model, tokens, pattern, sampling, generator, allowed)], -1)


@torch.no_grad()
def drawn(
    model: LanguageModel,
    tokens: Tensor,
    pattern: Callable[[int], Graph],
    sampling: Sampling,
    generator: torch.Generator | None = None,
    allowed: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Tensor]:
    """Each next token [*, 1] of texts [*, n], one after the other: see `generate`."""
    _check(model, tokens, pattern)
    length = model.signature.length
    with evaluating(model):
        past, caches = 0, None
        visible = tokens
        for _ in range(sampling.steps):
            if length is not None and visible.shape[-1] > length:
                visible, past = visible[..., -max(1, length // 2) :], 0
            total = visible.shape[-1]
            graph = pattern(total).rows(past, total).to(tokens.device)
            if sampling.cache and past == 0:
                caches = model.caches(graph)
            scores = model(graph, visible[..., past:], caches=caches)[..., -1, :]
            if allowed is not None:
                scores = scores.masked_fill(~allowed(tokens), -torch.inf)
            token = sampling.draw(scores, tokens, generator)
            visible, tokens = torch.cat([visible, token], -1), torch.cat([tokens, token], -1)
            past = total if sampling.cache else 0
            yield token


def _check(model: LanguageModel, tokens: Tensor, pattern: Callable[[int], Graph]) -> None:
    signature = model.signature
    if not isinstance(signature, Tokens) or signature.whole_graph or signature.inputs != signature.outputs:
        raise ConfigError("generation needs a model that reads tokens and predicts the next one at every position")
    if tokens.shape[-1] == 0:
        raise ConfigError("generation continues a prompt of at least one token")
    graph = pattern(min(signature.length or 64, 64))  # a few positions are enough to see where a rule looks
    if bool((graph.senders > graph.receivers).any()):
        raise ConfigError(f"generation needs a graph in which no position attends to a later one, unlike {graph}")


@runtime_checkable
class Translator(Decoding, Protocol):
    """A model that reads a source once, and writes a target token by token, from caches that a search may select."""

    def encode(self, graph: Graph, source: Tensor) -> Tensor: ...

    def keys_and_values(self, encoded: Tensor) -> list[tuple[Tensor, Tensor]]: ...

    def decode(
        self,
        graph: Graph,
        target: Tensor,
        cross: Graph,
        memory: Sequence[tuple[Tensor, Tensor]],
        caches: Sequence[Any] | None = None,
    ) -> Tensor: ...


class Hypothesis(NamedTuple):
    """A target and its score.

    Symbols     tokens = the target [n], without its first and last token; score = log p / lp
    """

    tokens: Tensor
    score: float


@torch.no_grad()
def translate(
    model: Translator,
    sources: Sequence[Tensor],
    ends: tuple[int, int],
    beam: int = 4,
    penalty: float = 0.6,
    *,
    longest: int | Callable[[int], int] = lambda n: 2 * n + 10,
    cache: bool = True,
    pattern: Callable[[int], Graph] = complete,
) -> list[Hypothesis]:
    """The best target of each source, of those that end within `longest` tokens.

    Equation    score(Y) = log p(Y | X) / lp(Y),  lp(Y) = ((5 + |Y|) / 6)^α    (14), without the coverage term
    Symbols     penalty = α; |Y| = tokens of Y, its last one included; ends = the token before the first one, and
                the one that ends a target; beam = unfinished targets of each source; longest = the most
                tokens of a target, its last one included, or a function of the source's length; pattern = the encoder's
                graph
    Shapes      sources: tensors [n] int64 of any lengths -> one `Hypothesis` each
    Errors      ConfigError for a beam or longest below 1, a negative penalty, an empty source
    Edge cases  a source is done when no unfinished target of it can reach a better score; at `longest`
                tokens a target must end. A beam as wide as there are targets finds the best of all; with beam 1 and
                penalty 0 each token is the likeliest one (greedy)
    Cost        per token and target O(width² depth + width outputs) with `cache`; the k targets of a source share its
                keys and values: a block of the cross graph. Without, the whole targets are recomputed at each token
    Reference   Wu et al., "Google's neural machine translation system", 2016, §7

    Example
        >>> from edgewise.models import EncoderDecoder, EncoderDecoderSettings, TokenPairs
        >>> settings = EncoderDecoderSettings(width=8, encoder_depth=1, decoder_depth=1, heads=2)
        >>> model = EncoderDecoder(settings, TokenPairs(6, 6))
        >>> best = translate(model, [torch.tensor([3, 4]), torch.tensor([5])], ends=(0, 1), longest=7)
        >>> [len(target.tokens) < 7 for target in best]
        [True, True]
    """
    limits = [longest if isinstance(longest, int) else longest(len(source)) for source in sources]
    shortest = min(limits, default=1)
    if beam < 1 or penalty < 0 or shortest < 1:
        raise ConfigError(f"beam={beam} and longest={shortest} must be at least 1, penalty={penalty} not < 0")
    if any(len(source) == 0 for source in sources):
        raise ConfigError("an empty source cannot be translated: give at least one token")
    if not sources:
        return []
    with evaluating(model):
        search = _Search(model, sources, limits, ends, _Settings(beam, penalty, cache, pattern))
        while len(search.open):
            search.step()
    return search.best


@dataclass(frozen=True)
class _Settings:
    """How to search."""

    beam: int
    penalty: float
    cache: bool
    pattern: Callable[[int], Graph]

    def lp(self, length: Tensor | int) -> Tensor:
        return ((5.0 + torch.as_tensor(length, dtype=torch.float64)) / 6.0) ** self.penalty


class _Search:
    """Unfinished targets of the sources that are still open: `tokens` [B, k, t + 1], their log p `scores` [B, k]."""

    def __init__(
        self,
        model: Translator,
        sources: Sequence[Tensor],
        limits: Sequence[int],
        ends: tuple[int, int],
        settings: _Settings,
    ) -> None:
        self.model, self.settings, (begin, self.end) = model, settings, ends
        device = sources[0].device
        self.lengths = [len(source) for source in sources]
        graph = Graph.batch([settings.pattern(n) for n in self.lengths]).to(device)
        encoded = model.encode(graph, torch.cat(list(sources)))
        self.memory: list[KeysAndValues] = model.keys_and_values(encoded)
        self.open = torch.arange(len(sources), device=device)  # which sources
        self.limits = torch.tensor(limits, device=device)
        self.tokens = torch.full((len(sources), settings.beam, 1), begin, device=device)
        self.scores = torch.full((len(sources), settings.beam), -torch.inf, dtype=torch.float64, device=device)
        self.scores[:, 0] = 0.0  # k equal beginnings would stay equal: only the first one counts
        self.caches: Sequence[Any] | None = None
        self.best = [Hypothesis(self.tokens.new_empty(0), -torch.inf) for _ in sources]

    def step(self) -> None:
        """Lengthen every target; of the k likeliest, those that end are done; continue with k that do not."""
        length, (count, beam) = self.tokens.shape[-1], self.scores.shape  # the tokens of a target after this step
        logits = self.next_scores().double()
        last = (self.limits[self.open] <= length)[:, None, None]
        logits.masked_fill_(last & (torch.arange(logits.shape[-1], device=logits.device) != self.end), -torch.inf)
        candidates = (self.scores.unsqueeze(-1) + logits.log_softmax(-1)).flatten(1)  # [B, k · outputs]
        scores, place = candidates.topk(2 * beam)  # at most k of them end a target, so that k do not
        ends = place % logits.shape[-1] == self.end
        parent = place // logits.shape[-1]
        ended = scores.masked_fill(~ends, -torch.inf)[:, :beam]  # what comes after the k likeliest does not count
        self.finish(ended, parent, length)
        self.scores, order = scores.masked_fill(ends, -torch.inf).topk(beam)
        parent, token = parent.gather(1, order), place.gather(1, order) % logits.shape[-1]
        grown = self.tokens.gather(1, parent.unsqueeze(-1).expand(-1, -1, length))
        self.tokens = torch.cat([grown, token.unsqueeze(-1)], -1)
        self.select(self.unsettled(), parent + beam * torch.arange(count, device=parent.device).unsqueeze(-1))

    def next_scores(self) -> Tensor:
        """Scores of the next token of each target: [B, k, outputs]."""
        (count, beam, total), caching = self.tokens.shape, self.settings.cache
        past = total - 1 if caching else 0
        graph = causal(total).rows(past, total).to(self.tokens.device)
        rows = [beam * (total - past)] * count
        cross = blocks(rows, senders=[self.lengths[source] for source in self.open.tolist()]).to(self.tokens.device)
        if caching and self.caches is None:
            self.caches = self.model.caches(graph)
        new = self.tokens.flatten(0, 1)[:, past:]
        return self.model.decode(graph, new, cross, self.memory, self.caches)[:, -1].unflatten(0, (count, beam))

    def finish(self, ended: Tensor, parent: Tensor, length: int) -> None:
        """Store the targets `parent` that end now, with log p `ended` [B, k], where they are the best so far."""
        scores, which = (ended / self.settings.lp(length).to(ended)).max(-1)
        for row, (source, score) in enumerate(zip(self.open.tolist(), scores.tolist(), strict=True)):
            if score > self.best[source].score:
                self.best[source] = Hypothesis(self.tokens[row, parent[row, which[row]], 1:].clone(), score)

    def unsettled(self) -> Tensor:
        """Which rows have a target that may still beat the best that has ended: log p falls, lp grows. [B]"""
        reachable = self.scores.max(-1).values / self.settings.lp(self.limits[self.open]).to(self.scores)
        best = [self.best[source].score for source in self.open.tolist()]
        return (reachable > torch.tensor(best, dtype=torch.float64, device=self.scores.device)).nonzero().flatten()

    def select(self, rows: Tensor, parent: Tensor) -> None:
        """Continue with the sources of some rows; `parent` [B, k] says which target each of theirs came from."""
        if len(rows) < len(self.open):
            lengths = torch.tensor([self.lengths[source] for source in self.open.tolist()], device=rows.device)
            row_of = torch.arange(len(lengths), device=rows.device).repeat_interleave(lengths)
            here = torch.isin(row_of, rows).nonzero().flatten()
            self.memory = [(k.index_select(-3, here), v.index_select(-3, here)) for k, v in self.memory]
        self.open, self.tokens, self.scores = self.open[rows], self.tokens[rows], self.scores[rows]
        for cache in self.caches or ():
            cache.select(parent[rows].flatten())
