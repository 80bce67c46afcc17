"""One wheel from two: Python 3.11's and the one of the stable ABI, which serves 3.12 and later, differ only in the
module that binds the kernels, and each Python imports the one that is named for it: `python -m wheels.join OUT WHEEL…`
"""

import base64
import hashlib
import sys
import zipfile
from itertools import product
from pathlib import Path

from wheels.bom import bill

COMPILED = ".so"
LARGEST = 5_000_000  # bytes
SAME_TIME = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel


def joined(place: Path, wheels: list[Path]) -> Path:
    """The wheel, in `place`, that holds what all of `wheels` hold, with the bill of materials in its metadata."""
    names = [path.stem.split("-") for path in sorted(wheels)]
    if len({(name, version, platform) for name, version, *_, platform in names}) > 1:
        raise SystemExit(f"{[path.name for path in wheels]}: wheels of one version and one platform can be joined")
    files: dict[str, bytes] = {}
    for path in sorted(wheels):
        with zipfile.ZipFile(path) as archive:
            content = {entry: archive.read(entry) for entry in archive.namelist() if not entry.endswith("/")}
        _, _, python, abi, _ = path.stem.split("-")
        modules = [Path(entry).name for entry in content if Path(entry).name.startswith("_native.")]
        named = "_native.abi3.so" if abi == "abi3" else f"_native.cpython-{python.removeprefix('cp')}-"
        if len(modules) != 1 or not modules[0].startswith(named):
            raise SystemExit(f"{path.name} has {modules}, not one module that the Pythons of its tag import: {named}")
        for entry, one in content.items():
            if files.setdefault(entry, one) != one and Path(entry).name not in ("WHEEL", "RECORD"):
                raise SystemExit(f"{entry} differs between {[path.name for path in wheels]}")
    name, version, _, _, platform = names[0]
    tags = [list(dict.fromkeys(part)) for part in zip(*(parts[2:4] for parts in names), strict=True)]
    info = f"{name}-{version}.dist-info"
    files[f"{info}/WHEEL"] = _tagged(files[f"{info}/WHEEL"], [*tags, platform.split(".")])
    compiled = {entry: content for entry, content in files.items() if entry.endswith(COMPILED)}
    files[f"{info}/sboms/edgewise.cdx.json"] = bill(files[f"{info}/METADATA"].decode(), compiled)
    place.mkdir(parents=True, exist_ok=True)
    out = place / f"{name}-{version}-{'.'.join(tags[0])}-{'.'.join(tags[1])}-{platform}.whl"
    _write(out, files, f"{info}/RECORD")
    if out.stat().st_size > LARGEST:
        raise SystemExit(f"{out.name} has {out.stat().st_size} bytes, and {LARGEST} are allowed")
    return out


def _tagged(wheel: bytes, tags: list[list[str]]) -> bytes:
    """The file WHEEL with every tag that the joined wheel's name stands for."""
    lines = [line for line in wheel.decode().splitlines() if line and not line.startswith("Tag: ")]
    return "\n".join([*lines, *(f"Tag: {'-'.join(tag)}" for tag in product(*tags)), ""]).encode()


def _write(out: Path, files: dict[str, bytes], record: str) -> None:
    def digest(content: bytes) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

    del files[record]
    rows = [f"{entry},sha256={digest(content)},{len(content)}" for entry, content in sorted(files.items())]
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry, content in files.items():
            header = zipfile.ZipInfo(entry, SAME_TIME)
            header.external_attr = (0o755 if entry.endswith(COMPILED) else 0o644) << 16
            header.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(header, content)


if __name__ == "__main__":
    print(joined(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]]))
