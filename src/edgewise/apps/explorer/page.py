"""`edgewise explore`: one file that makes no request; its one script runs by its hash, its data are no script."""

import base64
import hashlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

from safetensors.torch import load

from edgewise.apps import recipes
from edgewise.apps.arguments import typed_places
from edgewise.apps.explorer.examples import outputs_of, pieces, planner
from edgewise.apps.explorer.weights import Plain, exported
from edgewise.apps.options import configure
from edgewise.errors import ConfigError, counted
from edgewise.files import write_file
from edgewise.training import LoadedRun, Moved, load_run
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


def demonstration() -> LoadedRun:
    """The model of the explorer's own page, with the weights that come with Edgewise."""
    config = configure(recipes.read(RECIPE))
    task, model = assemble(config)
    model.load_state_dict(load((FOLDER / "karate.safetensors").read_bytes()))
    return LoadedRun(config, task, config.graph, model.eval())


def contents(
    loaded: LoadedRun, title: str, lead: str, source: str, start: dict[str, int] | None = None, node: str | None = None
) -> Plain:
    """What a page shows of a run: its model, and a few validation examples on several graphs each.

    Symbols     start = the pair of nodes, i and j, that it chooses at first
    Errors      ConfigError for a model that the page cannot compute, or a node that is not there
    """
    model = exported(loaded.model, outputs_of(loaded.task))
    plan = planner(model["heads"], model["width"] // model["heads"])
    chosen = loaded.config.graph.name
    name = "friendship" if loaded.task.name == "karate" and chosen == "given" else chosen.replace("given", "its own")
    shown = pieces(loaded.model, loaded.task, loaded.pattern, node)
    examples = [piece.packed(name, plan) for piece in shown]
    notes = " ".join(dict.fromkeys(piece.note for piece in shown if piece.note))
    return {
        "title": title,
        "lead": f"{lead} {notes}".strip(),
        "source": source,
        "start": {**(start or {}), "layer": len(model["blocks"]) - 1},
        "model": model,
        "examples": examples,
    }


def written(content: Plain) -> str:
    """The page with that content.

    Errors      ConfigError for one of more than LARGEST bytes
    """
    page, script, style = ((FOLDER / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "js", "css"))
    policy = f"default-src 'none'; script-src '{sha256(script)}'; style-src '{sha256(style)}'; {CLOSED}"
    parts = {
        "policy": policy,
        "title": "Explorer · Edgewise",  # the script sets the run's own, as text
        "style": style,
        "script": script,
        "data": escaped(content),
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page)
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


def explore(
    run: str | None, out: str | None, node: str | None, accept: bool = False, data: Moved | None = None
) -> dict[str, Any]:
    """Write the page of a run's weights and validation examples, or of the model that comes with Edgewise."""
    if run is None:
        if data:
            raise ConfigError("--task.folder and its like say where a run's data lie now: give the run, too")
        words = "One attention, any graph", f"{LEAD} {HERE}", "Made by: edgewise explore"
        content = contents(demonstration(), *words, {"i": 8, "j": 32}, node)
    else:
        loaded = load_run(Path(run), device="cpu", accept=accept, folder=data)
        name = loaded.config.recipe or Path(run).resolve().name
        chosen = "" if node is None else f" --node {shlex.quote(node)}"
        command = f"edgewise explore {shlex.quote(run)}{chosen}{typed_places(data)}"
        content = contents(loaded, f"{name}: one attention, any graph", LEAD, f"Made by: {command}", node=node)
    place = Path(out) if out else Path("explorer.html") if run is None else Path(run) / "explorer.html"
    page = written(content).encode()
    write_file(place, page)
    graphs = [graph["name"] for graph in content["examples"][0]["graphs"]]
    examples = counted(len(content["examples"]), "example")
    print(f"{place}: {examples} on {', '.join(graphs)}; open it in a browser")
    return {"page": str(place), "bytes": len(page), "examples": len(content["examples"]), "graphs": graphs}
