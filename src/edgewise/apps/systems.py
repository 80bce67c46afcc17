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
    System("A1", "Multilayer perceptron", "σ(x W₁ + b₁) W₂ + b₂", "layers/plain/mlp.py", "mnist-mlp"),
    System(
        "A2",
        "SGD, momentum, AdaGrad, RMSprop, Adam",
        "θ ← θ − η m̂/(√v̂ + ε)",
        "training/optimizers/descent.py",
        "karate",
    ),
    System(
        "A3",
        "Langevin dynamics (SGLD), cyclical",
        "θ − ε/2 ∇U + N(0, ε)",
        "training/optimizers/langevin.py",
        "digits-sgld",
    ),
    System(
        "A4", "Constant-rate SGD", "ε* = 2S/N · D/Tr(BBᵀ)", "training/optimizers/variational.py", "digits-constant-sgd"
    ),
    System(
        "A5",
        "Stochastic weight averaging",
        "w̄ ← (n w̄ + w)/(n + 1)",
        "training/optimizers/averaging.py",
        "mnist-mlp-swa",
    ),
    System(
        "A6",
        "Warm-up and decay",
        "η_t = η min(t/W, decay(t))",
        "training/optimizers/schedules.py",
        "shakespeare-gpt-cpu",
    ),
    System(
        "A7",
        "Randomised differentiation",
        "∂L/∂W = Σ_n g_n x̃_nᵀ",
        "layers/plain/randomized.py",
        "digits-randomized",
    ),
    System(
        "A8", "Recurrent networks, LSTM, GRU", "h_t = φ(h_{t−1}, x_t)", "models/text/recurrent.py", "shakespeare-lstm"
    ),
    System("A9", "Low-rank adaptation (LoRA)", "W + α/r B A", "layers/plain/low_rank.py", "digits-vit-lora"),
    System(
        "B1",
        "Nadaraya-Watson attention",
        "Σ_j a(q, k_j) v_j",
        "layers/attention/kernel_regression.py",
        "kernel-regression",
    ),
    System(
        "B2",
        "Multi-head scaled dot-product attention",
        "softmax(QKᵀ/√d) V",
        "layers/attention/attention.py",
        "digits-vit",
    ),
    System("B3", "Transformer block, pre/post-norm", "X + FFN(LN(X))", "layers/attention/transformer.py", "digits-vit"),
    System(
        "B4",
        "Encoder-decoder, cross-attention, beam search",
        "softmax(Q_y K_xᵀ/√d) V_x",
        "models/text/encoder_decoder.py",
        "multi30k-de-en",
    ),
    System(
        "B5", "Decoder-only transformer (GPT)", "Π_t p(x_t | x_<t)", "models/text/transformer.py", "shakespeare-gpt-cpu"
    ),
    System("B6", "Masked-token pre-training (BERT)", "−Σ_m log p(x_m | mask(x))", "tasks/text/masked.py", "esol-bert"),
    System("B6", "Fine-tuning (BERT, RoBERTa)", "readout(BERT(x)) W + b", "models/text/bert.py", "esol-bert-100"),
    System(
        "B7",
        "Denoising, then translation (BART)",
        "−Σ_t log p(x_t | x_<t, noise(x))",
        "tasks/text/denoising.py",
        "multi30k-bart-de-en",
    ),
    System(
        "B8", "Vision transformer (ViT)", "readout(Transformer(patches W))", "models/text/transformer.py", "digits-vit"
    ),
    System(
        "B9", "Swin transformer", "N(i) = {j : window(j) = window(i)}, shifted", "models/vision/swin.py", "mnist-swin"
    ),
    System(
        "B10",
        "Positions: absolute, rotary",
        "x_p + PE_p;  R_p q",
        "layers/attention/positions.py",
        "shakespeare-positions",
    ),
    System(
        "B10", "Positions: relative", "q_i·k_j/√d + b_{i−j}", "layers/attention/relative.py", "shakespeare-positions"
    ),
    System(
        "C1",
        "Sparse Transformer",
        "softmax_j(q_i·k_j), j ∈ A^(m)(i)",
        "layers/attention/sparse.py",
        "shakespeare-sparse",
    ),
    System(
        "C2", "Reformer (LSH attention)", "P(i) = {j : h(q_j) = h(q_i)}", "layers/attention/lsh.py", "shakespeare-lsh"
    ),
    System(
        "C3",
        "Routing Transformer",
        "{j : c(k_j) = c(q_i)}, c k-means",
        "layers/attention/routing.py",
        "shakespeare-routing",
    ),
    System(
        "C4",
        "Sinkhorn Transformer",
        "softmax(q [SK ‖ K]ᵀ) [SV ‖ V]",
        "layers/attention/sinkhorn.py",
        "shakespeare-sinkhorn",
    ),
    System(
        "C5",
        "Performer FAVOR+",
        "φ(q)·φ(k) ≈ exp(q·k/√d)",
        "layers/attention/linear_attention.py",
        "shakespeare-performer",
    ),
    System(
        "C6",
        "Linear attention",
        "φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ",
        "layers/attention/linear_attention.py",
        "shakespeare-linear",
    ),
    System(
        "C7",
        "Hopfield networks, pooling",
        "ξ ← Σ_p softmax_p(β x_p·ξ) x_p",
        "layers/attention/hopfield.py",
        "musk-hopfield",
    ),
    System("D1", "Message passing", "h_i ← γ(h_i, ⊕_{j∈N(i)} φ(h_i, h_j))", "kernels/verbs.py", "cora-gin"),
    System("D2", "Graph convolution (GCN)", "σ(D̃^−½ Ã D̃^−½ H W)", "layers/graph/gcn.py", "cora-gcn"),
    System("D3", "GraphSAGE: mean, pool, LSTM", "σ(W [h_i ‖ ⊕_{j∈N(i)} h_j])", "layers/graph/sage.py", "cora-sage"),
    System(
        "D3", "Sampled neighbours, inductive", "B_h = B_{h-1} ∪ N_h(B_{h-1})", "tasks/nodes/planted.py", "planted-sage"
    ),
    System(
        "D4",
        "FastGCN: importance sampling",
        "1/t Σ_j Â(v, u_j)/q(u_j) W h_{u_j}",
        "layers/graph/gcn.py",
        "planted-fastgcn",
    ),
    System(
        "D5", "Graph attention (GAT)", "softmax_j(LeakyReLU(aᵀ[Wh_i ‖ Wh_j])) Wh_j", "layers/graph/gat.py", "cora-gat"
    ),
    System("D5", "GATv2", "softmax_j(aᵀ LeakyReLU(W[h_i ‖ h_j])) Wh_j", "layers/graph/gat.py", "cora-gatv2"),
    System(
        "D6", "Graph isomorphism network (GIN)", "MLP((1 + ε) h_i + Σ_{j∈N(i)} h_j)", "layers/graph/gin.py", "cora-gin"
    ),
    System(
        "D7", "GatedGCN", "A h_i + Σ_j σ(ê_ij) ⊙ B h_j / Σ_j σ(ê_ij)", "layers/graph/gated_gcn.py", "cora-gated-gcn"
    ),
    System("D8", "MoNet", "1/|N(i)| Σ_j Σ_k w_k(u_ij) Θ_k h_j", "layers/geometric/monet.py", "cora-monet"),
    System("D9", "EdgeConv", "max_j MLP([h_i ‖ h_j − h_i])", "layers/geometric/edge_conv.py", "clouds-edge-conv"),
    System("D9", "Dynamic EdgeConv (DGCNN)", "EdgeConv on kNN(h)", "layers/geometric/edge_conv.py", "clouds-dgcnn"),
    System(
        "D10", "Full graph network", "φ_e, then φ_v, then φ_u", "layers/graph/graph_network.py", "digits-graph-network"
    ),
    System("D11", "Weisfeiler–Lehman tests", "c_i ← hash(c_i, {{c_j}})", "graphs/refinement.py", "skip-links-gin"),
    System("D12", "Over-smoothing, PairNorm", "tr(Xᵀ(I − Â)X) / ‖X‖²", "layers/graph/smoothing.py", "cora-gcn-deep"),
    System(
        "E1",
        "Graph Transformer",
        "softmax_j(A_ij ⊙ q_i·k_j/√d) v_j",
        "layers/graph/graph_attention.py",
        "cora-graph-transformer",
    ),
    System(
        "E2",
        "Kernel graph attention (GraphiT)",
        "Σ_j K_ij e^(s_ij) v_j / Σ_j K_ij e^(s_ij)",
        "layers/graph/graph_attention.py",
        "karate-kernel",
    ),
    System(
        "E2",
        "Hadamard graph attention",
        "Σ_j a_ij softmax_j(q_i·k_j/√d) v_j",
        "layers/graph/graph_attention.py",
        "karate-hadamard",
    ),
    System("E3", "Laplacian encoding", "(I − D^−½AD^−½) v = λ v", "layers/graph/encodings.py", "skip-links-laplacian"),
    System("E3", "Random-walk encoding", "((D⁻¹A)^t)_ii", "layers/graph/encodings.py", "skip-links-gps"),
    System("E4", "GPS", "MLP(MPNN(X) + ATT(X))", "layers/graph/gps.py", "skip-links-gps"),
    System(
        "E4",
        "Graphormer",
        "softmax_j(q_i·k_j/√d + b_φ(i,j) + c_ij) v_j",
        "layers/graph/graph_attention.py",
        "digits-graphormer",
    ),
    System("E5", "Min-cut pooling", "Sᵀ X, Sᵀ A S, S = softmax(X W)", "layers/pooling/min_cut.py", "mutag-min-cut"),
    System(
        "E6",
        "Whole slides",
        "slide → tiles → GCN → min-cut → attention → y",
        "tasks/slides/classification.py",
        "slides-min-cut",
    ),
    System("F1", "SchNet", "h_i + φ(Σ_j W h_j ∘ φ_cf(‖x_i − x_j‖))", "layers/geometric/schnet.py", "nbody-schnet"),
    System(
        "F1", "Potential on SchNet", "E = Σ_i ε_i;  F_i = −∂E/∂x_i", "models/particles/potential.py", "copper-schnet"
    ),
    System(
        "F2",
        "Radial field",
        "x_i + C Σ_j (x_i − x_j) φ_rf(‖x_i − x_j‖)",
        "layers/geometric/radial.py",
        "nbody-radial-field",
    ),
    System(
        "F3",
        "E(n)-equivariant GNN (EGNN)",
        "x_i + C Σ_j (x_i − x_j) φ_x(m_ij)",
        "layers/geometric/egnn.py",
        "nbody-egnn",
    ),
    System(
        "F4",
        "Tensor field network (TFN)",
        "Σ_j R(‖x_ij‖) ∘ Q^(lk)_J(x_ij) h_j^k",
        "layers/geometric/tensor_field.py",
        "nbody-tfn",
    ),
    System(
        "F5", "SE(3)-Transformer", "Σ_j softmax_j(q_i·k_ij/√D) v_ij", "layers/geometric/tensor_field.py", "nbody-se3"
    ),
    System(
        "F6",
        "Group convolution (p4, p4m)",
        "Σ_j Σ_h W(g⁻¹p_ij, g⁻¹h) x_j(h)",
        "layers/images/group_convolution.py",
        "mnist-rotated-p4",
    ),
    System(
        "F7",
        "Graph network simulator (GNS)",
        "x_i + (v_i + σ a_i(G, X))",
        "models/particles/simulator.py",
        "granular-gns",
    ),
    System("G1", "Node classification", "argmax_c f(G, X)_ic", "tasks/nodes/citation.py", "cora-gat"),
    System(
        "G2",
        "Link prediction: graph auto-encoder, variational",
        "σ(z_iᵀ z_j)",
        "tasks/links/prediction.py",
        "cora-vgae",
    ),
    System(
        "G3", "Graph classification", "W readout(GNN(diag(A_1, …, A_G), X))", "tasks/graphs/prediction.py", "mutag-gin"
    ),
    System("G4", "Graph generation", "Π_t p(s_t | s_<t)", "tasks/graphs/generation.py", "communities-transformer"),
    System(
        "G4",
        "Graph auto-encoder of whole graphs",
        "σ(b − ‖z_i − z_j‖²), z = EGNN(A, noise)",
        "models/graph/autoencoder.py",
        "communities-autoencoder",
    ),
    System("G5", "Language modelling", "−Σ_t log p(x_t | x_<t)", "tasks/text/language.py", "shakespeare-gpt-cpu"),
    System("G5", "Image classification", "argmax_c f(patches)_c", "tasks/images/digits.py", "digits-vit"),
    System("G5", "Sequence classification", "argmax_c f(x_1 … x_T)_c", "tasks/text/listops.py", "listops-full"),
    System("G5", "Translation", "argmax_Y log p(Y | X) / lp(Y)", "tasks/text/translation.py", "multi30k-de-en"),
    System("G6", "Pre-training, then fine-tuning", "min_θ L(θ) from θ₀ = θ_pre", "training/runs.py", "esol-bert-100"),
)


def systems_table(root: str = "src/edgewise") -> str:
    """The rows as a Markdown table; files are linked below `root`, as seen from the document that shows the table."""
    lines = ["| | system | equation | file | recipe |", "|---|---|---|---|---|"]
    for row in SYSTEMS:
        file = f"[`{row.file}`]({root}/{row.file})"
        recipe = f"[`{row.recipe}`]({root}/recipes/{row.recipe}.yaml)"
        lines.append(f"| {row.id} | {row.name} | {row.equation.replace('|', chr(92) + '|')} | {file} | {recipe} |")
    return "\n".join(lines)
