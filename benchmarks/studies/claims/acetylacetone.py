"""How far do potentials on geometric layers come on a paper's table, and do they conserve energy?

python -m benchmarks.studies.claims.acetylacetone [passes [picoseconds]]

`own-potential` learns the 500 geometries of acetylacetone at 300 K (a fifth chooses the weights), with each layer that
is a potential and trains in minutes (`tfn` is five times as slow), by so many passes and no patience. Tested: 300 K,
600 K, a turned dihedral, a proton that moves over. Root mean square errors in meV of the whole molecule and meV/Å.
Published (Batatia et al., 2022): at 300 K 0.89, 0.81 and 0.9 meV, 6.3, 5.9 and 5.1 meV/Å by BOTNet, NequIP and MACE; at
600 K 6.2, 6.0, 4.6 and 29.8, 27.8, 22.4. The simplest method is an energy that no place changes, the mean of those that
train, without forces. At last the molecule moves at constant energy as each potential says.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

import numpy as np

import edgewise
from edgewise.tasks.core.source import local_folder
from edgewise.tasks.particles.atoms import drift, simulate
from edgewise.training import Result
from edgewise.training.calculator import calculator

LAYERS = ("schnet", "egnn", "painn")
TESTS = {"300 K": "test_MD_300K", "600 K": "test_MD_600K", "dihedral": "test_dihedral", "proton": "test_H_transfer"}
STEP = 0.5  # fs
MILLI = 1000.0


def errors(said: list[dict[str, np.ndarray]], known: list[dict[str, np.ndarray]]) -> list[float]:
    """The root mean squares of what energies and, where known, forces are off by, in meV and meV/Å."""
    kinds = [kind for kind in ("energy", "forces") if kind in known[0]]
    apart = {kind: [said[n][kind] - np.asarray(one[kind]) for n, one in enumerate(known)] for kind in kinds}
    return [MILLI * float(np.sqrt(np.square(apart[kind]).mean())) for kind in kinds]


def measure(passes: int, picoseconds: float) -> Iterator[tuple[str, list[float], float | None]]:
    """For each method its errors on each test, and by how much of the kinetic energy the total one strays at most."""
    from ase.io import read

    place = local_folder("acac", ["train_300K.xyz", *(f"{name}.xyz" for name in TESTS.values())])
    frames = {name: read(place / f"{file}.xyz", ":") for name, file in TESTS.items()}
    known = {name: [one.calc.results for one in some] for name, some in frames.items()}
    mean = np.mean([one.get_potential_energy() for one in read(place / "train_300K.xyz", ":")])
    still = {"energy": mean, "forces": np.zeros(())}
    yield "none: the mean energy", [one for some in known.values() for one in errors([still] * len(some), some)], None
    with TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        copy(place / "train_300K.xyz", data / "train.xyz")
        copy(place / "test_MD_300K.xyz", data / "test.xyz")
        for layer in LAYERS:
            evaluation = {"simple": 0, "patience": 0}
            made = edgewise.train(
                "own-potential", Path(folder) / layer, file=str(data), train={"epochs": passes},
                evaluation=evaluation, layer=layer,
            )  # fmt: skip
            assert isinstance(made, Result)
            loaded = edgewise.load(made.run)
            found = [one for name, some in frames.items() for one in errors(loaded.predict(some), known[name])]
            moving = simulate(
                frames["300 K"][0], calculator(made.run), frames=round(MILLI * picoseconds / STEP), step=STEP
            )
            told = drift(moving)
            yield f"`{layer}`", found, told.largest / told.kinetic


def main(passes: int = 80, picoseconds: float = 2.0) -> None:
    columns = [
        f"{name}, {unit}" for name in TESTS for unit in (("meV", "meV per Å") if name[0].isdigit() else ("meV",))
    ]
    print(f"| potential | {' | '.join(columns)} | total energy strays |\n|---|{'---|' * (len(columns) + 1)}")
    for name, found, strays in measure(passes, picoseconds):
        last = "" if strays is None else f"{100 * strays:.1f} %"
        print(f"| {name} | {' | '.join(f'{one:.1f}' for one in found)} | {last} |", flush=True)


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))
