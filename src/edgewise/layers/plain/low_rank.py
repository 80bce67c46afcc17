"""Low-rank adaptation: a trained model learns something new through a few numbers beside each of its linear maps."""

from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from edgewise.configuration import Count, Real
from edgewise.errors import CheckpointError, ConfigError
from edgewise.layers.plain.layer import Layer


class LowRank(Layer):
    """What is added to the weight of one linear map: a product of two narrow matrices, of which the second begins at 0.

    Equation    W' = W + α/r · B A    (3)
    Symbols     A [r, C], B [C', r]; r = rank; alpha = α; merged = whether W holds the product already
    Shapes      W [C', C] -> [C', C]
    Cost        r (C + C') numbers to train instead of C C'; O(r C C') a forward pass, once for all rows
    Differs     the product is added to the weight, not to the map's result, so that whatever reads the weight sees it
    Reference   Hu et al., "LoRA: low-rank adaptation of large language models", 2022, §4.1

    Example
        >>> added = LowRank(torch.zeros(2, 3), rank=1, alpha=2.0)
        >>> added.A.data, added.B.data = torch.tensor([[1.0, 0.0, 1.0]]), torch.tensor([[1.0], [3.0]])
        >>> added(torch.zeros(2, 3)).tolist()
        [[2.0, 0.0, 2.0], [6.0, 0.0, 6.0]]
    """

    def __init__(self, weight: Tensor, rank: Count, alpha: Real) -> None:
        super().__init__()
        self.A = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.B = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        nn.init.kaiming_uniform_(self.A, a=5**0.5)  # as a linear map of its own
        self.scale = alpha / rank
        self.merged = False
        self.shared: tuple[nn.Parameter, ...] = ()  # W while W' has a tensor of its own, as others read W

    def forward(self, weight: Tensor) -> Tensor:
        return weight if self.merged else torch.addmm(weight, self.B, self.A, alpha=self.scale)


def adapt(model: nn.Module, rank: int, alpha: float | None = None, names: str = "*") -> list[str]:
    """Freeze a model and give its linear maps low-rank additions, which alone are trained from then on.

    Symbols     model = any module; rank = r; alpha = α (None: the rank, so that the product is added as it is); names =
                which linear maps, as a pattern of file names: "*" is all, "*.attention.*" those of attention
    Errors      ConfigError for a rank below 1, no such linear map, a parametrized one, or a model adapted already
    Edge cases  right after, the model computes what it computed before. A `state_dict` has the weights without the
                products, merged or not, and after `load_state_dict` nothing is merged
    Reference   Hu et al., 2022

    Example
        >>> model = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))
        >>> adapt(model, rank=2, names="0"), sum(p.numel() for p in model.parameters() if p.requires_grad)
        (['0'], 400)
    """
    if rank < 1:
        raise ConfigError(f"a low-rank addition needs a rank of at least 1, not {rank}")
    if next(_additions(model), None) is not None:
        raise ConfigError("this model is adapted already: `settle` the additions first")
    maps = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    chosen = [name for name in maps if fnmatchcase(name, names)]
    if not chosen:
        raise ConfigError(f"no linear map has a name like {names!r}; they are {', '.join(maps) or 'none'}")
    if normed := [name for name in chosen if "weight" not in maps[name]._parameters]:
        what = "has a weight that follows from others, as by a weight or spectral norm"
        raise ConfigError(f"{normed[0]!r} {what}: remove that, or leave the map out by names=")
    model.requires_grad_(False)
    for name in chosen:
        addition = LowRank(maps[name].weight, rank, float(rank if alpha is None else alpha))
        parametrize.register_parametrization(maps[name], "weight", addition)
        parts: nn.Module = maps[name].parametrizations["weight"]  # type: ignore[index, assignment]
        parts.register_state_dict_post_hook(_without_products)
        parts.register_load_state_dict_pre_hook(_unmerged)
    return chosen


def merge(model: nn.Module) -> None:
    """Add each product to its weight, so that running the model costs what it did before; `unmerge` takes it back.

    Edge cases  a weight that others of the model read too, such as an embedding, stays theirs: the map has a copy

    Example
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> _ = adapt(model, rank=1)
        >>> x, _ = torch.ones(1, 2), nn.init.ones_(model[0].parametrizations.weight[0].B)
        >>> before = model(x)
        >>> merge(model)
        >>> torch.allclose(model(x), before)
        True
    """
    _move(model, into=True)


def unmerge(model: nn.Module) -> None:
    """Take the products out of the weights: up to rounding, they are as before `merge`."""
    _move(model, into=False)


def settle(model: nn.Module) -> None:
    """Merge for good: the additions are gone, the linear maps plain again, and all weights are trained.

    Edge cases  a weight that others of the model read too is no longer theirs: what was added is this map's alone
    """
    merge(model)
    for module in list(model.modules()):
        parts: Any = getattr(module, "parametrizations", {})
        if "weight" in parts and any(isinstance(part, LowRank) for part in parts["weight"]):
            parametrize.remove_parametrizations(module, "weight")
    model.requires_grad_(True)


def adapters(model: nn.Module) -> dict[str, Tensor]:
    """The narrow matrices alone, by name: all that there is to save of what an adapted model has learned."""
    return {
        f"{name}.{part}": getattr(addition, part).detach()
        for name, addition in _additions(model)
        for part in ("A", "B")
    }


def load_adapters(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give an adapted model the matrices that `adapters` took from another one.

    Errors      CheckpointError for a name or a shape that does not fit; then nothing has changed
    """
    own = adapters(model)
    for name in sorted(own.keys() | tensors.keys()):
        has, wants = (str(list(side[name].shape)) if name in side else "absent" for side in (tensors, own))
        if has != wants:
            raise CheckpointError(f"the adapter {name!r} is {has}, and {wants} in the model")
    unmerge(model)
    for name, value in own.items():
        value.copy_(tensors[name])


def _additions(model: nn.Module) -> Iterator[tuple[str, LowRank]]:
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LowRank))


@torch.no_grad()
def _move(model: nn.Module, into: bool) -> None:
    readers = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    for parts in model.modules():
        if not isinstance(parts, parametrize.ParametrizationList):
            continue
        for addition in parts:
            if not isinstance(addition, LowRank) or addition.merged is into:
                continue
            W: Any = parts.original
            if into and readers[id(W)] > 1:
                parts.original, addition.shared = nn.Parameter(addition(W), W.requires_grad), (W,)
            elif addition.shared:
                (parts.original,), addition.shared = addition.shared, ()
            else:
                W.addmm_(addition.B, addition.A, alpha=addition.scale if into else -addition.scale)
            addition.merged = into


def _unmerged(parts: nn.Module, *_: Any) -> None:
    unmerge(parts)


@torch.no_grad()
def _without_products(parts: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    for addition in parts:
        if isinstance(addition, LowRank) and addition.merged:
            W = next(iter(addition.shared), None)
            bare = torch.addmm(parts.original, addition.B, addition.A, alpha=-addition.scale) if W is None else W
            state[prefix + "original"] = bare.detach()
