"""The systems that work here: a row is listed only if its code, its test and its recipe exist."""

from __future__ import annotations

from typing import NamedTuple


class System(NamedTuple):
    """One architecture, method or task: what it computes, where that is written and which recipe runs it.

    `file` is a path below src/edgewise; `recipe` is a name of `edgewise list recipes`.
    """

    id: str
    name: str
    equation: str
    file: str
    recipe: str


SYSTEMS = (
    System("A1", "Multilayer perceptron", "σ(x W₁ + b₁) W₂ + b₂", "layers/mlp.py", "mnist-mlp"),
    System("A2", "SGD, momentum, AdaGrad, RMSprop, Adam", "θ ← θ − η m̂/(√v̂ + ε)", "training/optimizers.py", "karate"),
    System("A3", "Langevin dynamics (SGLD), cyclical", "θ − ε/2 ∇U + N(0, ε)", "training/langevin.py", "digits-sgld"),
    System("A4", "Constant-rate SGD", "ε* = 2S/N · D/Tr(BBᵀ)", "training/variational.py", "digits-constant-sgd"),
    System("A6", "Warm-up and decay", "η_t = η min(t/W, decay(t))", "training/schedules.py", "shakespeare-gpt-cpu"),
    System(
        "A7",
        "Randomised differentiation",
        "∂L/∂W = Σ_n g_n x̃_nᵀ",
        "layers/randomized.py",
        "digits-randomized",
    ),
    System("B2", "Multi-head scaled dot-product attention", "softmax(QKᵀ/√d) V", "layers/attention.py", "digits-vit"),
    System("B3", "Transformer block, pre/post-norm", "X + FFN(LN(X))", "layers/transformer.py", "digits-vit"),
    System("B5", "Decoder-only transformer (GPT)", "Π_t p(x_t | x_<t)", "models/transformer.py", "shakespeare-gpt-cpu"),
    System("B8", "Vision transformer (ViT)", "readout(Transformer(patches W))", "models/transformer.py", "digits-vit"),
    System("D1", "Message passing", "h_i ← γ(h_i, ⊕_{j∈N(i)} φ(h_i, h_j))", "kernels/verbs.py", "cora-gin"),
    System("D2", "Graph convolution (GCN)", "σ(D̃^−½ Ã D̃^−½ H W)", "layers/gcn.py", "cora-gcn"),
    System("D3", "GraphSAGE: mean, pool, LSTM", "σ(W [h_i ‖ ⊕_{j∈N(i)} h_j])", "layers/sage.py", "cora-sage"),
    System("D5", "Graph attention (GAT)", "softmax_j(LeakyReLU(aᵀ[Wh_i ‖ Wh_j])) Wh_j", "layers/gat.py", "cora-gat"),
    System("D5", "GATv2", "softmax_j(aᵀ LeakyReLU(W[h_i ‖ h_j])) Wh_j", "layers/gat.py", "cora-gatv2"),
    System("D6", "Graph isomorphism network (GIN)", "MLP((1 + ε) h_i + Σ_{j∈N(i)} h_j)", "layers/gin.py", "cora-gin"),
    System("F1", "SchNet", "h_i + φ(Σ_j W h_j ∘ φ_cf(‖x_i − x_j‖))", "layers/schnet.py", "nbody-schnet"),
    System("F2", "Radial field", "x_i + C Σ_j (x_i − x_j) φ(‖x_i − x_j‖)", "layers/radial.py", "nbody-radial-field"),
    System("F3", "E(n)-equivariant GNN (EGNN)", "x_i + C Σ_j (x_i − x_j) φ_x(m_ij)", "layers/egnn.py", "nbody-egnn"),
    System("G1", "Node classification", "argmax_c f(G, X)_ic", "tasks/citation.py", "cora-gat"),
    System("G5", "Language modelling", "−Σ_t log p(x_t | x_<t)", "tasks/text.py", "shakespeare-gpt-cpu"),
    System("G5", "Image classification", "argmax_c f(patches)_c", "tasks/digits.py", "digits-vit"),
)


def systems_table(root: str = "src/edgewise") -> str:
    """The rows as a Markdown table; files are linked below `root`, as seen from the document that shows the table."""
    lines = ["| | system | equation | file | recipe |", "|---|---|---|---|---|"]
    for row in SYSTEMS:
        file = f"[`{row.file}`]({root}/{row.file})"
        recipe = f"[`{row.recipe}`]({root}/recipes/{row.recipe}.yaml)"
        lines.append(f"| {row.id} | {row.name} | {row.equation.replace('|', chr(92) + '|')} | {file} | {recipe} |")
    return "\n".join(lines)
