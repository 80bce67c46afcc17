import pytest
import torch

from benchmarks import inputs
from benchmarks.contenders import PEERS, cora, dense, gpt, numba_sampling, ours_on, plain, pyg
from benchmarks.contenders import gather_compiled as gathered
from edgewise.graphs import causal
from edgewise.kernels import Dot

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # PyTorch Geometric's

CONTENDERS = ours_on("cpu") | PEERS
SMALL = inputs.attention(causal(4), 1, 2, Dot())
SAMPLING = inputs.Sampling(causal(4), causal(4).senders[:1], (2,))


@pytest.mark.parametrize(("module", "case"), [(pyg, SMALL), (numba_sampling, SAMPLING)])
def test_a_missing_package_is_a_reason(module: object, case: inputs.Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (pyg, numba_sampling):
        monkeypatch.setattr(one, "find_spec", lambda name: None)
    assert module.refuses(case).startswith("needs ")  # type: ignore[attr-defined]


def test_each_says_what_it_does_not_take() -> None:
    assert "nothing but" in (gathered.refuses(SAMPLING) or "")
    assert "windows" in (dense.flex_refuses(SAMPLING) or "")
    assert "epochs" in (plain.refuses(SMALL) or "")


@pytest.mark.studies
def test_the_two_gpts_have_the_losses_of_float64() -> None:
    truth = gpt.exact(3)
    for name in ("edgewise", "plain-gpt"):
        step = CONTENDERS[name].prepare(inputs.SmallGPT())
        assert torch.allclose(torch.tensor([step() for _ in range(3)], dtype=torch.float64), truth, rtol=1e-5)


@pytest.mark.studies
@pytest.mark.parametrize("layer", ["gcn", "gat"])
@pytest.mark.parametrize("name", ["edgewise", "plain", "pyg"])
def test_an_epoch_on_cora_learns(name: str, layer: str, data) -> None:
    data("planetoid")
    if name == "pyg":
        pytest.importorskip("torch_geometric")
    step = CONTENDERS[name].prepare(inputs.Epoch(layer))
    losses = [step()[0] for _ in range(4)]
    assert losses[-1] < losses[0]
    assert set(cora.RATES) == {"gcn", "gat"}
