"""The reference pages follow from the folders: a floor's modules, each with what is public in it."""

import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "edgewise"
MARK = re.compile(r"<!-- reference: (\w+) -->")
LEFT_OUT = "kernels/backends/cuda/programs"  # Triton's programs, which autodoc cannot read without Triton


def modules(floor: str) -> Iterator[str]:
    """Paths below the package, as `layers/graph/gat`: a floor's modules, those of its root first."""
    if (PACKAGE / f"{floor}.py").is_file():
        yield floor
    for folder in sorted({path.parent for path in (PACKAGE / floor).rglob("*.py")}):
        for path in sorted(folder.glob("*.py")):
            name = path.relative_to(PACKAGE).with_suffix("").as_posix()
            if path.stem != "__init__" and not name.startswith(LEFT_OUT):
                yield name


def reference(floor: str) -> str:
    """The sections of a floor's page."""
    return "\n\n".join(
        f"## {name}.py\n\n```{{eval-rst}}\n.. automodule:: edgewise.{name.replace('/', '.')}\n```"
        for name in modules(floor)
    )


def filled(page: str) -> str:
    """A page with its mark replaced by the sections of the floor that it names."""
    return MARK.sub(lambda mark: reference(mark[1]), page)
