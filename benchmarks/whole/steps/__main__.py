"""Whole training steps of recipes beside those of the strongest peers: batches, model, loss, clipping and optimiser.

    python -m benchmarks.whole.steps [RECIPE ...] [--rounds 7]

Edgewise's step is the one that `edgewise train RECIPE` takes, of the GPT with learned positions and AdamW. A peer has
the same sizes and its own usual way to make a batch, and is measured as it comes and under `torch.compile`, with
PyTorch's fused optimisers; what it was given is in its function. One thread, one process, in which all take turns of
some steps: processor time of a step, the median of the turns, of Edgewise and of the faster peer. Products is what the
matrix products of the peer's step take at the speed of a large one, which no step on as many rows can do without.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from statistics import median

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.memory import give_back, peak_above
from benchmarks.report import shown
from benchmarks.whole.steps import graphs, images, texts
from benchmarks.whole.steps.peer import Peer
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.training.distributed import World
from edgewise.training.loop import Trainer
from edgewise.training.runs import begin
from edgewise.training.seeds import repeatable

PEERS: dict[str, Callable[[Trainer], list[Peer]]] = {
    "esol-gin": graphs.isomorphism,
    "enzymes-gin": graphs.isomorphism,
    "planted-sage": graphs.sage,
    "digits-vit": images.vision_transformer,
    "mnist-swin": images.swin,
    "shakespeare-gpt-cpu": texts.gpt,
    "multi30k-de-en": texts.translator,
}
# Where a recipe has what its peers lack, the steps are those of the peers' choice: nanoGPT's positions and optimiser.
OPTIONS = {"shakespeare-gpt-cpu": [("model.positions", "learned"), ("optimizer", "adamw")]}
TURN = 0.4  # seconds
LARGE = 1024  # rows and columns of a product at full speed


def begun(recipe: str) -> Trainer:
    """A run of a recipe before its first step, which writes nothing."""
    config = configure(
        recipes.read(recipe), [("machine.device", "cpu"), ("machine.threads", "1"), *OPTIONS.get(recipe, [])]
    )
    trainer = Trainer(config, None, World(torch.device("cpu")))  # type: ignore[arg-type]
    begin(trainer.model, config)
    return trainer


def measure(recipe: str, rounds: int) -> None:
    """Print the lines of a recipe."""
    trainer = begun(recipe)

    def step() -> None:
        trainer.step += 1
        trainer.update()

    peers = [Peer("edgewise", step, trainer.model), *PEERS[recipe](trainer)]
    seconds: dict[str, list[float]] = {peer.name: [] for peer in peers}
    megabytes: dict[str, float] = {}
    for peer in peers:
        for _ in range(3):  # compiles, and learns that sizes change
            peer.step()
        give_back()
        megabytes[peer.name] = max(peak_above(peer.step) for _ in range(3))
    for _ in range(rounds):
        for peer in peers:
            count, start = 0, time.process_time()
            while count == 0 or time.process_time() < start + TURN:
                peer.step()
                count += 1
            seconds[peer.name].append((time.process_time() - start) / count)
    own, *others = ((median(seconds[peer.name]), peer.name) for peer in peers)
    took, faster = min(others)
    print(
        f"| {recipe} | {milliseconds(own[0])} | {faster} | {milliseconds(took)} | {took / own[0]:.2f} × "
        f"| {megabytes['edgewise']:.0f} | {megabytes[faster]:.0f} | {milliseconds(products(peers[1].step))} |",
        flush=True,
    )


def milliseconds(seconds: float) -> str:
    return f"{shown(1e3 * seconds)} ms"


def products(step: Callable[[], object], steps: int = 4) -> float:
    """Seconds that a step's matrix products and convolutions take at the speed of a large product."""
    with FlopCounterMode(display=False) as counted:
        for _ in range(steps):
            step()
    x, y = torch.randn(2, LARGE, LARGE)
    fastest = float("inf")
    for _ in range(20):
        start = time.process_time()
        x @ y
        fastest = min(fastest, time.process_time() - start)
    return counted.get_total_flops() / steps * fastest / (2 * LARGE**3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", choices=[[], *PEERS], default=[])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # its idle threads spin for a while, on everybody's processor time
    print("| recipe | Edgewise | peer | its step | × | MB | its MB | products |\n|---|---|---|---|---|---|---|---|")
    with repeatable(deterministic=False, threads=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for recipe in options.recipes or PEERS:
            measure(recipe, options.rounds)


if __name__ == "__main__":
    main()
