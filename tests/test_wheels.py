"""The wheel that is given to others: one for every Python, with a bill of what is in it."""

import base64
import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from wheels.bom import bill
from wheels.join import joined

ROOT = Path(__file__).parent.parent
INFO = "edgewise-0.1.0.dist-info"
METADATA = """Metadata-Version: 2.4
Name: edgewise
Version: 0.1.0
License-Expression: Apache-2.0
Requires-Dist: numpy>=1.26
Requires-Dist: torch>=2.10
Requires-Dist: ase>=3.23; extra == "atoms"
Requires-Dist: edgewise[atoms]; extra == "all"

Version: of the description
"""
OLD, STABLE = "cp311-cp311", "cp312-abi3"
MODULES = {OLD: "_native.cpython-311-x86_64-linux-gnu.so", STABLE: "_native.abi3.so"}


def made(place, tag, module, platform="linux_x86_64", source="pass\n"):
    """A wheel with one file of Python, the kernels and a compiled module."""
    path = place / f"edgewise-0.1.0-{tag}-{platform}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edgewise/__init__.py", source)
        archive.writestr("edgewise/native/libedgewise_kernels.so", "kernels")
        archive.writestr(f"edgewise/native/{module}", module)
        archive.writestr(f"{INFO}/METADATA", METADATA)
        archive.writestr(f"{INFO}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}-{platform}\n\n")
        archive.writestr(f"{INFO}/RECORD", f"of {tag}")
    return path


def read(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def well_formed(files):
    """RECORD names every file with its length and hash."""
    rows = [row.split(",") for row in files[f"{INFO}/RECORD"].decode().splitlines()]
    assert {name for name, _, _ in rows} == set(files)
    for name, digest, length in rows[:-1]:
        if not name.endswith("RECORD"):
            hashed = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert (digest, int(length)) == (f"sha256={hashed}", len(files[name])), name


def test_two_wheels_become_one_that_every_python_finds_its_module_in(tmp_path):
    both = [made(tmp_path, tag, module) for tag, module in MODULES.items()]
    one = joined(tmp_path / "dist", both[::-1])
    assert one.name == "edgewise-0.1.0-cp311.cp312-cp311.abi3-linux_x86_64.whl"
    files = read(one)
    well_formed(files)
    natives = {name for name in files if name.startswith("edgewise/native/")}
    assert natives == {f"edgewise/native/{name}" for name in ("libedgewise_kernels.so", *MODULES.values())}
    tags = [line for line in files[f"{INFO}/WHEEL"].decode().splitlines() if line.startswith("Tag: ")]
    assert {f"Tag: {tag}-linux_x86_64" for tag in MODULES} <= set(tags)
    before = one.read_bytes()
    assert joined(tmp_path / "dist", both).read_bytes() == before


def test_a_module_that_later_pythons_cannot_import_is_refused(tmp_path):
    both = [made(tmp_path, OLD, MODULES[OLD]), made(tmp_path, STABLE, "_native.cpython-312-x86_64-linux-gnu.so")]
    with pytest.raises(SystemExit, match=r"not one module that the Pythons of its tag import: _native\.abi3\.so"):
        joined(tmp_path, both)


def test_wheels_that_differ_elsewhere_are_refused(tmp_path):
    old = made(tmp_path, OLD, MODULES[OLD])
    with pytest.raises(SystemExit, match=r"edgewise/__init__\.py differs"):
        joined(tmp_path, [old, made(tmp_path, STABLE, MODULES[STABLE], source="other\n")])
    with pytest.raises(SystemExit, match="one platform"):
        joined(tmp_path, [old, made(tmp_path, STABLE, MODULES[STABLE], platform="linux_aarch64")])


def test_the_bill_names_what_is_in_the_wheel_and_what_it_needs():
    document = json.loads(bill(METADATA, {"edgewise/native/a.so": b"kernels"}))
    assert document["metadata"]["component"]["purl"] == "pkg:pypi/edgewise@0.1.0"
    parts = {part["bom-ref"]: part for part in document["components"]}
    assert document["dependencies"][0]["dependsOn"] == sorted(parts)
    assert parts["edgewise/native/a.so"]["hashes"][0]["content"] == hashlib.sha256(b"kernels").hexdigest()
    assert parts["pkg:pypi/torch"]["scope"] == "required"
    assert parts["pkg:pypi/ase"]["scope"] == "optional"
    assert "pkg:pypi/edgewise" not in parts
    lock = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8").splitlines()
    assert f"nanobind=={parts[next(p for p in parts if p.startswith('pkg:pypi/nanobind@'))]['version']}" in lock
    page = (ROOT / "web" / "package.json").read_text(encoding="utf-8")
    bundled = {part["name"] for part in parts.values() if part["bom-ref"].startswith("pkg:npm/")}
    assert set(json.loads(page)["dependencies"]) <= bundled
    assert not set(json.loads(page)["devDependencies"]) & bundled


@pytest.mark.wheel
def test_the_built_wheel_has_the_package_its_kernels_once_and_its_bill():
    built = sorted((ROOT / "dist").glob("edgewise-*-cp311.cp312-cp311.abi3-manylinux_*.whl"))
    assert built, "`make wheel` builds the wheel that this looks into"
    assert built[-1].stat().st_size <= 5_000_000
    files = read(built[-1])
    well_formed(files)
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    package = {name.removeprefix("src/") for name in tracked.split()}
    sources = {name for name in package if name.endswith((".cpp", ".hpp", "CMakeLists.txt"))}
    compiled = {"libedgewise_kernels.so", *MODULES.values()}
    inside = {name for name in files if not name.startswith(INFO)}
    assert inside == (package - sources) | {f"edgewise/native/{name}" for name in compiled}
    document = json.loads(files[f"{INFO}/sboms/edgewise.cdx.json"])
    hashes = {part["name"]: part["hashes"][0]["content"] for part in document["components"] if part["type"] == "file"}
    assert hashes == {name: hashlib.sha256(files[name]).hexdigest() for name in inside if name.endswith(".so")}
