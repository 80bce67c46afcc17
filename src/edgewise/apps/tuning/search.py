"""What a search is of: a recipe, the options that are searched, and how often each trial is repeated."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgewise.apps.command.runs import repetitions
from edgewise.apps.options import Overrides, configure
from edgewise.apps.recipes import Recipe
from edgewise.apps.tuning.space import Dimension, Value, as_text, own
from edgewise.training import RunConfig, settled


@dataclass(frozen=True)
class Search:
    """A recipe with options from the command line, what is searched, and how many runs a trial is the mean of.

    Symbols     folds = whether these runs are one for each fold of the data, instead of one for each seed
    """

    recipe: Recipe
    overrides: Overrides
    dimensions: list[Dimension]
    repeats: int = 1
    folds: bool = False

    @property
    def config(self) -> RunConfig:
        """The recipe as it stands."""
        return self.with_values({})

    def to_plain(self) -> dict[str, Any]:
        """All that decides the figures of a trial."""
        return {
            "recipe": self.config.to_plain(),
            "search": [str(dimension) for dimension in self.dimensions],
            "repeat": {"folds" if self.folds else "seeds": self.repeats},
        }

    def own(self) -> dict[str, Value]:
        """The recipe's own values where they are searched, those of the first trial."""
        return own(self.config, self.dimensions)

    @property
    def has_recipe(self) -> bool:
        """Whether the recipe's own values are all among those that are searched: it is the first trial then."""
        return len(self.own()) == len(self.dimensions)

    def with_values(self, values: Mapping[str, Value]) -> RunConfig:
        """The recipe with a trial's values, as `edgewise train` would train it."""
        given = [(option, as_text(value)) for option, value in values.items()]
        return settled(configure(self.recipe, [*self.overrides, *given]))

    def decided(self) -> list[Dimension]:
        """The dimensions that change nothing: options of a model that `start.hub` brings."""
        found = []
        for one in self.dimensions if self.config.start.hub else ():
            made = [self.with_values({one.option: value}) for value in one.tried]
            if all(config == made[0] for config in made):
                found.append(one)
        return found

    def repetitions(self, values: Mapping[str, Value], *, fresh: bool = False) -> list[RunConfig]:
        """The configurations of a trial's runs; fresh ones have seeds that no trial has."""
        config = self.with_values(values)
        if fresh:
            config = replace(config, train=replace(config.train, seed=config.train.seed + self.repeats))
        return repetitions(config, self.repeats, self.folds)

    def run_name(self, config: RunConfig) -> str:
        """The name of a run among a trial's."""
        return f"fold-{config.task.options['fold']}" if self.folds else f"seed-{config.train.seed}"
