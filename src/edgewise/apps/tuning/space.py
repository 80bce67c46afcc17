"""Which options of a recipe are searched, and over what."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgewise.apps.options import Overrides, configure
from edgewise.apps.recipes import Recipe
from edgewise.configuration import Choice, OneOf, Option, options_of
from edgewise.errors import ConfigError
from edgewise.training import RunConfig

if TYPE_CHECKING:
    from optuna import Trial

Value = str | int | float
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(f"({NUMBER})\\.\\.({NUMBER})")
WHOLE = re.compile(r"[-+]?\d+")
DECADE = 10.0  # a range of numbers > 0 that spans as much is searched by orders of magnitude
MOST_DROPOUT = 0.8
DECAYS = ("0", "0.00001", "0.0001", "0.001", "0.01")


@dataclass(frozen=True)
class Dimension:
    """An option, by its path, and its values: the names or numbers of a list, or a range."""

    option: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False

    @property
    def by_magnitude(self) -> bool:
        """Whether the logarithm is searched evenly."""
        return self.low > 0 and self.high >= DECADE * self.low

    def suggest(self, trial: "Trial") -> Value:
        """A value for a trial."""
        if self.choices:
            return str(trial.suggest_categorical(self.option, self.choices))
        if self.whole:
            return trial.suggest_int(self.option, int(self.low), int(self.high), log=self.by_magnitude)
        return trial.suggest_float(self.option, self.low, self.high, log=self.by_magnitude)

    @property
    def tried(self) -> tuple[Value, ...]:
        """All of its values, or the ends of a range."""
        return self.choices or ((int(self.low), int(self.high)) if self.whole else (self.low, self.high))

    def __str__(self) -> str:
        """As `--search` has it."""
        ends = (f"{int(end)}" if self.whole else repr(float(end)) for end in (self.low, self.high))
        return f"{self.option}={','.join(self.choices) or '..'.join(ends)}"


def written(text: str) -> Dimension:
    """The dimension that `OPTION=LOW..HIGH` or `OPTION=VALUE,VALUE,...` names.

    Errors      ConfigError for anything else, such as a range whose ends are the wrong way round

    Example
        >>> str(written("model.depth=1..4")), written("optimizer.learning_rate=1e-4..0.1").by_magnitude
        ('model.depth=1..4', True)
        >>> written("model.layer=gcn,gat").choices
        ('gcn', 'gat')
    """
    option, equals, values = text.partition("=")
    if not equals or "." not in option or not values:
        raise ConfigError(f"--search {text!r}: write SECTION.OPTION=LOW..HIGH, or SECTION.OPTION=VALUE,VALUE,...")
    option = option.removeprefix("--")
    found = RANGE.fullmatch(values)
    if found is None and ".." in values:
        raise ConfigError(f"--search {text!r}: a range goes from one number to another, such as 1..4 or 1e-4..0.1")
    if found is None:
        choices = tuple(values.split(","))
        if len(set(choices)) != len(choices) or not all(choices):
            raise ConfigError(f"--search {text!r}: a value is empty or there twice")
        return Dimension(option, choices)
    low, high = float(found[1]), float(found[2])
    if not low < high < float("inf"):
        raise ConfigError(f"--search {text!r}: the range must go from a smaller number to a larger one")
    return Dimension(option, low=low, high=high, whole=all(WHOLE.fullmatch(end) for end in found.groups()))


def usual(config: RunConfig) -> list[Dimension]:
    """What is searched unless one says otherwise: learning rate and weight decay, and of the model width, depth,
    every dropout and every name of a table without options of its own (norm, connection, activation, ...)."""
    found = []
    rate = config.optimizer.options.get("learning_rate")
    if rate:
        found.append(Dimension("optimizer.learning_rate", low=rate / DECADE, high=rate * DECADE))
    if "weight_decay" in config.optimizer.options:
        found.append(_with("optimizer.weight_decay", DECAYS, config.optimizer.options["weight_decay"]))
    table = options_of(RunConfig)["model"].table
    assert table is not None
    return found + [one for entry in _options(table, config.model, "model.") for one in _usual(*entry)]


def possible(dimensions: Sequence[Dimension], takes: Callable[[str, Value], None]) -> tuple[list[Dimension], list[str]]:
    """The dimensions without values that are refused by themselves, and a line on each of these.

    Symbols     takes(option, value) = a ValueError that says why a value is refused
    Edge cases  a range of which an end is refused is not searched, nor a list of which one value is left
    """
    found, left_out = [], []
    for one in dimensions:
        refused: dict[Value, str] = {}
        for value in one.tried:
            try:
                takes(one.option, value)
            except ValueError as error:
                refused[value] = str(error)
        kept = tuple(choice for choice in one.choices if choice not in refused)
        if not refused or len(kept) > 1:
            found.append(replace(one, choices=kept))
        if refused:
            values = f"={','.join(map(str, refused))}" if len(kept) > 1 else ""
            left_out.append(f"{one.option}{values}: {next(iter(refused.values()))}")
    return found, left_out


def _options(table: OneOf, choice: Choice, path: str) -> Iterator[tuple[str, Option, Any]]:
    for name, option in table.options(choice.name).items():
        value = choice.options[name]
        yield f"{path}{name}", option, value
        if isinstance(value, Choice) and option.table is not None:
            yield from _options(option.table, value, f"{path}{name}.")


def _usual(path: str, option: Option, value: Any) -> Iterator[Dimension]:
    name = path.rpartition(".")[2]
    if isinstance(value, float) and name.endswith("dropout"):
        yield Dimension(path, low=0.0, high=max(MOST_DROPOUT, value))
    elif name == "width" and isinstance(value, int):
        yield Dimension(path, tuple(str(width) for width in (value // 2, value, 2 * value) if width))
    elif name == "depth" and isinstance(value, int):
        yield Dimension(path, low=1, high=value + 2, whole=True)
    elif isinstance(value, str) and option.table is not None:
        yield Dimension(path, tuple(option.table.table))


def _with(option: str, choices: tuple[str, ...], value: float) -> Dimension:
    """These numbers, and the recipe's own where it is another."""
    numbers = {value: str(value)} | {float(choice): choice for choice in choices}
    return Dimension(option, tuple(numbers[number] for number in sorted(numbers)))


