"""`edgewise check`: which of the two checks."""

from collections.abc import Sequence
from typing import Any

from edgewise.errors import ConfigError


def check(
    what: str, model: str | None, options: Sequence[str], pairs: str | None, train: int, relabellings: int | None
) -> dict[str, Any]:
    """Measure what a model can tell apart, or what explanations find."""
    if what == "explanations":
        from edgewise.apps.command.planted import check as check_explanations

        if model is not None or pairs or train or relabellings:
            raise ConfigError("check explanations trains models of its own: it takes no MODEL and no option")
        return check_explanations()
    from edgewise.apps.command.expressiveness import RELABELLINGS
    from edgewise.apps.command.expressiveness import check as check_expressiveness

    if model is None:
        raise ConfigError("check expressiveness needs a MODEL; `edgewise list models` names them")
    return check_expressiveness(model, options, pairs, train, relabellings or RELABELLINGS)
