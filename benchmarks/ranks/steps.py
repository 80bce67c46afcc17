"""Training steps of one process and of several that share each batch, in turns.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.ranks.steps [RECIPE ...]

The first rank alone and all ranks together take turns of some steps, each process on one thread. Of both: the median
step by the clock, its first decile (which other programs on the same cores disturb less), the mean processor time of a
step of the first rank, and those ratios.
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
# Where a recipe has what its peers lack, the steps are those of the peers' choice: nanoGPT's positions and optimiser.
OPTIONS = {"shakespeare-gpt-cpu": [("model.positions", "learned"), ("optimizer", "adamw")]}
TURNS, WARM = 8, 10


class Steps:
    """A run in memory, step by step, and what each takes."""

    def __init__(self, recipe: str, world: World) -> None:
        options = [("machine.device", "cpu"), ("machine.threads", "1")]
        config = configure(recipes.read(recipe), [*options, *OPTIONS.get(recipe, [])])
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
    def took(self) -> tuple[float, float, float]:
        """The median and the first decile of a step by the clock, and its mean processor time, in milliseconds."""
        median, decile = statistics.median(self.clock), statistics.quantiles(self.clock, n=10)[0]
        return 1e3 * median, 1e3 * decile, 1e3 * statistics.mean(self.processor)


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
        ratios = [shared / one for one, shared in zip(alone.took, together.took, strict=True)]
        one, shared = (", ".join(f"{took:.2f}" for took in steps.took) for steps in (alone, together))
        print(
            f"{recipe}: median, first decile and processor time of a step, ms: alone {one}; "
            f"one of {world.size} ranks {shared}; "
            f"ratios {', '.join(f'{ratio:.2f}' for ratio in ratios)}",
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
