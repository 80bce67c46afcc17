"""The check of a backend must fail where it is wrong."""

from dataclasses import replace

import pytest
import torch

from edgewise import BackendRefusal
from edgewise.kernels import BACKENDS
from edgewise.kernels.backends.torch import segment
from edgewise.testing import PROPERTIES, check_kernel, check_layer
from testing.sound import GRAPH, Sound


def _backend(run=segment.run, limits=None):
    return replace(segment.BACKEND, run=run, limits=limits)


def _wrong_output(call):
    return segment.run(call) * (1 + 1e-6)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 + 1e-6)


@pytest.mark.parametrize(
    ("run", "message"),
    [(_wrong_output, "the output"), (lambda call: WrongGradient.apply(segment.run(call)), "the gradient of")],
    ids=["output", "gradient"],
)
def test_a_wrong_backend_fails_both_checks(monkeypatch, run, message):
    monkeypatch.setitem(BACKENDS, "wrong", _backend(run))
    with pytest.raises(AssertionError, match=f"wrong: .*{message}"):
        check_kernel("wrong")
    with pytest.raises(AssertionError, match=f"backends: backend 'wrong' disagrees with reference: {message}"):
        check_layer(Sound(), GRAPH, torch.randn(5, 3), skip=set(PROPERTIES) - {"backends"})


def test_a_backend_that_refuses_everything_proves_nothing(monkeypatch):
    monkeypatch.setitem(BACKENDS, "idle", _backend(limits=lambda call: "not today"))
    with pytest.raises(AssertionError, match=r"idle refuses everything: .*not today"):
        check_kernel("idle")


def test_an_unknown_backend_is_refused():
    with pytest.raises(BackendRefusal, match="segment"):
        check_kernel("swift")


ON_CPU = sorted(name for name, backend in BACKENDS.items() if backend.devices != ("cuda",))


@pytest.mark.parametrize("backend", ON_CPU)  # the others have tests of their own
def test_backends_agree_with_the_reference(backend):
    refused = check_kernel(backend)
    assert all(reason for reason in refused.values())
