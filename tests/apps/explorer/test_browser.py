"""The explorer's page in headless browsers, every request aborted: `make browsers`, or

npm --prefix web ci --ignore-scripts && python -m pytest -m browser tests/apps/explorer
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from apps.explorer.payloads import PAYLOADS
from apps.explorer.peer import WEB, close, content_of, edited, in_double, random_edits
from edgewise.apps.explorer.page import contents, demonstration, written
from edgewise.apps.explorer.weights import read
from edgewise.graphs import Graph
from edgewise.models import MODELS
from edgewise.models.signature import Features

BROWSERS = {"chrome": ("chromium", "chromium-browser", "google-chrome"), "firefox": ("firefox-esr", "firefox")}
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (WEB / "node_modules").is_dir(), reason="needs `npm --prefix web ci --ignore-scripts`"),
]


@pytest.fixture(scope="module", params=BROWSERS)
def browser(request: pytest.FixtureRequest) -> tuple[str, str]:
    for name in BROWSERS[request.param]:
        if path := shutil.which(name):
            return request.param, path
    pytest.skip(f"needs {request.param}")


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return contents(demonstration(), "One attention, any graph", "Lead.", "Source.", {"i": 8, "j": 32})


def drive(browser: tuple[str, str], page: Path, *steps: dict[str, Any]) -> dict[str, Any]:
    """What a browser did and saw."""
    job = {"browser": browser[0], "executable": browser[1], "page": str(page), "steps": steps}
    driver = ["node", str(WEB / "test" / "browser.mjs"), "-"]
    done = subprocess.run(driver, input=json.dumps(job), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    return json.loads(done.stdout)


def quiet(seen: dict[str, Any]) -> bool:
    """No request beside the page itself, nothing in the console, no error, no dialog."""
    unwanted = {name: seen[name] for name in ("requests", "messages", "errors", "dialogs") if seen[name]}
    assert unwanted == {}
    return True


def test_it_is_quiet_accessible_and_fits_a_narrow_screen(
    browser: tuple[str, str], content: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(written(content), encoding="utf-8")
    seen = drive(browser, page, {"step": "axe"}, {"step": "overflow"}, {"step": "interaction"})
    assert quiet(seen)
    results = seen["results"]
    assert results["axe"] == []
    assert results["overflow"] <= 360
    done = results["interaction"]
    assert done["clicked"] == [True, 5, 20]
    assert abs(done["after"] - done["before"]) in (1, 2)  # an edge, and its way back unless it is a loop
    assert done["hovered"] == {"pair": [2, 1], "changed": True, "back": True}
    assert done["restored"] == done["state"]
    assert done["theme"] == "light"


def test_its_numbers_are_pytorchs_on_20_graphs_and_after_50_edits(
    browser: tuple[str, str], content: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(written(content), encoding="utf-8")
    loaded = demonstration()
    graph = loaded.task.graph(loaded.pattern)
    assert graph is not None
    edits = [random_edits(34, 60, seed) for seed in range(20)]
    fifty = random_edits(34, 50, 99)
    edits += [fifty[: k + 1] for k in range(50)]
    cases = []
    for k, pairs in enumerate(edits):
        after = edited(graph, pairs)
        e = k % after.num_edges
        i, j = int(after.receivers[e]), int(after.senders[e])
        cases.append({"graph": "given", "edits": pairs, "i": i, "j": j, "layer": k % 2, "head": k % 4})
    seen = drive(browser, page, {"step": "numbers", "cases": cases})
    assert quiet(seen)
    for pairs, case, found in zip(edits, cases, seen["results"]["numbers"], strict=True):
        after = edited(graph, pairs)
        expected = in_double(loaded.model, after, torch.eye(34))
        found["states"] = [expected["states"][0].flatten().tolist(), *found["states"]]
        assert close(found, expected, 1e-9)
        assert found["edges"] == after.num_edges
        shown = found["shown"]
        e = int(((after.receivers == case["i"]) & (after.senders == case["j"])).nonzero())
        layer, head = case["layer"], case["head"]
        assert shown["p"][0] == pytest.approx(expected["p"][layer][e, head].item(), abs=1e-9)
        assert shown["s"][0] == pytest.approx(found["s"][layer][4 * e + head], abs=1e-12)
        x = expected["states"][layer + 1][case["i"]]
        assert torch.allclose(torch.tensor(shown["x"], dtype=torch.float64), x, rtol=0, atol=1e-9)


def test_30_frames_a_second_with_2000_nodes(browser: tuple[str, str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    settings, kind = MODELS["transformer"]
    model = kind(settings(width=32, heads=4, depth=2, positions="none"), Features(8, 4)).eval()
    n = 2000
    tree = torch.stack([torch.arange(1, n), (torch.rand(n - 1) * torch.arange(1, n)).long()])
    more = torch.randint(0, n, (2, 2000))
    pairs = torch.cat([tree, more], 1)
    graph = Graph.from_edge_index(torch.cat([pairs, pairs.flip(0)], 1), n).coalesce()
    page = tmp_path / "large.html"
    features = read(model, graph, torch.randn(n, 8)).features
    page.write_text(written(content_of(model, graph, features, 4)), encoding="utf-8")
    seen = drive(browser, page, {"step": "frames", "seconds": 4})
    assert quiet(seen)
    frames = seen["results"]["frames"]
    print(browser[0], frames)
    assert frames["nodes"] == n
    assert min(frames["settling"], frames["zooming"]) >= 30


def hostile(content: dict[str, Any], payloads: list[str]) -> dict[str, Any]:
    """The page whose every text is a payload."""
    one = payloads[0]
    graphs = [
        graph | {"title": one, "names": (payloads * 34)[: graph["nodes"]]} for graph in content["examples"][0]["graphs"]
    ]
    example = content["examples"][0] | {"title": one, "note": one, "names": (payloads * 34)[:34], "graphs": graphs}
    model = content["model"] | {"outputs": payloads[:2]}
    words = {"title": one, "lead": one, "source": one}
    return content | words | {"examples": [example, example], "model": model}


def test_none_of_100_payloads_runs(browser: tuple[str, str], content: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "hostile.html"
    for first in range(0, 100, 25):
        payloads = PAYLOADS[first : first + 25]
        page.write_text(written(hostile(content, payloads)), encoding="utf-8")
        seen = drive(browser, page, {"step": "payloads"})
        assert quiet(seen)
        result = seen["results"]["payloads"]
        assert (result["hit"], result["scripts"], result["foreign"]) == ("undefined", 2, 0)
        assert set(result["names"]) <= {f"{k}: {name}" for k in range(34) for name in payloads}


def test_the_driver_sees_a_script_that_runs_and_a_request(
    browser: tuple[str, str], content: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "open.html"
    text = written(content).replace("default-src 'none'; script-src", "img-src *; old-script-src", 1)
    page.write_text(
        text.replace("</main>", '<img src="https://example.invalid/a.png"><script>window.hit=1</script></main>'),
        encoding="utf-8",
    )
    seen = drive(browser, page, {"step": "payloads"})
    assert seen["requests"] == ["https://example.invalid/a.png"]
    assert seen["results"]["payloads"]["hit"] == "number"
