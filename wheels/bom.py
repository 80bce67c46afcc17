"""The bill of materials that travels in the wheel (PEP 770): what is compiled into it, and what it needs."""

import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"


def bill(metadata: str, compiled: dict[str, bytes]) -> bytes:
    """CycloneDX 1.6 as JSON, from the wheel's METADATA and its compiled modules by path."""
    fields = [line.split(": ", 1) for line in metadata.split("\n\n", 1)[0].splitlines() if ": " in line]
    field = dict(reversed(fields))
    name = f"pkg:pypi/edgewise@{field['Version']}"
    itself = _library(name, field["License-Expression"], name="edgewise", version=field["Version"])
    parts = [
        *[_module(path, content) for path, content in sorted(compiled.items())],
        *_compiled_in(),
        *_bundled(),
        *[_needed(text) for key, text in fields if key == "Requires-Dist" and not text.startswith("edgewise[")],
    ]
    by_name: dict[str, dict] = {}
    for part in parts:
        by_name.setdefault(part["bom-ref"], part)
    document = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself},
        "components": list(by_name.values()),
        "dependencies": [{"ref": name, "dependsOn": sorted(by_name)}],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _module(path: str, content: bytes) -> dict:
    digest = hashlib.sha256(content).hexdigest()
    return {"type": "file", "bom-ref": path, "name": path, "hashes": [{"alg": "SHA-256", "content": digest}]}


def _compiled_in() -> list[dict]:
    """The libraries whose code is in the compiled modules: nanobind, and the hash map that it brings."""
    lock = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8")
    version = re.search(r"^nanobind==(.+)$", lock, re.MULTILINE)[1]
    return [
        _library(f"pkg:pypi/nanobind@{version}", "BSD-3-Clause", name="nanobind", version=version),
        _library("pkg:github/Tessil/robin-map", "MIT", name="robin-map", description="the copy that nanobind brings"),
    ]


def _bundled() -> list[dict]:
    """The packages whose code is in the explorer's page: all that its source's lock file lists and that is no tool."""
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    bundled = {path.removeprefix("node_modules/"): one for path, one in packages.items() if path and not one.get("dev")}
    return [
        _library(f"pkg:npm/{name}@{one['version']}", one["license"], name=name, version=one["version"])
        for name, one in bundled.items()
    ]


def _needed(requirement: str) -> dict:
    """A package that pip installs beside the wheel; its version is chosen there, so that only the range is known."""
    name = re.match(r"[\w.-]+", requirement)[0]
    needed = f"pkg:pypi/{name.lower().replace('_', '-')}"
    scope = "optional" if "extra ==" in requirement else "required"
    ranges = [{"name": "edgewise:requirement", "value": requirement}]
    return _library(needed, name=name, scope=scope, properties=ranges)


def _library(url: str, licence: str | None = None, **fields: object) -> dict:
    licences = {"licenses": [{"expression": licence}]} if licence else {}
    return {"type": "library", "bom-ref": url, "purl": url, **fields, **licences}
