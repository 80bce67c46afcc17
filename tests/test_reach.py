from pathlib import Path

import pytest

import reach

GAT = "src/edgewise/layers/graph/gat.py"


def test_a_layer_reaches_its_test_its_examples_its_conformance_and_the_models_that_use_it() -> None:
    found = reach.reached([GAT])
    assert {GAT, "tests/layers/graph/test_gat.py", "tests/models/graph/test_gnn.py", "tests/architecture"} <= {*found}
    assert {f"tests/layers/test_conformance.py::test_layer_conforms[{name}]" for name in ("GAT", "GATv2")} <= {*found}
    assert not any("[GCN]" in name or "tests/tasks" in name or "tests/kernels" in name for name in found)


def test_a_name_that_a_floor_offers_counts_for_the_module_that_defines_it() -> None:
    assert reach.home("edgewise.layers", "GAT") == "edgewise.layers.graph.gat"
    assert reach.home("edgewise", "attend") == "edgewise.kernels.verbs"
    assert "tests/graphs/test_refinement.py" in reach.reached(["src/edgewise/graphs/refinement.py"])


@pytest.mark.parametrize(
    ("changed", "some"),
    [
        ("tests/conftest.py", {"tests", "src"}),
        ("tests/layers/graph/test_gcn.py", {"tests/layers/graph/test_gcn.py"}),
        ("src/edgewise/native/sampling.cpp", {"tests/native", "tests/kernels"}),
        ("docs/index.md", set()),
    ],
)
def test_other_files(changed: str, some: set[str]) -> None:
    assert some <= {*reach.reached([changed])}


def test_every_argument_is_one_that_pytest_finds() -> None:
    files = [name.split("::")[0] for name in reach.reached([GAT, "src/edgewise/layers/graph/gcn.py"])]
    assert [name for name in files if not (Path(reach.ROOT) / name).exists()] == []
    assert not any("[renormalised]" in name for name in reach.reached(["src/edgewise/layers/graph/gcn.py"]))


def test_the_closest_tests_of_a_file_begin_with_its_mirror_and_end_with_the_suites_of_its_part() -> None:
    found = reach.closest(reach.ROOT / GAT)
    assert found[0] == "tests/layers/graph/test_gat.py" and GAT in found
    assert "tests/layers/test_conformance.py::test_layer_conforms[GATv2]" in found
    call = reach.closest(reach.ROOT / "src/edgewise/kernels/call.py")
    assert (
        call[0] == "tests/kernels/test_verbs.py" and call[-1] == "tests/layers/test_conformance.py::test_layer_conforms"
    )
    noise = reach.closest(reach.ROOT / "src/edgewise/tasks/text/noise.py")
    assert "tests/tasks/text/test_masked.py" in noise  # that of a module which imports it, as few others do
