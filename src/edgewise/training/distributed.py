"""Many processes, one run: `torchrun` starts them, and their summed gradients keep their weights equal.

Every rank draws its share of one global batch, so that the loss curve does not depend on how many ranks there are.
"""

import atexit
import json
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from edgewise import errors
from edgewise.errors import CheckpointError, ConfigError, EdgewiseError
from edgewise.graphs.partition import Halo, partitioned
from edgewise.layers import SparseFeatures
from edgewise.tasks.core.batch import Batch
from edgewise.training.checkpoint import Tensors, is_finite, save_checkpoint
from edgewise.training.ranks import (
    SENT,
    Gradients,
    average_numbers,
    gathered,
    is_shared,
    local,
    sent,
    shard,
    share_norms,
    unsummed,
    whole,
)
from edgewise.training.settings import Sharing

T = TypeVar("T")
# What gloo and NCCL say where the other end of a connection is gone.
GONE = "connection (was )?(closed|reset|refused)|closed by peer|reset by peer|remote process exited"
LOST = re.compile(GONE, re.IGNORECASE)


@dataclass(frozen=True)
class World:
    """The processes that train one run: this one's rank, how many there are, and this one's device."""

    device: torch.device
    rank: int = 0
    size: int = 1
    partition: bool = False  # whether they share each graph, instead of the batches
    shard: bool = False  # whether they share the weights, instead of having all of them
    metis: bool = False  # whether the nodes that each has of a graph are chosen by METIS

    @property
    def first(self) -> bool:
        """Whether this is the one process that writes."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> tuple[nn.Module, Gradients | None]:
        """The model as training calls it, and what adds up its gradients after backward where backward does not."""
        if self.partition and self.size > 1:
            share_norms(model, _exchange())
        if self.shard:
            return shard(model, self.device), None
        if self.size == 1:
            return model, None
        return (model, Gradients(model)) if self.device.type == "cpu" else (DistributedDataParallel(model), None)

    def own(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """This rank's share of an evaluation, some of the batches or its part of each, and whether a batch counts.

        Where the ranks share the weights, all of them call the model equally often.
        """
        waiting = iter(batches)
        while group := list(islice(waiting, 1 if self.partition else self.size)):
            if self.partition:
                yield self.part(group[0]), True
            elif self.rank < len(group):
                yield group[self.rank], True
            elif self.shard:
                yield group[0], False

    def part(self, batch: Batch) -> Batch:
        """This rank's part of a batch whose graph the ranks share; without partitions the batch as it is."""
        if not self.partition:
            return batch
        shared, bounds = batch.arranged(self.size) if self.metis else (batch, ())
        return shared.part(_exchange(), bounds)

    def reading(self, batch: Batch) -> AbstractContextManager[None]:
        """Within, a model that reads a part may make no graph of its own of it."""
        given = (batch.x.graph,) if isinstance(batch.x, SparseFeatures) else ()
        return partitioned(*given) if self.partition else nullcontext()

    def measured(self) -> dict[str, float]:
        """The bytes of rows that this rank has sent to others since the last call, where they share graphs."""
        sent, Halo.sent = Halo.sent, 0
        return {"sent_bytes": sent} if self.partition else {}

    def alone(self, model: nn.Module) -> AbstractContextManager[None]:
        """Within, backward only adds up this rank's gradients: for all micro-batches of a step but the last."""
        if self.shard:
            return unsummed(cast(Any, model))
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()

    def norm(self, weights: Sequence[nn.Parameter]) -> Tensor:
        """The norm of the gradient of the global batch."""
        if self.shard:
            average_numbers(weights)
        gradients = [w.grad for w in weights if w.grad is not None]
        kinds = [[g for g in gradients if is_shared(g) is kind] for kind in (True, False)]
        norms = [whole(get_total_norm(alike)) for alike in kinds if alike]
        return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))

    def clip(self, weights: Sequence[nn.Parameter], most: float, norm: Tensor) -> None:
        """Scale gradients of that norm down to another."""
        for kind in (True, False):
            clip_grads_with_norm_([w for w in weights if is_shared(w) is kind], most, norm)

    def non_finite(self, tensors: Mapping[str, Tensor], but: Collection[str] = ()) -> str | None:
        """The name of the first tensor that holds a NaN or an infinity, on any rank where they share the weights."""
        tensors = {name: tensor for name, tensor in tensors.items() if name not in but}
        if not self.shard:
            return next((name for name, tensor in tensors.items() if not is_finite(tensor)), None)
        bad = [not is_finite(local(tensor)) for tensor in tensors.values()]
        found = self.sum(torch.tensor(bad, dtype=torch.int64, device=self.device)).tolist()
        return next((name for name, count in zip(tensors, found, strict=True) if count), None)

    def save(self, folder: Path, state: Callable[[], dict[str, Any]], parts: Mapping[str, Tensors], keep: int) -> str:
        """Write a checkpoint on the first rank, which knows its state and gathers what all share. Its name."""
        if self.shard:
            parts = {part: {n: whole(t).cpu() for n, t in tensors.items()} for part, tensors in parts.items()}
        return str(self.once(lambda: save_checkpoint(folder, state(), parts, keep).name))

    def judged(self, model: nn.Module, judge: Callable[[], dict[str, float]]) -> dict[str, float]:
        """What `judge` says of the model, on all ranks; only where these share the weights, all of them compute it."""
        if not self.shard:
            return cast("dict[str, float]", self.once(judge))
        with gathered(model):
            return judge()

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, on all ranks."""
        if self.size > 1:
            dist.all_reduce(sent(value))
        return value

    def total(self, sums: dict[str, Any]) -> dict[str, Any]:
        """Each number's sum over all ranks, on all ranks; the first rank has all names that any has."""
        if self.size == 1:
            return sums
        names = self.share(list(sums))
        mine = torch.tensor([float(sums.get(name, 0)) for name in names], dtype=torch.float64, device=self.device)
        return dict(zip(names, self.sum(mine).tolist(), strict=True))

    def gathered(self, mine: T) -> list[T]:
        """What each rank has, on all ranks."""
        if self.size == 1:
            return [mine]
        each: list[Any] = [None] * self.size
        dist.all_gather_object(each, mine)
        return each

    def align(self, model: nn.Module) -> None:
        """Give every rank what the first one's batch norms have seen."""
        for buffer in model.buffers() if self.size > 1 else ():
            dist.broadcast(sent(buffer), src=0)

    @contextmanager
    def together(self, run: Path) -> Iterator[None]:
        """Within, what a rank meets when another one dies is one line that says so, and how to go on."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or isinstance(error, EdgewiseError) or not LOST.search(str(error)):
                raise
            lost = f"rank {self.rank} has lost another process of this run, which has ended"
            advice = f"go on with: edgewise resume {run}, or start with torchrun --max-restarts 3"
            raise CheckpointError(f"{lost}; {advice}") from error

    def once(self, action: Callable[[], Any]) -> Any:
        """Do something on the first rank, for all: its result, which is plain data, or its error is everyone's."""
        if self.size == 1:
            return action()
        outcome: dict[str, Any] = {}
        if self.first:
            try:
                outcome = {"result": action()}
            except EdgewiseError as error:
                outcome = {"error": type(error).__name__, "message": str(error)}
        outcome = self.share(outcome)
        if "error" in outcome:
            raise getattr(errors, outcome["error"])(outcome["message"])
        return outcome["result"]

    def share(self, value: Any) -> Any:
        """Plain data of the first rank, on all ranks; it travels as JSON."""
        if self.size == 1:
            return value
        text = json.dumps(value).encode() if self.first else b""
        length = self.sum(torch.tensor(len(text), device=self.device))
        content = torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if self.first:
            content.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        dist.broadcast(sent(content), src=0)
        return json.loads(content.cpu().numpy().tobytes())


