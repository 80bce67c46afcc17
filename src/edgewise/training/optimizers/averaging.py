"""Stochastic weight averaging: the mean of the weights that SGD passes through lies in the middle of a wide valley."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.models.capabilities import modes_kept

NAMES = "steps", "average", "count"  # of what an average adds to an optimiser's memory of a weight
Batches = Callable[[], Iterable[tuple[Any, ...]]]


class WeightAverage:
    """The running mean of the weights after an optimiser's steps, held in the optimiser's own memory.

    Equation    w_SWA ← (w_SWA n + w)/(n + 1), after every c-th step from step s on    (algorithm 1)
    Symbols     start = s, the first step that counts, from 1; every = c; n = how many weights are in the mean already
    Errors      ConfigError for a start or an interval below 1
    Edge cases  before step s, `applied` changes nothing; a step that ends in an error leaves the mean as it was
    Cost        one tensor per weight; a pass over the weights every c steps
    Differs     as the mean lies in the optimiser's memory, a checkpoint of that resumes it too
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

    def __init__(self, optimizer: Optimizer, start: int, every: int = 1) -> None:
        if start < 1 or every < 1:
            raise ConfigError(f"an average starts at step 1 at the earliest, every step at most: not {start}, {every}")
        self.optimizer, self.start, self.every = optimizer, start, every
        self.during: dict[Tensor, dict[str, Tensor]] = {}  # what is set aside during an optimiser's step
        optimizer.register_step_pre_hook(self._set_aside)
        optimizer.register_step_post_hook(self._collect)

    def _set_aside(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Optimisers begin with a weight whose memory is empty: what is of the mean is not there while they step."""
        self._put_back()  # what a step that ended in an error has left
        for w in self._weights():
            memory = optimizer.state.pop(w, {})
            self.during[w] = {name: memory.pop(name) for name in NAMES if name in memory}
            if memory:
                optimizer.state[w] = memory

    def _put_back(self) -> None:
        for w, own in self.during.items():
            if own:
                self.optimizer.state[w] = own | self.optimizer.state[w]
        self.during.clear()

    @torch.no_grad()
    def _collect(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._put_back()
        for w in self._weights():
            memory = optimizer.state[w]
            t = memory.setdefault("steps", torch.zeros(()))
            t += 1
            past = int(t) - self.start
            if past >= 0 and past % self.every == 0:
                known = past // self.every if "average" in memory else 0  # in checkpoints that do not count
                n = memory.setdefault("count", torch.tensor(float(known)))
                n += 1
                mean = memory.setdefault("average", torch.zeros_like(w))
                mean += (w - mean) / int(n)

    def count_from(self, step: int) -> None:
        """Count on from this step where none has been counted: in a run that was begun without an average."""
        for w in self._weights():
            self.optimizer.state[w].setdefault("steps", torch.tensor(float(step)))

    def _weights(self) -> Iterator[Tensor]:
        return (w for group in self.optimizer.param_groups for w in group["params"])

    @contextmanager
    def applied(self, model: nn.Module, batches: Batches | None = None) -> Iterator[None]:
        """Inside, the model has the mean weights, and batch norms the statistics that belong to them; then its own.

        `batches` gives the arguments of `model` for each training batch, for the statistics of batch norms.
        """
        self._put_back()
        means = {w: self.optimizer.state[w]["average"] for w in self._weights() if "average" in self.optimizer.state[w]}
        if not means:
            yield
            return
        before = {name: value.clone() for name, value in model.state_dict().items()}
        try:
            with torch.no_grad():
                for w, mean in means.items():
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
