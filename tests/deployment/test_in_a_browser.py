"""Exported models in a page: the lines of docs/export.md in headless Chromium. `make browsers`, or

npm --prefix web ci --ignore-scripts && python -m pytest -m browser tests/deployment
"""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.deployment.exporting import export_run
from edgewise.graphs import Graph
from edgewise.training import load_run, train

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "web" / "node_modules" / "onnxruntime-web" / "dist"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGE = """<!doctype html><title>A model</title><link rel="icon" href="data:,">
<script type="module">import { run } from "./model.js"; window.run = run;</script>
"""
FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
CLOSE = 1e-5
KINDS = {torch.float32: "Float32Array", torch.int64: "BigInt64Array"}
pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def needed(there: bool, what: str) -> None:
    """Without it a test fails in CI, as in `make browsers`, and is skipped elsewhere."""
    if not there:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"needs {what}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that 127.0.0.1 serves: the page, the documented lines and onnxruntime-web's two files."""
    needed(RUNTIME.is_dir(), "onnxruntime-web: npm --prefix web ci --ignore-scripts")
    needed(shutil.which("node") is not None, "node")
    needed(CHROMIUM is not None, "Chromium")
    (lines,) = re.findall(r"^```js\n(.*?)^```$", (ROOT / "docs" / "export.md").read_text("utf-8"), re.M | re.S)
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "page.html").write_text(PAGE, encoding="utf-8")
    (folder / "model.js").write_text(lines, encoding="utf-8")
    for name in FILES:
        shutil.copyfile(RUNTIME / name, folder / name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def in_the_page(folder: Path, origin: str, calls: list[dict[str, Tensor]], **options: str) -> dict[str, Any]:
    """What the page returned for each call, and which requests it made."""
    described = []
    for k, call in enumerate(calls):
        for name, values in call.items():
            (folder / f"{k}.{name}").write_bytes(values.contiguous().numpy().tobytes())
        described.append({name: [f"{k}.{name}", KINDS[x.dtype], list(x.shape)] for name, x in call.items()})
    job = {"executable": CHROMIUM, "origin": origin, "calls": described, **options}
    driver = ["node", str(ROOT / "web" / "test" / "model.mjs")]
    done = subprocess.run(driver, input=json.dumps(job), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    return json.loads(done.stdout)


def apart(y: np.ndarray, right: np.ndarray) -> np.ndarray:
    """|y - y'| / (1 + |y'|), by row the largest."""
    return (np.abs(y - right) / (1 + np.abs(right))).max(axis=-1)


def page_outputs(seen: dict[str, Any]) -> list[np.ndarray]:
    assert (seen["errors"], seen["messages"], seen["elsewhere"]) == ([], [], [])
    assert all(result.keys() == {"y"} for result in seen["results"])
    return [np.array(result["y"]["data"]).reshape(result["y"]["dims"]) for result in seen["results"]]


@pytest.mark.parametrize(("name", "least"), [("cora-gat", 0.8), ("digits-vit", 0.97)])
def test_the_documented_page_gives_the_models_numbers(
    name: str, least: float, site: tuple[Path, str], tmp_path: Path, data: Callable[[str], Path]
) -> None:
    if name == "cora-gat":
        data("planetoid")
    folder, origin = site
    train(configure(recipes.read(name), []), tmp_path / "run", progress=False)  # the recipe as it is: seconds
    exported = export_run(tmp_path / "run", "onnx", folder / "model.onnx")
    loaded = load_run(tmp_path / "run", device="cpu")
    graph, x = example = loaded.task.alone(loaded.model, loaded.pattern).call[:2]
    task: Any = loaded.task
    test = task.splits["test"]
    if name == "cora-gat":  # all papers, and the test papers with what they cite of one another
        x, labels, rows = x.to_dense(), task.nodes.labels, test
        inside = torch.isin(graph.edge_index(), test).all(0)
        number = torch.full((len(x),), -1).index_put((test,), torch.arange(len(test)))
        other = Graph.from_edge_index(number[graph.edge_index()[:, inside]], len(test)), x[test]
        calls = [exported.call(*example), exported.call(*other)]
        spoilt = dict(calls[0][0], edge_index=(calls[0][0]["edge_index"] + torch.tensor([[1], [0]])) % len(x))
        narrow = dict(calls[0][0], x=x[:, :-1])
    else:  # all test images, grey values 0 to 16, and the two of the example
        pixels, labels, rows = task.images.pixels[test].float(), task.images.labels[test], slice(None)
        assert pixels.max() == 16
        calls = [exported.call(graph, pixels), exported.call(*example)]
        spoilt, narrow = {"pixels": pixels / 16}, {"pixels": pixels[:, :-1]}

    seen = in_the_page(folder, origin, [*(given for given, _ in calls), spoilt])
    fetched = {url.removeprefix(origin) for url in seen["local"]}
    assert {"model.onnx", *FILES} <= fetched
    *outputs, misled = page_outputs(seen)
    for y, (_, returned) in zip(outputs, calls, strict=True):
        right = returned["y"].detach().double().numpy()
        assert returned.keys() == {"y"} and y.shape == right.shape
        others = apart(np.roll(right, 1, axis=0), right)
        print(f"{name} {y.shape}: {apart(y, right).max():.1e} apart; two rows differ by {np.median(others):.1e}")
        assert apart(y, right).max() <= CLOSE
        assert np.median(others) > 100 * CLOSE  # no constant, which any page would give
    assert len({len(y) for y in outputs}) == 2
    assert np.median(apart(misled, outputs[0])) > 100 * CLOSE  # it reads what it is given
    assert (outputs[0][rows].argmax(-1) == labels[rows].numpy()).mean() >= least

    seen = in_the_page(folder, origin, [narrow])
    assert seen["results"] == [] and len(seen["errors"]) == 1 and re.search("dimension", seen["errors"][0])


def test_a_request_elsewhere_would_be_seen(site: tuple[Path, str]) -> None:
    folder, origin = site
    (folder / "model.js").write_text("export const run = null;", encoding="utf-8")
    (folder / "page.html").write_text("<!doctype html><script>function run() {}</script>", encoding="utf-8")
    seen = in_the_page(folder, origin, [], elsewhere="https://cdn.example.org/ort.wasm")
    assert seen["elsewhere"] == ["https://cdn.example.org/ort.wasm"]
