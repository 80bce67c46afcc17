"""Training steps of one process and of several that share each batch, in turns.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.ranks.steps [RECIPE ...]

The first rank alone and all ranks together take turns of some steps, each process on one thread. Of both: the median
step by the clock, the mean processor time of a step of the first rank, and those ratios.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.training.distributed import World, join
from edgewise.training.loop import Trainer
from edgewise.training.runs import begin
from edgewise.training.seeds import repeatable

RECIPES = ("planted-sage", "esol-gin", "shakespeare-gpt-cpu")
TURNS, WARM = 8, 10


class Steps:
    """A run in memory, step by step, and what each takes."""

    def __init__(self, recipe: str, world: World) -> None:
        config = configure(recipes.read(recipe), [("machine.device", "cpu"), ("machine.threads", "1")])
        self.trainer = Trainer(config, None, world)  # type: ignore[arg-type] # which writes nothing
        begin(self.trainer.model, config)
        self.clock: list[float] = []
        self.processor: list[float] = []

    def take(self, count: int) -> None:
        for _ in range(count):
            self.trainer.step += 1
            clock, processor = time.perf_counter(), time.process_time()
            self.trainer.update()
            self.clock.append(time.perf_counter() - clock)
            self.processor.append(time.process_time() - processor)

    def forget(self) -> None:
        self.clock, self.processor = [], []

    @property
    def took(self) -> tuple[float, float]:
        """The median step by the clock, and its mean processor time, in milliseconds."""
        return 1e3 * statistics.median(self.clock), 1e3 * statistics.mean(self.processor)


def measure(recipe: str, world: World, steps: int) -> None:
    alone = Steps(recipe, World(world.device)) if world.first else None
    together = Steps(recipe, world)
    for turn in range(TURNS + 1):
        count = steps if turn else WARM
        if alone is not None:
            alone.take(count)
        dist.barrier()  # the others sleep until then
        together.take(count)
        if not turn:
            for taken in (alone, together):
                if taken is not None:
                    taken.forget()
    if alone is not None:
        (one, cpu), (shared, shared_cpu) = alone.took, together.took
        print(
            f"{recipe}: alone {one:.2f} ms ({cpu:.2f} of the processor), one of {world.size} ranks {shared:.2f} ms "
            f"({shared_cpu:.2f}): {shared / one:.2f} by the clock, {shared_cpu / cpu:.2f} in processor time",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=RECIPES)
    parser.add_argument("--steps", type=int, default=30, help="steps of a turn")
    options = parser.parse_args()
    torch.set_num_threads(1)
    world = join("cpu")
    if world.size == 1:
        parser.error("start it with torchrun --standalone --nproc-per-node 2 -m benchmarks.ranks.steps")
    with repeatable(deterministic=True, threads=1):
        for recipe in options.recipes:
            measure(recipe, world, options.steps)


if __name__ == "__main__":
    main()
