"""The options of every task, model, layer, pattern, optimizer and schedule, with their bounds and their defaults.

Runs are compared by what they were given; a default that changes changes what all of them mean.
"""

import dataclasses
import inspect
import re
import typing
from typing import Any

from edgewise.configuration import options_of
from edgewise.graphs import PATTERNS
from edgewise.layers import LAYERS
from edgewise.models import MODELS
from edgewise.tasks import TASKS
from edgewise.tasks.core.task import Sampling
from edgewise.training import OPTIMIZERS, SCHEDULES, RunConfig
from recorded import check_recorded

CONFIGURED: dict[str, Any] = {"sampling": Sampling, **TASKS, **OPTIMIZERS, **SCHEDULES}
CONFIGURED |= {name: hint for name, hint in typing.get_type_hints(RunConfig).items() if dataclasses.is_dataclass(hint)}
CONFIGURED |= {f"{name} model": settings for name, (settings, _) in MODELS.items()}


def plain(value: Any) -> str:
    return re.sub(r"<(?:function|class) '?([\w.]+).*?>| at 0x\w+|\bmappingproxy\(", r"\1", repr(value))


def hint(value: Any) -> str:
    bounds = [str(extra) for extra in getattr(value, "__metadata__", ()) if dataclasses.is_dataclass(extra)]
    return " ".join(bound for bound in bounds if not bound.startswith("OneOf"))


def test_options_have_the_defaults_and_bounds_on_record() -> None:
    check_recorded(
        "options",
        (
            f"{name}.{option} = {plain(default)} {hint(kind)}".rstrip()
            for name, entry in CONFIGURED.items()
            for option, (kind, default, _) in options_of(entry).items()
        ),
    )


def test_layers_and_patterns_have_the_defaults_on_record() -> None:
    check_recorded(
        "defaults",
        (
            f"{name}.{parameter.name} = {plain(parameter.default)}"
            for name, entry in {**LAYERS, **PATTERNS}.items()
            for parameter in inspect.signature(entry).parameters.values()
            if parameter.default is not inspect.Parameter.empty
        ),
    )
