"""What a study has measured, kept in a file, so that a study which was stopped goes on where it was."""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVarTuple

from matplotlib.figure import Figure

from edgewise.apps.report import figures
from edgewise.files import write_file

Figures = dict[str, float]
Args = TypeVarTuple("Args")


@dataclass
class Kept:
    """Figures by the name of what was measured; with a file, each is written as soon as it is there.

    Example
        >>> kept = Kept()
        >>> kept.get("one", lambda: {"loss": 1.0}), kept.get("one", lambda: {"loss": 2.0})
        ({'loss': 1.0}, {'loss': 1.0})
    """

    file: Path | None = None
    found: dict[str, Figures] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.is_file():
            self.found |= json.loads(self.file.read_text(encoding="utf-8"))

    def get(self, name: str, measure: Callable[[*Args], Figures], *args: *Args) -> Figures:
        """What is kept under this name, or what `measure` of these arguments finds now."""
        if name not in self.found:
            self.found[name] = measure(*args)
            if self.file is not None:
                write_file(self.file, json.dumps(self.found, indent=1).encode())
        return self.found[name]


def arguments(text: str | None) -> argparse.Namespace:
    """The options that every study has."""
    parser = argparse.ArgumentParser(description=(text or "").split("\n")[0])
    parser.add_argument("--kept", type=Path, help="a JSON file: what it holds is not measured again")
    parser.add_argument("--picture", type=Path, help="the SVG file to draw")
    return parser.parse_args()


def draw(figure: Figure, file: Path | None, name: str) -> None:
    """Write the picture, light and dark, if one was asked for."""
    if file is not None:
        file.write_text(figures.standalone(figures.svg(figure, name)), encoding="utf-8")
