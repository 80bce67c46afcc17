"""`edgewise explore`: a page on which one attention is moved from graph to graph."""

import shlex
from pathlib import Path
from typing import Any

from edgewise.apps.arguments import typed_places
from edgewise.apps.explorer.page import HERE, LEAD, Words, contents, demonstration, written
from edgewise.errors import ConfigError, counted
from edgewise.files import write_file
from edgewise.training import Moved, load_run


def explore(
    run: str | None, out: str | None, node: str | None, accept: bool = False, data: Moved | None = None
) -> dict[str, Any]:
    """Write the page of a run's weights and validation examples, or of the model that comes with Edgewise."""
    if run is None:
        if data:
            raise ConfigError("--task.folder and its like say where a run's data lie now: give the run, too")
        words = Words("One attention, any graph", f"{LEAD} {HERE}", "Made by: edgewise explore", {"i": 8, "j": 32})
        content = contents(demonstration(), words, node)
    else:
        loaded = load_run(Path(run), device="cpu", accept=accept, folder=data)
        name = loaded.config.recipe or Path(run).resolve().name
        chosen = "" if node is None else f" --node {shlex.quote(node)}"
        command = f"edgewise explore {shlex.quote(run)}{chosen}{typed_places(data)}"
        words = Words(f"{name}: one attention, any graph", LEAD, f"Made by: {command}", {})
        content = contents(loaded, words, node)
    place = Path(out) if out else Path("explorer.html") if run is None else Path(run) / "explorer.html"
    page = written(content).encode()
    write_file(place, page)
    graphs = [graph["name"] for graph in content["examples"][0]["graphs"]]
    examples = counted(len(content["examples"]), "example")
    print(f"{place}: {examples} on {', '.join(graphs)}; open it in a browser")
    return {"page": str(place), "bytes": len(page), "examples": len(content["examples"]), "graphs": graphs}