def restarted() -> bool:
    """Whether `torchrun` has started this process again, after one of the processes died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


@cache
def _exchange() -> dist.ProcessGroup:
    """The group that exchanges rows of nodes, beside the one that sums gradients, which may do so at the same time."""
    return dist.new_group()


def join(device: str, partition: Sharing = "none", shard: bool = False) -> World:
    """Join the processes that `torchrun` started, until this one ends; without it, a world of one."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = device_for(device)
    if size == 1:
        return World(place)  # which has each graph whole
    if place.type == "mps":
        raise ConfigError("machine.device mps cannot be shared by several processes; use cpu")
    if place.type == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(place)
    if not dist.is_initialized():  # once per process: a second group would wait for the first one's keys
        try:
            store, rank, size = next(rendezvous("env://"))
        except ValueError as error:
            lacks = f"WORLD_SIZE is {size}, without all that torchrun sets beside it"
            raise ConfigError(f"{lacks} ({error}): unset it to train in one process") from error
        # Processes that are started again share a store with those before, whose addresses lead nowhere.
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        atexit.register(leave)
    return World(place, rank, size, partition != "none", shard, partition == "metis")


def leave() -> None:
    """Leave the group, at the end of the process, once its threads have let go of what was sent."""
    deadline = time.monotonic() + 5
    while SENT and time.monotonic() < deadline:
        if sys.getrefcount(SENT[0]) > 2:  # more than the deque and the call
            time.sleep(0.001)
        else:
            SENT.popleft()
    if dist.is_initialized():
        _exchange.cache_clear()
        dist.destroy_process_group()


def device_for(name: str) -> torch.device:
    """The device of that name; "auto" takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise ConfigError(f"machine.device must be auto, cpu, cuda, cuda:N or mps, not {name!r}") from None
    missing = (device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()) or (
        device.type == "mps" and not torch.backends.mps.is_available()
    )
    if missing:
        raise ConfigError(f"machine.device {name!r} is not on this machine; use auto or cpu")
    return device
