"""The options of every task, model, layer, pattern, optimizer and schedule, with their bounds and their defaults.

Runs are compared by what they were given; a default that changes changes what all of them mean.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from typing import Any

import edgewise
from edgewise import graphs, kernels, layers, models, tasks, testing, training
from edgewise.configuration import options_of
from edgewise.models import MODELS
from edgewise.tasks import TASKS
from edgewise.tasks.core.abilities import Sampling
from edgewise.training import OPTIMIZERS, SCHEDULES, RunConfig
from recorded import check_recorded

FLOORS = [graphs, kernels, layers, models, tasks, training, testing]
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


def defaults(name: str, entry: Any) -> Iterator[str]:
    """The defaults of a function, or of a class and its methods."""
    methods = vars(entry).items() if inspect.isclass(entry) else [("", entry)]
    for method, function in methods:
        if inspect.isfunction(function) and (not method.startswith("_") or method == "__init__"):
            for parameter in inspect.signature(function).parameters.values():
                if parameter.default is not inspect.Parameter.empty:
                    yield f"{name}.{method}({parameter.name} = {plain(parameter.default)})"


def test_public_functions_and_classes_have_the_defaults_on_record() -> None:
    public = {(name, entry) for floor in FLOORS for name, entry in vars(floor).items() if callable(entry)}
    own = [(name, entry) for name, entry in public if entry.__module__.startswith("edgewise.")]
    check_recorded("defaults", sorted({line for name, entry in own for line in defaults(name, entry)}))


def module_names() -> list[str]:
    """Every module of the package; the library of kernels lies beside one, and is none."""
    found = [module.name for module in pkgutil.walk_packages(edgewise.__path__, "edgewise.")]
    return [name for name in found if not name.endswith("libedgewise_kernels")]


def records() -> list[type]:
    """Every dataclass of the package."""
    found = [name for name in module_names() if "__main__" not in name]
    classes = {one for name in found for one in vars(importlib.import_module(name)).values() if isinstance(one, type)}
    own = {one for one in classes if one.__module__.startswith("edgewise.") and dataclasses.is_dataclass(one)}
    return sorted(own, key=lambda one: f"{one.__module__}.{one.__qualname__}")


def test_records_are_frozen_but_for_those_on_record() -> None:
    changing = {f"{one.__module__}.{one.__qualname__}" for one in records() if not one.__dataclass_params__.frozen}
    check_recorded("unfrozen", sorted(changing))


# What depends on the machine, on the checker of types, or on the tests' interpreter of Triton.
HERE = {"INTERPRETED", "INSTALLED", "TYPE_CHECKING", "WARPS", "LANES"}


def numbers(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, tuple) and len(value) > 0 and all(map(numbers, value)))


def test_constants_are_those_on_record() -> None:
    """What was measured, counted or promised: speeds, sizes at which a method changes, limits of what is read."""
    modules = module_names()
    constants = [
        f"{name}.{constant} = {plain(value)}"
        for name in modules
        if not name.endswith(("__main__", "_native"))
        for constant, value in vars(importlib.import_module(name)).items()
        if constant.isupper() and numbers(value) and constant not in HERE
    ]
    check_recorded("constants", sorted(set(constants)))


def test_fields_of_records_have_the_defaults_on_record() -> None:
    fields = [(f"{one.__module__}.{one.__qualname__}", field) for one in records() for field in dataclasses.fields(one)]
    given = [(name, field) for name, field in fields if isinstance(field.default, bool | int | float | str | tuple)]
    check_recorded("fields", sorted({f"{name}.{field.name} = {plain(field.default)}" for name, field in given}))
