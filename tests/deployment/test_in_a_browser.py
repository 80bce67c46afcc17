"""Exported models in a page: the lines of docs/export.md in headless Chromium. `make browsers`, or

npm --prefix web ci --ignore-scripts && python -m pytest -m browser tests/deployment
"""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
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
from edgewise.deployment.runs import export_run
from edgewise.graphs import Graph
from edgewise.training import load_run, train

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "web" / "node_modules" / "onnxruntime-web" / "dist"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGE = """<!doctype html><title>A model</title><link rel="icon" href="data:,">
<script type="module">import { run } from "./model.js"; window.run = run;</script>
"""
FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
KINDS = {torch.float32: "Float32Array", torch.int64: "BigInt64Array"}
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not RUNTIME.is_dir(), reason="needs `npm --prefix web ci --ignore-scripts`"),
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that 127.0.0.1 serves: the page, the documented lines and onnxruntime-web's two files."""
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


@pytest.mark.parametrize(("name", "steps"), [("cora-gat", 20), ("digits-vit", 100)])
def test_the_documented_page_gives_the_models_numbers(
    name: str, steps: int, site: tuple[Path, str], tmp_path: Path
) -> None:
    folder, origin = site
    train(configure(recipes.read(name), [("train.steps", str(steps))]), tmp_path / "run", progress=False)
    exported = export_run(tmp_path / "run", "onnx", folder / "model.onnx")
    loaded = load_run(tmp_path / "run", device="cpu")
    example = loaded.task.alone(loaded.model, loaded.pattern).call
    graph, x = example[:2]
    generator = torch.Generator().manual_seed(1)
    if name == "cora-gat":
        edges = torch.randint(1001, (2, 4000), generator=generator)
        edges = edges[:, edges[0] != edges[1]].unique(dim=1)
        other = Graph.from_edge_index(edges, num_nodes=1001), torch.rand(1001, x.shape[1], generator=generator)
    else:
        other = graph, torch.randint(17, (7, *x.shape[1:]), generator=generator).float()
    calls = [exported.call(*example), exported.call(*other)]
    assert len({next(iter(given.values())).shape[0] for given, _ in calls}) == 2

    seen = in_the_page(folder, origin, [given for given, _ in calls])
    assert (seen["errors"], seen["messages"], seen["elsewhere"]) == ([], [], [])
    fetched = {url.removeprefix(origin) for url in seen["local"]}
    assert {"model.onnx", *FILES} <= fetched
    for (_, returned), result in zip(calls, seen["results"], strict=True):
        assert result.keys() == returned.keys() == {"y"}
        y, right = np.array(result["y"]["data"]).reshape(result["y"]["dims"]), returned["y"].detach().double().numpy()
        assert y.shape == right.shape
        apart = float((np.abs(y - right) / (1 + np.abs(right))).max())
        print(f"{name} {y.shape}: {apart:.1e} apart, of a standard deviation of {right.std():.1e}")
        assert apart <= 1e-5
        assert (
            right.std(axis=0).min() > 1e-2
        )  # each class differs from row to row: not a constant, which any page would give


def test_a_request_elsewhere_would_be_seen(site: tuple[Path, str]) -> None:
    folder, origin = site
    (folder / "model.js").write_text("export const run = null;", encoding="utf-8")
    (folder / "page.html").write_text("<!doctype html><script>function run() {}</script>", encoding="utf-8")
    seen = in_the_page(folder, origin, [], elsewhere="https://cdn.example.org/ort.wasm")
    assert seen["elsewhere"] == ["https://cdn.example.org/ort.wasm"]
