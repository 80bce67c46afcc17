"""The errors that a user can cause: each message says what was wrong, where, and what would be right."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path


class EdgewiseError(Exception):
    """Any error that Edgewise raises on purpose; the command line prints it and exits with code 2.

    Several problems at once are as many arguments, each of which is a line.

    Example
        >>> print(EdgewiseError("a.csv: line 2 is too short", "a.csv: line 7 is too short"))
        a.csv: line 2 is too short
        a.csv: line 7 is too short
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class GraphError(EdgewiseError, ValueError):
    """A graph that cannot exist: an index out of bounds, a wrong dtype or shape, an impossible pattern."""


class ShapeError(EdgewiseError, ValueError):
    """Tensors that do not fit the graph or one another."""


class BackendRefusal(EdgewiseError, RuntimeError):
    """A backend asked for by name cannot run the call, or no backend can; the message is the backend's reason."""


class ConfigError(EdgewiseError, ValueError):
    """A recipe, option or setting that names something unknown or asks for something impossible."""


class DataError(EdgewiseError, ValueError):
    """A data file that is missing, damaged or not what it claims to be."""


class CheckpointError(EdgewiseError, RuntimeError):
    """A checkpoint that is missing, damaged or made for another model."""


class NonFiniteError(EdgewiseError, ArithmeticError):
    """A loss, gradient or weight became NaN or infinite; the message names the tensor and the step."""


class ExplanationError(EdgewiseError, ValueError):
    """A method of explanation that cannot say anything of a model or of a number; the message says why."""


class ExportError(EdgewiseError, RuntimeError):
    """A model that cannot be written as a file of that kind; the message says which part, and why."""


def nearest(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'window'?`, or nothing where nothing is near.

    Example
        >>> nearest("windwo", ["window", "causal"])
        "; did you mean 'window'?"
        >>> nearest("gnc", ["gin", "gcn"])  # swapped letters are the commonest slip
        "; did you mean 'gcn'?"
    """
    typed = str(word)[:100]

    def likeness(name: str) -> float:
        return SequenceMatcher(None, typed, name).ratio() + (0.2 if sorted(typed) == sorted(name) else 0.0)

    best = max(known, key=likeness, default="")
    return f"; did you mean {best!r}?" if likeness(best) >= 0.6 else ""


def a_kind(value: object) -> str:
    """The type of a value, with its article.

    Example
        >>> a_kind(3), a_kind("3")
        ('an int', 'a str')
    """
    name = type(value).__name__
    return f"{'an' if name.lower().startswith(('a', 'e', 'i', 'o', 'nd')) else 'a'} {name}"


def counted(number: int, thing: str) -> str:
    """A number of things.

    Example
        >>> counted(1, "row"), counted(2000, "row")
        ('1 row', '2,000 rows')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def installing(name: str) -> str:
    """The command that installs an optional part: in a clone the clone's own, elsewhere pip's."""
    clone = Path(__file__).parents[2]
    if (clone / "Makefile").is_file() and (clone / "pyproject.toml").is_file():
        return f"run `make extras`, or pip install --editable '.[{name}]', in {clone}"
    return f"pip install 'edgewise[{name}]'"
