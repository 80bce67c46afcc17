"""Compiled files run from C++ in a process without Python: `examples/cpp`, built against PyTorch's own libraries."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from deployment.families import FAMILIES
from deployment.test_exporting import OTHERS, save_call
from edgewise.deployment import export

ROOT = Path(__file__).parents[2]
CMAKE = shutil.which("cmake")
pytestmark = [
    pytest.mark.exports,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CMAKE is None, reason="needs cmake"),
]


def build(folder: Path, *options: str) -> Path:
    """The example's program."""
    options = (f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}", *options)
    for command in (["-S", ROOT / "examples" / "cpp", "-B", folder, *options], ["--build", folder]):
        made = subprocess.run([str(CMAKE), *command], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    return folder / "run"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cpp"))


def ran(program: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=False, env={})


def differs(program: Path, file: Path, arrays: Path) -> float:
    """The largest |y - y'| / (1 + |y'|), as the program prints it."""
    made = ran(program, file, arrays)
    assert made.returncode == 0, made.stdout + made.stderr
    return float(re.findall(r"differs by (\S+) at most", made.stdout)[0])


def of_family(name: str, folder: Path, **options: bool) -> tuple[Path, list[Path]]:
    """A family's compiled file, and the arrays of calls of its example's and of other sizes."""
    family, file = FAMILIES[name], folder / f"{name}.aoti.pt2"
    torch.manual_seed(0)
    made = export(family.model().eval(), family.call(0), "aoti", file, names=family.names, **options)
    calls = [folder / f"{name}.aoti.pt2.npz"]
    calls += [save_call(folder / f"{name}.call{number}.npz", made, family.call(number)) for number in OTHERS]
    return file, calls


def test_the_program_needs_no_python(program: Path) -> None:
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in needed.splitlines()]
    assert "libtorch_cpu.so" in names and not any("python" in name for name in names)


@pytest.mark.parametrize("name", ["gat", "gine", "gpt", "schnet"])
def test_compiled_files_give_the_models_numbers_in_cpp(name: str, program: Path, tmp_path: Path) -> None:
    file, calls = of_family(name, tmp_path)
    assert len(calls) == 6 and max(differs(program, file, arrays) for arrays in calls) <= 1e-5


def test_wrong_numbers_and_files_that_cannot_be_read_are_said(program: Path, tmp_path: Path) -> None:
    file, (example, *_) = of_family("gat", tmp_path)
    arrays = dict(np.load(example))
    np.savez(tmp_path / "wrong.npz", **arrays | {"expected_y": arrays["expected_y"] + 1})
    assert ran(program, file, tmp_path / "wrong.npz").returncode == 1
    np.savez_compressed(tmp_path / "compressed.npz", **arrays)
    assert "compressed: write it by numpy.savez" in ran(program, file, tmp_path / "compressed.npz").stderr
    assert "usage: run MODEL.aoti.pt2 INPUTS.npz" in ran(program).stderr
    assert ran(program, tmp_path / "none.pt2", example).stderr.startswith("run: ")
    assert len(re.findall(r"^seconds \S+$", ran(program, file, example, 3).stdout, re.M)) == 3
