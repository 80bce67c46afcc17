"""What every test shares: a fixed seed, and the folder of real data where there is one."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined: before any import of one

from edgewise.kernels.planning import machines
from edgewise.native import library, say_if_missing


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--instruction-set NAME` for `make instruction-sets`."""
    parser.addoption("--instruction-set", help="the native kernels' build to test, in place of this machine's best")


def pytest_configure(config: pytest.Config) -> None:
    """Let the native kernels run with the instruction set that was asked for."""
    name = config.getoption("--instruction-set", default=None)
    if name is not None:
        assert library, "the native kernels are not built"
        library.use_instruction_set(name)


def pytest_report_header() -> str:
    """What the native kernels were built for; where they were not, they say so here and not in some test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        say_if_missing()
    if not library:
        return "native kernels: not built"
    return f"native kernels: {', '.join(library.instruction_sets())}, tested with {library.instruction_set()}"


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def assumed_machine() -> None:
    """The planner's choices do not depend on what was measured on the machine that runs the tests."""
    machines.MACHINES.update(machines.ASSUMED)


@pytest.fixture
def data() -> Callable[[str], Path]:
    """`data("planetoid")` is that folder of $EDGEWISE_DATA; without it a test fails in CI and is skipped elsewhere."""

    def folder(name: str) -> Path:
        root = os.environ.get("EDGEWISE_DATA")
        path = Path(root) / name if root else None
        if path is not None and path.is_dir():
            return path
        reason = f"no data: {path} is not a folder" if path else f"no data: EDGEWISE_DATA is not set, {name} needs it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)

    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of caches of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "edgewise"
