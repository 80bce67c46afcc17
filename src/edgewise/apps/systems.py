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
    System("A6", "Warm-up and decay", "η_t = η min(t/W, decay(t))", "training/schedules.py", "shakespeare-gpt-cpu"),
    System("B2", "Multi-head scaled dot-product attention", "softmax(QKᵀ/√d) V", "layers/attention.py", "digits-vit"),
    System("B3", "Transformer block, pre/post-norm", "X + FFN(LN(X))", "layers/transformer.py", "digits-vit"),
    System("B5", "Decoder-only transformer (GPT)", "Π_t p(x_t | x_<t)", "models/transformer.py", "shakespeare-gpt-cpu"),
    System("B8", "Vision transformer (ViT)", "readout(Transformer(patches W))", "models/transformer.py", "digits-vit"),
    System("D1", "Message passing", "h_i ← γ(h_i, ⊕_{j∈N(i)} φ(h_i, h_j))", "kernels/verbs.py", "cora-gin"),
    System("D2", "Graph convolution (GCN)", "σ(D̃^−½ Ã D̃^−½ H W)", "layers/gcn.py", "cora-gcn"),
    System("D3", "GraphSAGE: mean, pool, LSTM", "σ(W [h_i ‖ ⊕_{j∈N(i)} h_j])", "layers/sage.py", "cora-sage"),
    System("D3", "Sampled neighbours, inductive", "B_h = B_{h-1} ∪ N_h(B_{h-1})", "tasks/planted.py", "planted-sage"),
    System(
        "D4",
        "FastGCN: importance sampling",
        "1/t Σ_j Â(v, u_j)/q(u_j) W h_{u_j}",
        "layers/fastgcn.py",
        "planted-fastgcn",
    ),
    System("D5", "Graph attention (GAT)", "softmax_j(LeakyReLU(aᵀ[Wh_i ‖ Wh_j])) Wh_j", "layers/gat.py", "cora-gat"),
    System("D5", "GATv2", "softmax_j(aᵀ LeakyReLU(W[h_i ‖ h_j])) Wh_j", "layers/gat.py", "cora-gatv2"),
    System("D6", "Graph isomorphism network (GIN)", "MLP((1 + ε) h_i + Σ_{j∈N(i)} h_j)", "layers/gin.py", "cora-gin"),
    System("G1", "Node classification", "argmax_c f(G, X)_ic", "tasks/citation.py", "cora-gat"),
    System("G2", "Link prediction: graph auto-encoder, variational", "σ(z_iᵀ z_j)", "tasks/links.py", "cora-vgae"),
    System("G3", "Graph classification", "argmax_c MLP(readout(f(G, X)))_c", "tasks/graphs.py", "enzymes-gin"),
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
