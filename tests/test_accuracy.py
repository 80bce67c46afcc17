"""Every recipe that the documentation gives a figure for reaches it: `pytest -m accuracy` (about half an hour)."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgewise.training.runs import load_run

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.accuracy, pytest.mark.timeout(3600)]
FIGURES = [
    # recipe, seeds, least mean test accuracy (or largest validation loss)
    ("cora-gcn", 10, 0.813),
    ("cora-gat", 10, 0.825),
    ("cora-random-propagation", 10, 0.845),
    ("cora-graph-transformer", 10, 0.815),
    ("cora-sage", 10, 0.757),
    ("cora-gatv2", 10, 0.825),
    ("cora-gin", 10, 0.757),
    ("cora-gated-gcn", 3, 0.79),
    ("cora-monet", 3, 0.817),
    ("cora-gcn-deep", 3, 0.70),
    ("clouds-edge-conv", 1, 0.75),
    ("clouds-dgcnn", 1, 0.77),
    ("karate-sage", 5, 0.90),
    ("karate-jumping", 5, 0.95),
    ("karate-random-walk", 5, 0.85),
    ("karate-weighted", 5, 0.80),
    ("esol-graphormer", 1, -1.1),
    ("digits-squared", 1, 0.97),
    ("digits-newton", 1, 0.93),
    ("digits-hopfield", 1, 0.97),
    ("digits-scale", 1, 0.93),
    ("digits-memory", 1, 0.95),
    ("digits-classical-memory", 1, 1.0),
    ("digits-vae", 1, -24.7),
    ("topics-llama", 1, -1.8),
    ("skip-links-pairs", 1, 1.0),
    ("skip-links-gps", 5, 1.0),
    ("skip-links-laplacian", 3, 1.0),
    ("shrikhande-subgraphs", 3, 1.0),
    ("mnist-mlp", 1, 0.980),
    ("mnist-vit", 1, 0.985),
    ("mnist-swin", 1, 0.988),
    ("multi30k-de-en", 1, 39.5),
    ("mnist-mlp-swa", 1, 0.983),
    ("digits-vit", 3, 0.97),
    ("digits-vit-grid", 3, 0.97),
    ("shakespeare-gpt-cpu", 1, -1.669),
    ("shakespeare-lstm", 1, -1.669),
    ("shakespeare-sinkhorn", 1, -2.049),
    ("shakespeare-lsh", 1, -2.049),
    ("digits-gru", 1, 0.967),
    ("multi30k-post-norm", 1, 7.0),  # 7.8 is wanted: the page says that it is missed
    ("enzymes-gcn", 1, 0.492),
    ("planted-sage", 3, 0.905),
    ("planted-fastgcn", 3, 0.98),
    ("shakespeare-positions", 1, -1.95),
    ("shakespeare-sparse", 1, -2.0),
    ("shakespeare-performer", 1, -2.15),
    ("shakespeare-linear", 1, -2.25),
    ("kernel-regression", 1, -0.06),
    ("communities-autoencoder", 1, 0.98),
    ("nbody-tfn", 1, -0.0155),
    ("nbody-se3", 1, -0.0244),
    ("bibliography-hgt", 3, 0.80),
    ("tastes-lightgcn", 3, 0.20),  # of 0.13 by popularity and 0.27 by the truth
]

# Seeds on which a figure was read; the others begin with 0.
FIRST = {
    "bibliography-hgt": 10,
    "cora-random-propagation": 20,
    "digits-gru": 20,
    "cora-graph-transformer": 30,
    "multi30k-de-en": 30,
    "skip-links-laplacian": 20,
    "texas-acm": 40,
    "tastes-lightgcn": 10,
    "enzymes-ensemble": 20,
    "mutag-ensemble": 20,
    "esol-graph-network": 20,
}

FOLDS = [
    # recipe, folds, least mean test score (or largest error)
    ("kinship-rgcn", 3, 0.95),
    ("cora-vgae", 10, 0.914),
    ("texas-acm", 10, 0.84),
    ("texas-sage", 10, 0.82),
    ("texas-mlp", 10, 0.716),
    ("texas-graph-transformer", 10, 0.716),
    ("mutag-gin", 10, 0.83),
    ("mutag-ensemble", 10, 0.87),
    ("mutag-min-cut", 10, 0.78),  # 0.83 is wanted: the page says that it is missed
    ("musk-lookup", 10, 0.87),
    ("enzymes-sage", 10, 0.652),
    ("enzymes-gin", 10, 0.596),
    ("enzymes-ensemble", 10, 0.68),
    ("esol-graph-network", 5, -0.58),
]

PRE_TRAINING = [
    # recipe that learns without labels, recipe that starts from it, seeds
    ("esol-bert", "esol-bert-100", 5),
    ("multi30k-bart", "multi30k-bart-de-en", 3),
    ("captions-bert", "captions-bert-classes", 5),
]

PARTICLES = [
    # recipe, options that shorten it, largest test error
    ("nbody-linear", "", 0.084),
    ("nbody-radial-field", "--train.steps 3000", 0.0104),
    ("nbody-egnn", "", 0.0071),
    ("nbody-egnn-attention", "--train.steps 1500", 0.055),
    ("nbody-gnn", "--train.steps 3000", 0.0107),
    ("nbody-schnet", "--train.steps 600", 0.06),
    ("nbody-tfn", "--train.steps 800 --evaluation.every 200", 0.0125),
    ("nbody-se3", "--train.steps 600 --evaluation.every 200", 0.009),
]


def signed(result: dict[str, Any]) -> float:
    """The mean figure, below zero where less is better."""
    return -result["mean"] if result["metric"] in ("loss", "mse", "rmse") else result["mean"]


def python(*words: str, folder: Path = ROOT) -> str:
    """What a program prints."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def answer(folder: Path, *words: str) -> dict[str, Any]:
    """What a command of `edgewise` prints at its end."""
    return json.loads(python("-m", "edgewise", *words, "--json", folder=folder).splitlines()[-1])


