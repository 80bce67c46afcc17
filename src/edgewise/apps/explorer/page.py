"""The explorer's page: one file that makes no request; its one script runs by its hash, its data are no script."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load

from edgewise.apps import recipes
from edgewise.apps.explorer.choices import Shape
from edgewise.apps.explorer.examples import outputs_of, pieces
from edgewise.apps.explorer.weights import Plain, exported
from edgewise.apps.options import configure
from edgewise.errors import ConfigError
from edgewise.training import LoadedRun
from edgewise.training.runs import assemble

FOLDER = Path(__file__).parent
RECIPE = "karate-explorer"  # whose weights `karate.safetensors` holds
CLOSED = "base-uri 'none'; form-action 'none'"
LARGEST = 2_000_000  # bytes of a page
LEAD = """One attention, any graph: a trained model, its weights as they are, on a graph that you choose and change. All
numbers are recomputed in this page at every edit."""
HERE = (
    f"The model is the recipe {RECIPE}: two blocks trained on 34 members of a karate club, each attending to friends."
)


@dataclass(frozen=True)
class Words:
    """What a page says of itself, and the pair of nodes that it chooses at first."""

    title: str
    lead: str
    source: str
    start: dict[str, int]


def demonstration() -> LoadedRun:
    """The model of the explorer's own page, with the weights that come with Edgewise."""
    config = configure(recipes.read(RECIPE))
    task, model = assemble(config)
    model.load_state_dict(load((FOLDER / "karate.safetensors").read_bytes()))
    return LoadedRun(config, task, config.graph, model.eval())


def contents(loaded: LoadedRun, words: Words, node: str | None = None) -> Plain:
    """What a page shows of a run: its model, and a few validation examples on several graphs each.

    Errors      ConfigError for a model that the page cannot compute, or a node that is not there
    """
    model = exported(loaded.model, outputs_of(loaded.task))
    shape = Shape(model["heads"], model["width"] // model["heads"])
    chosen = loaded.config.graph.name
    name = "friendship" if loaded.task.name == "karate" and chosen == "given" else chosen.replace("given", "its own")
    shown = pieces(loaded.model, loaded.task, loaded.pattern, node)
    examples = [piece.packed(name, shape) for piece in shown]
    notes = " ".join(dict.fromkeys(piece.note for piece in shown if piece.note))
    return {
        "title": words.title,
        "lead": f"{words.lead} {notes}".strip(),
        "source": words.source,
        "start": words.start | {"layer": len(model["blocks"]) - 1},
        "model": model,
        "examples": examples,
    }


def written(content: Plain) -> str:
    """The page with that content.

    Errors      ConfigError for one of more than LARGEST bytes
    """
    script, style = (_read(f"page.{kind}") for kind in ("js", "css"))
    policy = f"default-src 'none'; script-src '{sha256(script)}'; style-src '{sha256(style)}'; {CLOSED}"
    parts = {
        "policy": policy,
        "title": "Explorer · Edgewise",  # the script sets the run's own, as text
        "style": style,
        "script": script,
        "data": escaped(content),
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))
    size = len(page.encode())
    if size > LARGEST:
        raise ConfigError(
            f"the page would have {size:,} bytes, of at most {LARGEST:,}: the model or its examples are too large"
        )
    return page


def escaped(content: Plain) -> str:
    """JSON in ASCII that cannot end the element around it, whatever the names in it.

    Example
        >>> escaped({"name": "</script>"})
        '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def sha256(text: str) -> str:
    """A script's or style's source as a content policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
