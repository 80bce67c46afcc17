"""Stochastic weight averaging: the mean of the weights that SGD passes through lies in the middle of a wide valley."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.models.signature import modes_kept

NAMES = "steps", "average", "count"  # under a weight's name in a checkpoint
Batches = Callable[[], Iterable[tuple[Any, ...]]]


class WeightAverage:
    """The running mean of the weights after an optimiser's steps.

    Equation    w_SWA ← (w_SWA n + w)/(n + 1), after every c-th step from step s on    (algorithm 1);
                with a decay β it is an exponential moving average, w_EMA ← w_EMA + max(1 - β, 1/(n + 1)) (w - w_EMA)
    Symbols     start = s, the first step that counts, from 1; every = c; n = how many weights are in the mean already;
                decay = β, 0 for the plain mean
    Errors      ConfigError for a start or an interval below 1
    Edge cases  before step s, `applied` changes nothing; a step that ends in an error leaves the mean as it was
    Cost        one tensor per weight; a pass over the weights every c steps
    Differs     `torch.optim.swa_utils.AveragedModel` copies the model; this keeps the means of its weights alone
    Reference   Izmailov et al., "Averaging weights leads to wider optima and better generalization", 2018

    Example
        >>> w = nn.Parameter(torch.tensor([0.0]))
        >>> model = nn.ParameterList([w])
        >>> sgd = torch.optim.SGD([w], lr=1.0)
        >>> average = WeightAverage(sgd, start=2)
        >>> for _ in range(3): w.grad = torch.tensor([-1.0]); sgd.step()  # w = 1, 2, 3
        >>> with average.applied(model): print(w.item())
        2.5
        >>> w.item()
        3.0
    """

    def __init__(self, optimizer: Optimizer, start: int, every: int = 1, decay: float = 0.0) -> None:
        if start < 1 or every < 1:
            raise ConfigError(f"an average starts at step 1 at the earliest, every step at most: not {start}, {every}")
        self.weights = [w for group in optimizer.param_groups for w in group["params"]]
        self.start, self.every, self.decay = start, every, decay
        self.steps = self.count = 0  # steps taken, and weights in the mean
        self.means: dict[Tensor, Tensor] = {}
        optimizer.register_step_post_hook(self._collect)

    @torch.no_grad()
    def _collect(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.steps += 1
        past = self.steps - self.start
        if past >= 0 and past % self.every == 0:
            self.count += 1
            share = max(1 / self.count, 1 - self.decay if self.decay else 0.0)
            for w in self.weights:
                self.means.setdefault(w, torch.zeros_like(w)).lerp_(w, share)

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """What a checkpoint holds of it, under "<weight's name>/<what>"."""
        steps, count = torch.tensor(float(self.steps)), torch.tensor(float(self.count))
        named = [(name, w) for name, w in model.named_parameters() if w.requires_grad]
        counted = {f"{name}/{what}": value for name, _ in named for what, value in (("steps", steps), ("count", count))}
        return counted | {f"{name}/average": self.means[w] for name, w in named if w in self.means}

    def restore(self, model: nn.Module, tensors: Mapping[str, Tensor], step: int) -> None:
        """Go on with what `tensors` gave, or without any from this step of a run that was begun without an average."""
        self.steps, self.count = step, 0
        for name, w in model.named_parameters():
            self.steps = int(tensors.get(f"{name}/steps", self.steps))
            if (mean := tensors.get(f"{name}/average")) is not None:
                self.means[w] = mean.to(w.device)
                known = (self.steps - self.start) // self.every + 1  # where a checkpoint does not count
                self.count = int(tensors.get(f"{name}/count", known))

    @contextmanager
    def applied(self, model: nn.Module, batches: Batches | None = None) -> Iterator[None]:
        """Inside, the model has the mean weights, and batch norms the statistics that belong to them; then its own.

        `batches` gives the arguments of `model` for each training batch, for the statistics of batch norms.
        """
        if not self.means:
            yield
            return
        before = {name: value.clone() for name, value in model.state_dict().items()}
        try:
            with torch.no_grad():
                for w, mean in self.means.items():
                    w.copy_(mean)
            if batches is not None:
                update_batch_norm(model, batches())
            yield
        finally:
            model.load_state_dict(before)


@torch.no_grad()
def update_batch_norm(model: nn.Module, batches: Iterable[tuple[Any, ...]]) -> None:
    """Give every batch norm the mean and variance of its inputs over the batches, for the weights as they are now.

    Equation    running mean and variance ← their mean over the batches
    Edge cases  a model without batch norms is not called; norms that are frozen in evaluation mode, in a model in
                training mode, stay as they are
    Cost        one forward pass per batch
    Differs     `torch.optim.swa_utils.update_bn` takes models of one argument; this one any, such as `model(graph, x)`
    Reference   Izmailov et al., 2018, §3.2
    """
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    norms = [norm for norm in norms if norm.track_running_stats and (norm.training or not model.training)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over the batches
    with modes_kept(model):
        if not model.training:
            model.train()
        try:
            for arguments in batches:
                model(*arguments)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