def trained(folder: Path, words: str) -> dict[str, Any]:
    """What `edgewise train` prints at its end."""
    return answer(folder, "train", *words.split())


@pytest.mark.parametrize(("recipe", "options", "bound"), PARTICLES)
def test_particles_are_forecast_within_their_bound(recipe: str, options: str, bound: float, tmp_path: Path) -> None:
    result = trained(tmp_path, f"{recipe} --machine.threads 1 {options}")
    assert (result["recipe"], result["metric"]) == (recipe, "mse")
    assert result["mean"] <= bound, f"{recipe}: {result['mean']:.4f}"


@pytest.mark.parametrize(("before", "after", "seeds"), PRE_TRAINING)
def test_pre_training_helps_where_labels_are_few(before: str, after: str, seeds: int, tmp_path: Path, data) -> None:
    """The same recipe from the weights of the run before it, which is where it looks for them, and from drawn ones."""
    data(".")
    trained(tmp_path, before)
    started, drawn = (trained(tmp_path, f"{after} --seeds {seeds}{more}") for more in ("", " --start.run="))
    gain = started["mean"] - drawn["mean"]
    assert (-gain if started["metric"] == "rmse" else gain) > 0, f"{started['mean']:.3f} against {drawn['mean']:.3f}"


def test_hopfield_pooling_tells_musks_over_five_repeats_of_ten_folds(data) -> None:
    data("musk1")
    last = python("-m", "benchmarks.studies.musk").splitlines()[-1]
    right = re.fullmatch(r"musk-hopfield: test accuracy ([\d.]+)% .*5 repeats.*", last)
    assert right is not None and float(right[1]) >= 87


def test_simple_baselines_are_those_that_the_bars_name(data) -> None:
    data(".")
    names = (
        "mutag-gin enzymes-sage texas-sage karate-kernel digits-gru clouds-dgcnn multi30k-bahdanau shakespeare-gpt-cpu"
    )
    printed = python("-m", "benchmarks.studies.generalisation.baselines", *names.split())
    found = {(row[0], row[1]): float(row[2]) for row in re.findall(r"\| (\S+) \| ([^|]+) \| ([\d.]+)", printed)}
    regression = {"mutag-gin": 0.830, "enzymes-sage": 0.492, "digits-gru": 0.967, "clouds-dgcnn": 0.750}
    for name, figure in regression.items():
        assert found[name, "logistic regression"] == pytest.approx(figure, abs=0.01), name
    assert found["texas-sage", "its own features"] == pytest.approx(0.716, abs=0.01)
    assert found["karate-kernel", "labels that spread"] == 1
    assert found["multi30k-bahdanau", "nearest sentence"] == pytest.approx(7.8, abs=0.1)
    assert found["shakespeare-gpt-cpu", "counts, 2 characters before"] == pytest.approx(2.049, abs=0.001)
    assert found["shakespeare-gpt-cpu", "counts, 4 characters before"] == pytest.approx(1.669, abs=0.001)


def test_random_labels_are_memorised_and_only_true_ones_generalise() -> None:
    printed = python("-m", "benchmarks.studies.generalisation.labels")
    rows = re.findall(r"\| (true|random) \| ([\d.]+) % ± [\d.]+ % \| ([\d.]+) %", printed)
    shares = {name: (float(train), float(test)) for name, train, test in rows}
    assert shares["true"][0] == shares["random"][0] == 100
    assert shares["true"][1] >= 98 and shares["random"][1] <= 15


def test_one_epoch_for_all_folds_of_mutag_as_the_gin_paper_chooses_it(tmp_path: Path, data) -> None:
    data(".")
    assert trained(tmp_path, "mutag-gin --folds 10 --task.validate false")["mean_curve"]["mean"] >= 0.88


@pytest.mark.parametrize("recipe", ["communities-transformer", "grids-transformer"])
def test_graphs_that_are_written_are_five_times_closer_than_random_ones(recipe: str, tmp_path: Path) -> None:
    trained(tmp_path, f"{recipe} --run run")
    scores = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["test"]
    for name in ("degree", "clustering"):
        assert 5 * scores[name] <= scores[f"{name} of random graphs"], name


