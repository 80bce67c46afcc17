"""Does a graph network recommend artists better than counts and factors of the same table?

python -m benchmarks.studies.claims.listeners [seeds]

`own-choices`, LightGCN, learns who listens to which artist (lastfm, its own test part; a tenth of the rest chooses the
weights). Beside it, chosen by the same choices: what is listened to most; the artists most like one's own by the cosine
of who listens to them; and alternating least squares of confidences 1 + α (Hu, Koren & Volinsky, 2008, (4), (5)), 15
rounds, the best of 12 settings. Lists leave out what was known of a user; recall divides by min(20, chosen).
"""

import csv
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory

import numpy as np
import torch
from scipy.sparse import csr_array

import edgewise
from edgewise import training
from edgewise.tasks.core.source import local_folder
from edgewise.tasks.links.recommendation import Recommendation

ROUNDS, FACTORS, CONFIDENCES, PENALTIES = 15, (32, 64, 96), (5.0, 20.0), (1.0, 10.0)


def write(file: Path) -> None:
    """The table that `own-choices` reads."""
    place = local_folder("lastfm", ["data1.txt", "test1.txt"])
    with file.open("w", newline="") as table:
        rows = csv.writer(table)
        rows.writerow(["user", "item", "split"])
        for name, split in (("data1.txt", "train"), ("test1.txt", "test")):
            for line in (place / name).read_text().splitlines():
                user, artist, _ = line.split()
                rows.writerow([f"u{user}", f"a{artist}", split])


def solve(chosen: csr_array, of: np.ndarray, alpha: float, penalty: float) -> np.ndarray:
    """The factors of one side, given those of the other [M, F], that minimise the weighted squares: (4)."""
    size = of.shape[1]
    squares = (chosen @ (of[:, :, None] * of[:, None, :]).reshape(len(of), -1)).reshape(-1, size, size)
    A = of.T @ of + penalty * np.eye(size, dtype=of.dtype) + alpha * squares
    found: np.ndarray = np.linalg.solve(A, (1 + alpha) * (chosen @ of)[..., None])[..., 0]
    return found


def factors(chosen: csr_array, size: int, alpha: float, penalty: float) -> np.ndarray:
    """The score of each item for each user, by `size` factors of alternating least squares."""
    item = np.random.default_rng(0).normal(0, 0.1, (chosen.shape[1], size)).astype(np.float32)
    for _ in range(ROUNDS):
        user = solve(chosen, item, alpha, penalty)
        item = solve(csr_array(chosen.T), user, alpha, penalty)
    return np.asarray(user @ item.T)


def counted(task: Recommendation) -> Iterator[tuple[str, Mapping[str, float]]]:
    """What methods without a network reach on the test choices."""
    for name, scores_of in task.simple():
        yield name, scores_of("test")
    user, item = (part.numpy() for part in task.splits["train"].T)
    chosen = csr_array((np.ones(len(user), np.float32), (user, item)), shape=(task.users, task.items))
    best: dict[str, tuple[float, Mapping[str, float]]] = {}
    for settings in product(FACTORS, CONFIDENCES, PENALTIES):
        scores = torch.from_numpy(factors(chosen, *settings)).double()
        valid, test = (task.scored(scores.__getitem__, split) for split in ("valid", "test"))
        if valid[task.metric] > best.get("", (-1.0,))[0]:
            best[""] = valid[task.metric], test
    yield "alternating least squares", best[""][1]


def main(seeds: int = 5) -> None:
    print("| method | recall@20 | NDCG@20 |\n|---|---|---|")
    with TemporaryDirectory() as folder:
        write(Path(folder) / "choices.csv")
        found = []
        for seed in range(seeds):
            run, file = Path(folder) / str(seed), str(Path(folder) / "choices.csv")
            edgewise.train("own-choices", run, file=file, train={"seed": seed}, evaluation={"simple": 0})
            found.append(edgewise.evaluate(run)["test"])
        task = training.load_run(run).task
        assert isinstance(task, Recommendation)
        for name, one in counted(task):
            print(f"| {name} | {one['recall@20']:.4f} | {one['ndcg@20']:.4f} |", flush=True)
        each = [[one[name] for one in found] for name in ("recall@20", "ndcg@20")]
        print(f"| LightGCN | {' | '.join(f'{mean(one):.4f} ± {stdev(one):.4f}' for one in each)} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
