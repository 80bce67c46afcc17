"""A Mistral of transformers, drawn at random, trained with `attn_implementation="edgewise"` beside its own "sdpa".

    python -m benchmarks.whole.hugging_face 4096 512

Tokens and window are the arguments. One process and one thread; both take turns, and their logits and gradients are
compared first. CPU time of forward, backward and a step of AdamW, the median of the rounds.
"""

import sys
import time
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.memory import give_back, peak_above
from edgewise.interop import register_attention

ROUNDS = 5
SIZES: dict[str, Any] = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2}
OTHERS: dict[str, Any] = {"intermediate_size": 1792, "vocab_size": 1000}


def mistral(implementation: str, tokens: int, window: int) -> Any:
    """The same weights every time."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(1)
    reach: dict[str, Any] = {"sliding_window": window, "max_position_embeddings": tokens}
    reach["attn_implementation"] = implementation
    return MistralForCausalLM(MistralConfig(**SIZES, **OTHERS, **reach)).train()


def step(model: Any, text: Tensor, optimizer: Any = None) -> list[Tensor]:
    """Logits and gradients of one step."""
    out = model(text, labels=text, use_cache=False)
    model.zero_grad()
    out.loss.backward()
    if optimizer is not None:
        optimizer.step()
    return [out.logits.detach(), *(p.grad.clone() for p in model.parameters())] if optimizer is None else []


def main() -> None:
    tokens, window = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    text = torch.randint(0, OTHERS["vocab_size"], (1, tokens), generator=torch.Generator().manual_seed(2))
    models = {who: mistral(who, tokens, window) for who in (register_attention(), "sdpa")}
    ours, theirs = (step(model, text) for model in models.values())
    apart = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True)]
    assert apart[0] <= 1e-5, apart[0]
    assert max(apart[1:]) <= 1e-4, max(apart[1:])
    seconds: dict[str, list[float]] = {who: [] for who in models}
    optimizers = {who: torch.optim.AdamW(model.parameters()) for who, model in models.items()}
    for _ in range(ROUNDS):
        for who, model in models.items():
            start = time.process_time()
            step(model, text, optimizers[who])
            seconds[who].append(time.process_time() - start)
    memory = {}
    for who, model in models.items():
        give_back()
        memory[who] = peak_above(lambda model=model, who=who: step(model, text, optimizers[who]))  # type: ignore[misc]
    took = {who: median(own) for who, own in seconds.items()}
    times = " | ".join(f"{took[who]:.2f} s | {memory[who]:.0f} MB" for who in models)
    print(f"| {tokens} | {window} | {times} | {took['sdpa'] / took['edgewise']:.1f} × | {apart[0]:.0e} |")


if __name__ == "__main__":
    main()