@pytest.mark.parametrize(
    ("recipe", "count", "bound", "repeated"),
    [(*one, "seeds") for one in FIGURES] + [(*one, "folds") for one in FOLDS],
)
def test_a_recipe_reaches_its_figure(
    recipe: str, count: int, bound: float, repeated: str, tmp_path: Path, data
) -> None:
    data(".")
    result = trained(tmp_path, f"{recipe} --{repeated} {count} --train.seed {FIRST.get(recipe, 0)}")
    assert len(result["values"]) == count
    assert signed(result) >= bound, f"{recipe}: {result['mean']:.4f} ± {result['sd'] or 0:.4f} over {count} {repeated}"
    if recipe == "cora-vgae":
        last = [(tmp_path / run / "metrics.jsonl").read_text().splitlines()[-1] for run in result["runs"]]
        assert sum(json.loads(line)["test"]["ap"] for line in last) / count >= 0.926


def test_a_learned_potential_moves_atoms_and_keeps_their_energy(tmp_path: Path) -> None:
    """Forces within 5 % of their deviation and those of its energy; 10 ps at each temperature within 1 %."""
    pytest.importorskip("ase")
    from ase.calculators.fd import calculate_numerical_forces

    from edgewise.tasks.particles.atoms import EnergiesAndForces, drift, simulate
    from edgewise.training import load_run
    from edgewise.training.calculator import calculator

    assert trained(tmp_path, "copper-schnet --run run")["mean"] <= 0.05
    loaded = load_run(tmp_path / "run", device="cpu")
    assert isinstance(loaded.task, EnergiesAndForces)
    forces = calculator(loaded)
    for number in (0, 100, 200, 300):
        atoms = loaded.task.atoms(f"test:{number}")
        atoms.calc = forces
        assert abs(atoms.get_forces() - calculate_numerical_forces(atoms, eps=1e-4)).max() <= 1e-6
        told = drift(simulate(loaded.task.atoms(f"test:{number}"), forces, frames=5_001, step=2.0))
        assert told.largest <= 0.01 * min(told.kinetic, told.total), f"test:{number}: {told}"


def test_on_turned_digits_equivariance_halves_the_error(tmp_path: Path, data) -> None:
    """Both networks have as many weights and steps, and neither saw a turned digit."""
    data(".")
    error, weights = {}, {}
    for recipe in ("mnist-rotated-p4", "mnist-rotated-cnn"):
        result = trained(tmp_path, recipe)
        error[recipe] = 1 - result["mean"]
        model = load_run(tmp_path / result["runs"][0], device="cpu").model
        weights[recipe] = sum(weight.numel() for weight in model.parameters())
    assert error["mnist-rotated-p4"] <= error["mnist-rotated-cnn"] / 2
    assert abs(weights["mnist-rotated-p4"] / weights["mnist-rotated-cnn"] - 1) < 0.03


def test_a_learned_simulator_is_twenty_times_better_than_going_straight_on(tmp_path: Path) -> None:
    """And what it makes of ten films in 200 steps stays in the box, as they do, and gains no energy."""
    result = trained(tmp_path, "granular-gns --run run")
    assert result["metric"] == "ratio" and result["mean"] <= 1 / 20
    for film in range(10):
        told = answer(tmp_path, "predict", "run", f"test:{film}")
        assert told["steps"] == 200
        assert told["forecast"]["outside_the_walls"] < 0.04  # a radius: every centre is inside
        assert told["forecast"]["energy_last"] < told["forecast"]["energy_first"]


def test_message_passing_can_only_guess_skip_links(tmp_path: Path) -> None:
    assert trained(tmp_path, "skip-links-gin")["mean"] == 0.1


def test_low_rank_adaptation_keeps_nine_tenths_of_the_gain(tmp_path: Path, data) -> None:
    data("mnist")
    trained(tmp_path, "mnist-vit")
    before = trained(tmp_path, "digits-vit-lora --train.steps 1 --optimizer.learning_rate 1e-9 --run before")["mean"]
    low_rank = trained(tmp_path, "digits-vit-lora --run low-rank")["mean"]
    whole = "digits-vit-lora --start.rank 0 --optimizer.learning_rate 0.002 --run whole"
    all_weights = trained(tmp_path, whole)["mean"]
    assert low_rank - before >= 0.90 * (all_weights - before)


def test_sampled_neighbours_lose_at_most_a_point(tmp_path: Path) -> None:
    sampled = trained(tmp_path, "planted-sage --seeds 3")["mean"]
    whole = trained(tmp_path, "planted-sage --task.fanouts [] --train.steps 300 --run whole")["mean"]
    assert sampled >= whole - 0.01


def test_a_million_nodes_are_trained_on_in_three_gigabytes(tmp_path: Path) -> None:
    """By the peak of the process that trains, which the operating system keeps (in kilobytes on Linux)."""
    program = (
        "import resource, sys; from edgewise.apps.command.main import main; "
        "main('train planted-sage --task.nodes 1000000 --evaluation.every 600'.split()); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    assert int(python("-c", program, folder=tmp_path).splitlines()[-1]) * 1024 <= 3e9
