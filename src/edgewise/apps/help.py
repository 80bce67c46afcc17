"""What `edgewise --help` and each command's --help say at length."""

EXAMPLES = """
examples:
  edgewise demo                                    one attention layer on text, images and a social network
  edgewise list                                    the systems that run here, and the recipes
  edgewise train cora-gcn --seeds 10               ten runs, their mean and standard deviation
  edgewise train cora-gat --model.layer.heads 4    change any option of a recipe
  edgewise train cora-gat --help                   ... and see them all
  edgewise tune texas-sage --folds 10 --time 30m   search its options by the validation data
  edgewise resume runs/cora-gat-0                  go on after an interruption, bit for bit
  edgewise generate runs/shakespeare-gpt-cpu-0 --prompt "ROMEO:"
  edgewise serve runs/cora-gat-0                   predictions over HTTP, for this machine
  edgewise plan window n=4096 radius=64 --heads 8  which backend would run, and why
  edgewise explore                                 a page: one attention on graphs that you draw
  edgewise report compare runs/cora-gcn-0 runs/cora-gat-0
  edgewise doctor                                  what is installed and what runs here, for a report
"""

TRAIN = """Train a recipe and write its run folder: config.yaml, metrics.jsonl, checkpoints/, figures/ and report.html.

Every option of the recipe can be changed with --SECTION.OPTION VALUE, and an option of a choice by its path, such as
--model.layer.heads 4. `edgewise train RECIPE --help` shows the options of that recipe with their values. Another
choice, such as --graph causal or --optimizer sgd, starts from its own defaults."""

EXPLORE = """Write one page, opened from disk, on which a model's attention is moved from graph to graph: edges are
drawn, removed and rewired, and every number is recomputed in the page.

    edgewise explore
    edgewise explore runs/demo/karate
    edgewise explore runs/cora-graph-transformer-0 --node 17"""

METHODS = (
    "attention, rollout, flow, relevance, gradient, integrated-gradients, learned-mask or leave-one-out "
    "(default: integrated-gradients)"
)

EXPLAIN = """Show why a run predicts what it predicts for an input, on one page: a score of every edge and node (atom,
patch, token, particle, tile), and how far to trust it: what becomes of the output as the highest scores go first.

    edgewise explain runs/cora-gat-0 12 --method leave-one-out
    edgewise explain runs/shakespeare-gpt-cpu-0 "ROMEO: " --method attention --layer 0"""

EXPORT = """Write a run's best weights as a file that runs without Edgewise: ONNX, or PyTorch's exported program (pt2).
Numbers of nodes, edges, graphs and tokens are free. Beside it: how to call it, an example, and a script that does.

    edgewise export runs/cora-gat-0 --to onnx --out cora.onnx
    edgewise export runs/digits-vit-0 --to pt2
    edgewise export runs/shakespeare-gpt-cpu-0 --cache      # a step of decoding, and a script that continues texts
    edgewise export runs/digits-vit-0 --to aoti    # compiled for this machine, for Python and C++
    edgewise export runs/cora-gat-0 --to aoti --native    # by the C++ kernels, which lie beside it"""

SERVE = """Predict over HTTP with a run's best weights: POST /predict reads {"rows": [...]}, each row what
`edgewise predict` reads, and writes {"predictions": [...]}. The service's page, where a request can be tried, is /,
its OpenAPI document /openapi.json. Ctrl-C stops it, once the requests that have come are answered.

    edgewise serve runs/cora-gat-0
    edgewise serve runs/digits-vit-0 --port 8080"""

REPORT = """Put runs side by side on one page that stands alone: what they reached, as mean and deviation over
repetitions with other seeds or folds, their curves, and the options that differ.

    edgewise report compare runs/cora-gcn-0 runs/cora-gcn-1 runs/cora-gat-0 runs/cora-gat-1"""

PLAN = """Show which backend would run an attention on a graph: candidates by predicted time, then the refusals.

    edgewise plan causal n=1024 --heads 8
    edgewise plan grid height=28 width=28 --channels 16 --score Gaussian
    edgewise plan complete receivers=100 --layer EGNN
    edgewise plan --calibrate
    edgewise plan --calibrate --device cuda"""

CHECK = """Show which hard pairs of graphs a model tells apart with random weights, beside the Weisfeiler-Lehman tests.

    edgewise check expressiveness gnn layer=gin depth=5
    edgewise check expressiveness pair-network --pairs pairs.g6 --train 20

Or what each method of explanation finds of motifs planted in graphs and of words planted in texts: ROC AUC, fidelity
above random orders, seconds.

    edgewise check explanations"""


DOCTOR = """Show what is installed and what runs here, on one page to attach to a report of something that fails:
versions, backends and why one does not run, threads, instruction set, measured speeds, GPU and self-check, folders.

Of the environment only variables that matter to Edgewise are shown, and no path names its user."""
