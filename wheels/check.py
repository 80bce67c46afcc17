"""Does the wheel serve? `python -m wheels.check PLACE INTERPRETER=TORCH…` installs the newest wheel of a folder, with
PyTorch and what both require, into an empty environment each, and prints the seconds until the demo's first line.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

LONGEST = 60  # seconds from nothing to the first line
SMOKE = """
import platform, sys, torch, edgewise
from edgewise.native import library
q = torch.randn(5, 1, 8)
native, segment = (edgewise.attend(edgewise.causal(5), q, q, q, backend=backend) for backend in ("native", "segment"))
assert torch.allclose(native, segment, atol=1e-5), (native, segment)
assert platform.machine() != "x86_64" or library.built_for() == ["v2", "v3", "v4"], library.built_for()
print(f"Python {platform.python_version()}, PyTorch {torch.__version__}: {library.__file__.rpartition('/')[2]}, "
      f"built for {' '.join(library.built_for())}, runs {library.instruction_set()}")
"""


def seconds_to_first_line(wheel: Path, python: str, torch: str, place: Path) -> tuple[float, float, str]:
    """From nothing, in `place`, to the installed package, and to the demo's first line, which comes third."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    started = time.perf_counter()
    subprocess.run([*uv, "venv", "--python", python, place / "environment"], check=True)
    tools = place / "environment" / "bin"
    subprocess.run([*uv, "pip", "install", "--python", tools / "python", wheel, torch], check=True)
    installed = time.perf_counter() - started
    demo = subprocess.Popen([tools / "edgewise", "demo"], cwd=place, stdout=subprocess.PIPE, text=True)
    line = demo.stdout.readline().strip()
    shown = time.perf_counter() - started
    demo.terminate()
    demo.communicate()
    return installed, shown, line


def check(wheel: Path, environments: list[str]) -> None:
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
    slow = []
    for wanted in environments:
        python, _, torch = wanted.partition("=")
        with tempfile.TemporaryDirectory() as place:
            installed, shown, line = seconds_to_first_line(wheel, python, torch, Path(place))
            if not line:
                raise SystemExit(f"{wanted}: the demo printed nothing")
            smoke = [Path(place) / "environment" / "bin" / "python", "-W", "error", "-c", SMOKE]
            said = subprocess.run(smoke, check=True, cwd=place, stdout=subprocess.PIPE, text=True).stdout.strip()
        print(f"{said}\n  installed in {installed:.1f} s, '{line}' after {shown:.1f} s", flush=True)
        slow += [wanted] * (shown > LONGEST)
    if slow:
        raise SystemExit(f"more than {LONGEST} s to the demo's first line: {', '.join(slow)}")


if __name__ == "__main__":
    found = max(Path(sys.argv[1]).glob("edgewise-*.whl"), key=lambda path: path.stat().st_mtime)
    check(found, sys.argv[2:])
