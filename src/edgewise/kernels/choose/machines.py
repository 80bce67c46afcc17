"""The speeds of this machine and its GPU: assumed, or measured and saved for later processes."""

import json
import math
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from edgewise.files import cache_path, whole
from edgewise.kernels.backend import Cost

DTYPES = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16)}  # one set of speeds for each


@dataclass(frozen=True, slots=True)
class Machine:
    """Speeds that turn a `Cost` into seconds: each per second, but launch, which is the seconds of one.

    Symbols     the names of `Cost`; temporaries beyond `reused` bytes are fresh memory every time, and gathering
                through them runs at `gather_fresh`; rows in the cache, which holds `cache` bytes, run at `rows`,
                others at `rows_far`. On a GPU the cache is the L2, and temporaries beyond it go to its memory;
                overlap = the share of the shorter of launching and computing that hides behind the longer
    """

    flops: float
    tiles: float
    edges: float
    bandwidth: float
    gather: float
    gather_fresh: float
    rows: float
    rows_far: float
    launch: float
    reused: float = 32e6  # bytes: the largest block that glibc's malloc reuses
    cache: float = 24e6  # bytes; assumed
    steps: float = 1e6  # of one program
    overlap: float = 0.0

    def seconds(self, cost: Cost) -> float:
        """Predicted time of a forward pass."""
        far = max(0.0, 1 - self.cache / cost.held) if cost.held else 0.0  # the share of rows that are not in the cache
        work = (
            cost.flops / self.flops
            + cost.tiles / self.tiles
            + cost.edges / self.edges
            + cost.bytes / self.bandwidth
            + cost.gathered / (self.gather if cost.largest <= self.reused else self.gather_fresh)
            + cost.rows * ((1 - far) / self.rows + far / self.rows_far)
        )
        work, asked = max(work, cost.steps / self.steps), cost.launches * self.launch
        return work + asked - self.overlap * min(work, asked)


# Until `edgewise plan --calibrate` measures a machine, a CPU is taken for the one on which the constants of costs were
# fitted, and these speeds with them (see `kernels/backend.py`); a GPU for an H200, at nine tenths of the 4.8 TB/s and a
# part of the peaks that NVIDIA publishes: assumed. It computes while its host asks for more, and a short call takes as
# long as to ask for it: launches are those of an H100's host, and those of each backend were counted by its clock. A
# GPU has other speeds in half precision.
ASSUMED = {
    "cpu": Machine(
        flops=1.25e11, tiles=2e11, edges=7.4e10, bandwidth=3.3e10, gather=5e10, gather_fresh=5e9, rows=1e12,
        rows_far=2.5e10, launch=1.35e-5,
    ),
    "cuda": Machine(
        flops=3e13, tiles=6e13, edges=1.5e13, bandwidth=4.3e12, gather=4e12, gather_fresh=2.5e12, rows=6e12,
        rows_far=3e12, launch=2.5e-5, reused=32e6, cache=40e6, overlap=1.0,
    ),
    "cuda half": Machine(
        flops=4e14, tiles=2e14, edges=1.5e13, bandwidth=4.3e12, gather=4e12, gather_fresh=2.5e12, rows=6e12,
        rows_far=3e12, launch=2.5e-5, reused=32e6, cache=40e6, overlap=1.0,
    ),
}  # fmt: skip
MACHINES = dict(ASSUMED)  # by kind; `edgewise.kernels.choose.measure` puts what it measured in their place


def kind_of(device: torch.device, dtype: torch.dtype) -> str:
    """Which of MACHINES computes in a dtype on a device; any other device counts as a CPU.

    Example
        >>> kind_of(torch.device("cuda"), torch.bfloat16), kind_of(torch.device("cpu"), torch.bfloat16)
        ('cuda half', 'cpu')
    """
    if device.type != "cuda":
        return "cpu"
    return "cuda half" if dtype.itemsize < 4 else "cuda"


def speeds(device: torch.device, dtype: torch.dtype) -> Machine:
    """Those of a device in a dtype."""
    kind = kind_of(device, dtype)
    if kind != "cpu":
        _load_once("cuda")
    return MACHINES[kind]


def save(device: str, measured: dict[str, Machine]) -> None:
    """Use measured speeds from now on, and in later processes on the same machine."""
    MACHINES.update(measured)
    content = {kind: asdict(machine) for kind, machine in measured.items()}
    with suppress(OSError), whole(file_of(device)) as part:  # what cannot be cached is measured again
        part.write_text(json.dumps(content), encoding="utf-8")


def load(device: str = "cpu") -> None:
    """Use the speeds that were saved for this device (with as many threads), if any; else those assumed."""
    kinds = [kind_of(torch.device(device), dtype) for dtype in DTYPES[device]]
    try:
        content = json.loads(file_of(device).read_text(encoding="utf-8"))
        saved = {kind: {name: float(content[kind][name]) for name in asdict(MACHINES[kind])} for kind in kinds}
    except (OSError, ValueError, TypeError, KeyError):
        return  # never measured, or by another version
    for kind, values in saved.items():
        if all(math.isfinite(value) and (value > 0 or name == "overlap") for name, value in values.items()):
            MACHINES[kind] = Machine(**values)


_loaded: set[str] = set()


def _load_once(device: str) -> None:
    """`load`, when a process first plans for a GPU: reading its name any earlier would start it."""
    if device not in _loaded and torch.cuda.is_available():
        _loaded.add(device)
        load(device)


_load_once._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile runs it while it traces


def file_of(device: str) -> Path:
    """Where speeds are saved, for each processor, number of threads and PyTorch; for each GPU, PyTorch and Triton."""
    if device == "cpu":
        name = _plain(f"{platform.machine()} {_processor()} {torch.__version__}")
        return cache_path("machines", f"{name}-{torch.get_num_threads()}.json")
    capability = "".join(map(str, torch.cuda.get_device_capability()))
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    name = f"{torch.cuda.get_device_name()} sm{capability} {torch.__version__} triton {triton}"
    return cache_path("machines", f"{_plain(name)}.json")


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            lines = file.read(1500).splitlines()  # the first processor's
    except OSError:
        return platform.processor()
    kind = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return " ".join(kind.get(name, "") for name in ("model name", "cpu family", "model"))


load()