def checked(recipe: Recipe, overrides: Overrides, dimensions: Sequence[Dimension]) -> None:
    """Refuse an option that the recipe does not have, that is searched twice or that is set as well; try its ends."""
    given = {option.removesuffix(".name") for option, _ in overrides}
    seen: set[str] = set()
    for one in dimensions:
        if one.option in given or one.option in seen:
            twice = "set as well" if one.option in given else "searched twice"
            raise ConfigError(f"{one.option} is searched, and {twice}: leave out one of the two")
        seen.add(one.option)
        for value in one.tried:
            configure(recipe, [*overrides, (one.option, as_text(value))])


def as_text(value: Value) -> str:
    """A value as the command line gives it."""
    return value if isinstance(value, str) else repr(value)


def own(config: RunConfig, dimensions: Sequence[Dimension]) -> dict[str, Value]:
    """The recipe's own values where they are among those that are searched."""
    content, values = config.to_plain(), {}
    for one in dimensions:
        value: Any = content
        for part in one.option.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, dict):
            value = value.get("name")
        if one.choices:
            named = {choice: choice for choice in one.choices} | {_number(choice): choice for choice in one.choices}
            if (value if isinstance(value, str) else _number(value)) in named:
                values[one.option] = named[value if isinstance(value, str) else _number(value)]
        elif isinstance(value, int | float) and one.low <= value <= one.high:
            values[one.option] = value
    return values


def _number(value: Any) -> Any:
    try:
        return str(value).lower() if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return str(value).lower()
