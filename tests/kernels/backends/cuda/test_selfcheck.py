"""A kernel is used on a card where its self-check passed; one that failed is refused, by name, from then on."""

import json
from dataclasses import replace
from unittest import mock

import pytest
import torch

from edgewise import (
    BackendRefusal,
    Dot,
    Graph,
    attend,
    complete,
    plan,
    window,
)
from edgewise.kernels import BACKENDS
from edgewise.kernels.backends.cuda import programs, selfcheck
from edgewise.kernels.call import Attend
from edgewise.kernels.planning import planner
from pretend import Card

KERNELS = ("ragged", "bitmap", "triton")
CPU = torch.device("cpu")


@pytest.fixture
def few(monkeypatch):
    """Graphs that the interpreter can take in a second."""
    graphs = {"blocks": Graph.batch([complete(3), complete(5)]), "a window": window(9, 2)}
    monkeypatch.setattr(selfcheck, "_graphs", lambda: graphs)


@pytest.mark.skipif(not programs.INTERPRETED, reason="on a card the kernels run there")
@pytest.mark.interpreter
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_pass_in_the_interpreter_and_run_at_all(name, monkeypatch):
    ran = []
    backend = replace(BACKENDS[name], run=lambda call: ran.append(selfcheck.kind_of(call)) or BACKENDS[name].run(call))
    assert selfcheck.check(backend, CPU) == ""
    assert {what.partition(",")[0] for what, _ in ran} == (
        {"attend", "aggregate", "collect"} if name == "triton" else {"attend"}
    )
    assert {dtype for _, dtype in ran} == {torch.float32, torch.bfloat16, torch.float16}


def test_every_kind_of_call_has_cases():
    kinds = {what for what, *_ in selfcheck._cases()}
    assert kinds == {
        *(f"attend, Dot{beside}" for beside in ("", " + EdgeBias", " + SenderBias", " + EdgeVectors")),
        *("attend, Additive", "attend, GatedAdditive", "collect, sum", "collect, max"),
        *(f"aggregate, {reduce}" for reduce in ("sum", "mean", "max", "min")),
    }
    for what, _, _, graph, shapes, make in selfcheck._cases():
        assert selfcheck.kind_of(make(graph, [torch.zeros(shape) for shape in shapes])) == (what, torch.float32)


@pytest.mark.usefixtures("few")
def test_a_wrong_result_a_wrong_gradient_nan_and_an_exception_are_named():
    segment = BACKENDS["segment"]
    assert selfcheck.check(segment, CPU) == ""
    wrong = {
        "the result is off by": lambda call: segment.run(call) * 1.01,
        "the gradient of tensor 1 is off by": lambda call: segment.run(call).detach() + 0 * segment.run(call),
        "the result is off by nan": lambda call: segment.run(call) * float("nan"),
        "RuntimeError: an illegal memory access": lambda call: (_ for _ in ()).throw(
            RuntimeError("an illegal memory access")
        ),
    }
    for said, run in wrong.items():
        assert f"attend, Dot, blocks in float32: {said}" in selfcheck.check(replace(segment, run=run), CPU)


@pytest.fixture
def card(monkeypatch, cache):
    """A pretended card with Triton, on which `bitmap` fails; which kernels were checked."""
    checked = []

    def check(backend, device, kind):
        assert kind == ("attend, Dot", torch.float32)
        checked.append(backend.name)
        return "attend, Dot, a hub in float32: the result is off by 1.0e+00" if backend.name == "bitmap" else ""

    monkeypatch.setattr(selfcheck, "check", check)
    monkeypatch.setattr(selfcheck, "_verdicts", {})
    monkeypatch.setattr(programs, "identity", lambda index: "Card-9000")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with Card(), mock.patch.object(programs, "INSTALLED", True):  # which ends before the card does
        yield checked


def refusals(graph):
    return {one.backend: one.refusal for one in plan(graph, heads=2, channels=16).candidates}


def test_a_kernel_that_failed_is_refused_and_named_and_the_others_are_chosen(card, cache):
    graph = window(64, 2).to("cuda")
    with pytest.warns(
        RuntimeWarning, match="'bitmap' is not used for such calls .attend, Dot, float32. .*: attend, Dot, a hub"
    ):
        first = refusals(graph)
    assert "failed its self-check on this GPU (attend, Dot, a hub in float32" in first["bitmap"]
    assert first["triton"] is None and first["reference"] is None
    assert refusals(complete(8).to("cuda"))["ragged"] is None
    assert sorted(card) == sorted(KERNELS), "once each"
    q = torch.zeros(64, 2, 16).to("cuda")
    with pytest.raises(BackendRefusal, match="backend 'bitmap' cannot run this call: it failed its self-check"):
        attend(graph, q, q, q, backend="bitmap")
    files = list((cache / "selfcheck").iterdir())
    assert [path.name for path in files] == ["Card-9000.json"]
    assert json.loads(files[0].read_text()).keys() == {f"{name}, attend, Dot, float32" for name in KERNELS}


def test_the_planner_checks_the_backend_that_it_would_choose_and_no_other(card):
    graph = Graph.from_edge_index(torch.randint(4096, (2, 16384)), 4096).to("cuda")
    call = Attend(graph, *(torch.zeros(4096, 2, 16).to("cuda") for _ in range(3)), Dot()).lowered()
    able = [backend for backend in BACKENDS.values() if backend.refusal_at_sight(call) is None]
    assert {"bitmap", "triton"} <= {backend.name for backend in able} and card == [], "a look checks nothing"
    chosen = planner.cheapest(call)
    assert card == [chosen] and chosen in KERNELS


def test_a_later_process_goes_by_the_cache_unless_anything_else_runs_there(card, cache, monkeypatch):
    graph = window(64, 2).to("cuda")
    with pytest.warns(RuntimeWarning, match="bitmap"):
        refusals(graph)
    selfcheck._verdicts.clear()
    assert "self-check" in refusals(graph)["bitmap"] and sorted(card) == ["bitmap", "triton"]
    monkeypatch.setattr(programs, "identity", lambda index: "Card-9000-of-a-new-driver")
    selfcheck._verdicts.clear()
    with pytest.warns(RuntimeWarning, match="bitmap"):
        refusals(graph)
    assert sorted(card) == ["bitmap", "bitmap", "triton", "triton"]


@pytest.mark.parametrize("text", ["", "[]", '{"bitmap, attend, Dot, float32": 3}'])
def test_a_file_that_is_not_ours_is_as_good_as_none(card, cache, text):
    (cache / "selfcheck").mkdir(parents=True)
    (cache / "selfcheck" / "Card-9000.json").write_text(text)
    with pytest.warns(RuntimeWarning, match="bitmap"):
        refusals(window(64, 2).to("cuda"))
    assert "bitmap" in card


def test_while_a_graph_is_captured_an_unchecked_kernel_is_refused(card, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert "not run yet" in refusals(window(64, 2).to("cuda"))["triton"] and card == []
